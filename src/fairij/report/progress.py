"""Progress on standard error: a bar that appears if the work takes long, or lines of text."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from fairij.method.run import Progress as Listener

LONGEST_STEP = 3600.0  # seconds over which the rate is averaged


def bar_or_lines() -> AbstractContextManager[Listener]:
    """A bar on a terminal; else lines now and then."""
    return bar(delay=2.0) if sys.stderr.isatty() else nullcontext(lines())


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


def lines(
    *, every: float = 60.0, ends: bool = True, clock: Callable[[], float] = time.monotonic
) -> Listener:
    """A listener that prints a line now and then, with the time left, if there is no terminal.

    The rate counts only what is done after the first call. ``ends``: also a line when a phase ends.
    """
    begun: dict[str, tuple[float, int]] = {}
    said = clock()

    def listen(phase: str, done: int, total: int) -> None:
        nonlocal said
        now = clock()
        start, at = begun.setdefault(phase, (now, done))
        if done > at and (now - said >= every or (ends and done >= total)):
            left = (now - start) / (done - at) * (total - done) / 60
            unit = "minute" if round(left) == 1 else "minutes"
            print(f"{phase}: {done / total:.0%}, {left:.0f} {unit} left", file=sys.stderr)
            said = now

    return listen
