"""Progress on standard error: a bar that appears if the work takes long, or lines of text."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairij.method.run import Progress as Listener
from fairij.method.run import silent

LONGEST_STEP = 3600.0  # seconds over which the rate is averaged


def is_shown(verbose: bool | str) -> bool:
    """Whether to draw a bar: if asked to, or if "auto" and standard error is a terminal."""
    return verbose is True or (verbose == "auto" and sys.stderr.isatty())


@contextmanager
def reporter(verbose: bool | str, *, or_lines: bool = False) -> Iterator[Listener]:
    """A bar if it is to be shown; else lines now and then if wanted; else nothing."""
    if is_shown(verbose):
        with bar(delay=0.0 if verbose is True else 2.0) as listener:
            yield listener
    else:
        yield lines() if or_lines and verbose else silent


@contextmanager
def bar(*, delay: float, clock: Callable[[], float] = time.monotonic) -> Iterator[Listener]:
    """Yield a listener that draws a bar after ``delay`` seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    shown = Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        speed_estimate_period=LONGEST_STEP,
        get_time=clock,
    )
    start = clock()
    tasks = {}
    running = False

    def listen(phase: str, done: int, total: int) -> None:
        nonlocal running
        if not running and clock() - start >= delay:
            shown.start()
            running = True
        if phase not in tasks:
            tasks[phase] = shown.add_task(phase, total=total)
        shown.update(tasks[phase], completed=done, total=total)

    try:
        yield listen
    finally:
        shown.stop()


def lines(*, every: float = 60.0, clock: Callable[[], float] = time.monotonic) -> Listener:
    """A listener that prints a line now and then, with the time left, if there is no terminal.

    The rate counts only what is done after the first call.
    """
    begun: dict[str, tuple[float, int]] = {}
    said = clock()

    def listen(phase: str, done: int, total: int) -> None:
        nonlocal said
        now = clock()
        start, at = begun.setdefault(phase, (now, done))
        if done > at and (now - said >= every or done >= total):
            left = (now - start) / (done - at) * (total - done) / 60
            print(f"{phase}: {done / total:.0%}, {left:.0f} minutes left", file=sys.stderr)
            said = now

    return listen
