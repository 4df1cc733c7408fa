"""The helper that runs code apart: how it ended and what it said is that of a process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from apart import run_apart


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("import sys; print(sys.argv[1:]); sys.exit(3)", 3),
        ("import sys; sys.exit('a reason')", 1),
        ("1 / 0", 1),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV),
        ("import os; os._exit(7)", 7),
    ],
)
def test_how_it_ended(code: str, ended: int) -> None:
    assert run_apart(code, "one", 2).returncode == ended


def test_what_it_said(tmp_path: Path) -> None:
    done = run_apart("import os, sys; print(os.getcwd(), sys.argv[1:]); x", "one", 2, cwd=tmp_path)
    assert done.stdout == f"{tmp_path} ['one', '2']\n"
    assert "NameError" in done.stderr


def test_one_that_hangs_is_ended() -> None:
    with pytest.raises(TimeoutError):
        run_apart("import time; time.sleep(60)", timeout=0.2)
    assert run_apart("print(5)").stdout == "5\n"
