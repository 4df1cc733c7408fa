"""Progress of long work, told to whoever listens; nothing is printed from here."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fairij.method.search.dropping import Progress


def silent(phase: str, done: int, total: int) -> None:
    """Say nothing."""


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Add what the work in the block takes to the phase's seconds."""
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - start


@contextmanager
def reporter(verbose: bool | str, *, lines: bool = False) -> Iterator[Progress]:
    """A bar on the terminal when asked for (or "auto" and there is a terminal), else silence.

    ``lines``: where there is no terminal, a line now and then instead of silence.
    """
    if verbose is True or (verbose == "auto" and sys.stderr.isatty()):
        from fairij.report.progress import bar

        with bar(delay=0.0 if verbose is True else 2.0) as progress:
            yield progress
    elif lines and verbose:
        from fairij.report import progress as written

        yield written.lines()
    else:
        yield silent
