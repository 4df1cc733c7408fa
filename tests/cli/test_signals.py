"""Ctrl-C and the signals that end a process: it cleans up, keeps its journal, and says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import typer
from safetensors.torch import save_file

import plain_files
from fairij.cli.errors import EXIT_CODES, guarded
from fairij.cli.signals import ENDING, Ended, ending_cleanly

SLOW = """
import pathlib
import time

from torch import nn


class Net(nn.Linear):
    def forward(self, rows):
        pathlib.Path("started").touch()
        time.sleep(0.2)
        return super().forward(rows)
"""


MITIGATE = ("--train", "train.csv", "--validation", "validation.csv", "--label", "repaid",
            "--sensitive", "sex", "--batch-size", "20",
            *(part for name in plain_files.NUMBERS for part in ("--features", name)))  # fmt: skip
OPENING = ("--model", "slow.safetensors", "--model-class", "slow.py:Net", "--model-args",
           '{"in_features": 3, "out_features": 1}')  # fmt: skip


def ended_by(number: int, *asked: str) -> tuple[int, str, str]:
    """How a command ends that gets a signal while it works, and what it says."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fairij", *asked],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # what a shell runs in the background ignores Ctrl-C, and so does all that it starts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while not Path("started").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    out, said = process.communicate(timeout=60)
    return process.returncode, out, said.strip()


@pytest.mark.parametrize(
    ("number", "command", "expected"),
    [
        (signal.SIGINT, "mitigate", (130, "error: interrupted; nothing half-written is left.")),
        pytest.param(
            signal.SIGTERM,
            "mitigate",
            (143, "error: ended by SIGTERM; nothing half-written is left."),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            signal.SIGHUP,
            "influence",
            (129, "error: ended by SIGHUP; nothing half-written is left."),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_that_is_ended(
    files: Path, number: int, command: str, expected: tuple[int, str]
) -> None:
    Path("slow.py").write_text(SLOW)
    # as the rows were made: outputs that speak for the other label would end the run first
    made = {"weight": torch.tensor([[1.1, -0.8, 0.3]]), "bias": torch.tensor([-0.5])}
    save_file(made, "slow.safetensors")
    before = set(os.listdir())
    more = () if command == "influence" else ("--checkpoint", "notes")
    out = "scores.csv" if command == "influence" else "result"
    code, printed, said = ended_by(number, command, *OPENING, *MITIGATE, *more, "--out", out)
    assert (code, said) == expected
    assert printed == ""
    assert set(os.listdir()) - before <= {"started", "notes", "__pycache__"}
    assert code in EXIT_CODES


WRITING = """
import sys, time
from pathlib import Path
from fairij.cli.errors import guarded
from fairij.cli.outputs import whole_folder
from fairij.cli.contents import Holds
import typer
try:
    with guarded(), whole_folder(Path("result"), "test", {"a": Holds("")}) as folder:
        (folder / "a").write_text("half")
        Path("started").touch()
        time.sleep(60)
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGHUP, signal.SIGTERM)])
def test_what_is_half_written_is_removed(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITING], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    wait_for(tmp_path / "started")
    for number in numbers:  # a second signal does not disturb the cleaning up
        process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode - 128 in numbers
    assert "nothing half-written is left" in said
    assert os.listdir(tmp_path) == ["started"]


def test_a_terminal_that_is_gone(tmp_path: Path) -> None:
    """SIGHUP comes because nobody can read any more."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITING], cwd=tmp_path, stderr=subprocess.PIPE
    )
    wait_for(tmp_path / "started")
    assert process.stderr is not None
    process.stderr.close()
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 129
    assert os.listdir(tmp_path) == ["started"]


@pytest.fixture
def restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("restored")
def test_signals_that_somebody_else_takes_are_left_alone() -> None:
    """nohup ignores SIGHUP; a program around fairij may have its own handler."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)
    with ending_cleanly():
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.usefixtures("restored")
def test_handlers_are_there_while_a_command_runs_only() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(Ended, match="SIGTERM"), ending_cleanly():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    found = []

    def elsewhere() -> None:  # a thread cannot have handlers
        with guarded():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


@pytest.mark.usefixtures("restored")
def test_a_forked_child_ends_as_if_there_were_no_handler() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with ending_cleanly():
        child = os.fork()
        if child == 0:
            signal.raise_signal(signal.SIGTERM)
            os._exit(7)
        _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM


@pytest.mark.usefixtures("restored")
def test_a_command_ends_with_the_code_of_its_signal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with pytest.raises(typer.Exit) as end, guarded():
        signal.raise_signal(signal.SIGHUP)
    assert end.value.exit_code == 129
