"""Progress on standard error: a bar that appears where the work turns out to be long, or lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fairij.method.search.dropping import Progress as Listener

LONGEST_STEP = 3600.0  # seconds; the rate is that of the steps of so long


@contextmanager
def bar(*, delay: float, clock: Callable[[], float] = time.monotonic) -> Iterator[Listener]:
    """Yield a listener that draws, once ``delay`` seconds have passed."""
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
    """A listener for where there is no terminal: a line now and then, with the time that is left.

    It begins to count with the first call, so that what was done before does not.
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
