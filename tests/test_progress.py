"""Progress: silent unless asked, on standard error, never on standard output."""

from __future__ import annotations

import pytest

from fairij.progress import reporter, silent
from fairij.report.progress import bar


def test_a_bar_that_is_asked_for_draws_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with reporter(True) as progress:
        progress("candidates", 0, 40)
        progress("candidates", 40, 40)
    shown = capsys.readouterr()
    assert "candidates" in shown.err
    assert shown.out == ""


def test_without_a_terminal_auto_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    for verbose in ("auto", False):
        with reporter(verbose) as progress:
            assert progress is silent
            progress("candidates", 1, 40)
    assert capsys.readouterr() == ("", "")


def test_short_work_draws_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with bar(delay=60.0) as progress:
        progress("candidates", 1, 40)
    assert "candidates" not in capsys.readouterr().err
