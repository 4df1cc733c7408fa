"""Progress: silent unless asked, on standard error, never on standard output."""

from __future__ import annotations

import pytest

from fairij.progress import reporter, silent, timed
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


def test_a_phase_that_comes_twice_is_counted_twice_and_one_that_fails_is_counted_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([1.0, 3.0, 10.0, 14.0])
    monkeypatch.setattr("fairij.progress.time.perf_counter", lambda: next(clock))
    seconds = {"other": 1.0}
    with timed(seconds, "audits"):
        pass
    with pytest.raises(ZeroDivisionError), timed(seconds, "audits"):
        _ = 1 / 0
    assert seconds == {"other": 1.0, "audits": 6.0}
