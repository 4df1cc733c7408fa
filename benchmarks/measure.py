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
    """The result of the work, its best time, and the peak growth of memory."""

    value: T
    seconds: float
    peak_mb: float


def measure(
    work: Callable[[], T],
    *,
    repeats: int = 3,
    enough: float = 20.0,
    clock: Callable[[], float] = perf_counter,
) -> Measured[T]:
    """Run the work once and read its peak memory, then repeat it while that is cheap.

    Work runs at most `repeats` times, and not again after `enough` seconds in all. The best time
    counts, so that other processes disturb it less. Slow tools run once. `process_time` as the
    clock leaves out the time that other processes had the processor.
    """
    before = held()
    value, seconds = _timed(work, clock)
    peak = _peak_mb() - before
    times = [seconds]
    while len(times) < repeats and sum(times) < enough:
        times.append(_timed(work, clock)[1])
    return Measured(value, min(times), max(peak, 0.0))


def _timed(work: Callable[[], T], clock: Callable[[], float]) -> tuple[T, float]:
    start = clock()
    value = work()
    return value, clock() - start


def held() -> float:
    """Return the memory held now, in MB, after freed memory was given back to the system."""
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    return _start_peak()


def _start_peak() -> float:
    """Return the memory held now, in MB. On Linux, also reset the peak."""
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
