"""Progress: silent unless asked, on standard error, never on standard output."""

from __future__ import annotations

import re

import pytest

from fairij.method.run import silent, timed
from fairij.mitigator import shown as shown_if
from fairij.report.progress import bar, bar_or_lines, lines


def test_a_bar_that_is_asked_for_draws_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with shown_if(True) as progress:
        progress("candidates", 0, 40)
        progress("candidates", 40, 40)
    shown = capsys.readouterr()
    assert "candidates" in shown.err
    assert shown.out == ""


def test_without_a_terminal_short_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    for verbose in ("auto", False):
        with shown_if(verbose) as progress:
            assert (progress is silent) is (verbose is False)
            for done in (1, 2, 40):
                progress("candidates", done, 40)
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_long_work_says_a_line_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(lines, "__kwdefaults__", {**lines.__kwdefaults__, "clock": lambda: now[0]})
    with shown_if("auto") as progress:
        for seconds, done in ((0, 0), (59, 9), (61, 10), (100, 20), (121, 26), (150, 40)):
            now[0] = seconds
            progress("candidates", done, 40)
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [
        "candidates: 25%, 3 minutes left",
        "candidates: 65%, 1 minute left",
    ]
    assert shown.out == ""


def test_short_work_draws_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with bar(delay=60.0) as progress:
        progress("candidates", 1, 40)
    assert "candidates" not in capsys.readouterr().err


def test_the_remaining_time_is_shown_where_steps_take_minutes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    now = [0.0]
    with bar(delay=0.0, clock=lambda: now[0]) as progress:
        for step in range(5):
            now[0] = 75.0 * step
            progress("adult", step, 10)
    shown = re.sub("\x1b[^a-zA-Z]*[a-zA-Z]", "", capsys.readouterr().err)
    assert "0:07:30" in shown  # six more of 75 seconds


def test_where_there_is_no_terminal_a_line_now_and_then_has_the_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    listen = lines(every=60.0, clock=lambda: now[0])
    for minutes, done in ((0.0, 40), (0.5, 45), (1.0, 50), (1.5, 60), (4.0, 80), (5.0, 100)):
        now[0] = 60 * minutes
        listen("adult", done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "adult: 50%, 5 minutes left",  # 10 in a minute; those before the first call do not count
        "adult: 80%, 2 minutes left",
        "adult: 100%, 0 minutes left",
    ]
    with bar_or_lines() as progress:
        assert progress is not silent


def test_a_phase_that_comes_twice_is_counted_twice_and_one_that_fails_is_counted_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([1.0, 3.0, 10.0, 14.0])
    monkeypatch.setattr("fairij.method.run.time.perf_counter", lambda: next(clock))
    seconds = {"other": 1.0}
    with timed(seconds, "audits"):
        pass
    with pytest.raises(ZeroDivisionError), timed(seconds, "audits"):
        _ = 1 / 0
    assert seconds == {"other": 1.0, "audits": 6.0}
