"""Time and memory of one piece of work, measured in the same way for every tool."""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Measured(Generic[T]):
    """What the work gave, its best time, and by how much memory grew at its peak."""

    value: T
    seconds: float
    peak_mb: float


def measure(work: Callable[[], T], *, repeats: int = 3, enough: float = 20.0) -> Measured[T]:
    """Run the work once and read its peak, then again while that is cheap; keep the best time.

    Work is repeated up to `repeats` times, and not after `enough` seconds in all: what another
    process takes away from one run is then not charged to a tool, while slow tools run once.
    """
    before = held()
    value, seconds = _timed(work)
    peak = _peak_mb() - before
    times = [seconds]
    while len(times) < repeats and sum(times) < enough:
        times.append(_timed(work)[1])
    return Measured(value, min(times), max(peak, 0.0))


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = perf_counter()
    value = work()
    return value, perf_counter() - start


def held() -> float:
    """The memory held now, in MB, from where a peak is measured; what was freed is given back."""
    with suppress(AttributeError, OSError):  # not the C library that has it
        ctypes.CDLL(None).malloc_trim(0)
    return _start_peak()


def _start_peak() -> float:
    """Give the memory held now, in MB; on Linux also forget the peak of what came before."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status_mb("VmRSS")
    except OSError:
        return _peak_mb()


def _peak_mb() -> float:
    try:
        return _status_mb("VmHWM")
    except OSError:
        unit = 1e6 if sys.platform == "darwin" else 1e3
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _status_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(field + ":"))
    return int(line.split()[1]) * 1.024e-3
