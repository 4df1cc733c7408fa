"""A progress bar on standard error that appears only when the work turns out to be long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fairij.search import Progress as Listener


@contextmanager
def bar(*, delay: float) -> Iterator[Listener]:
    """Yield a listener that draws, once ``delay`` seconds have passed."""
    shown = Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    start = time.monotonic()
    tasks = {}
    running = False

    def listen(phase: str, done: int, total: int) -> None:
        nonlocal running
        if not running and time.monotonic() - start >= delay:
            shown.start()
            running = True
        if phase not in tasks:
            tasks[phase] = shown.add_task(phase, total=total)
        shown.update(tasks[phase], completed=done, total=total)

    try:
        yield listen
    finally:
        shown.stop()
