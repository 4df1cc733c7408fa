"""Progress of long work, told to a listener; nothing is printed here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""A listener: called with the phase, the steps done, and the steps in all."""


def silent(phase: str, done: int, total: int) -> None:
    """Say nothing."""


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Add the time that the block takes to ``seconds[phase]``."""
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - start
