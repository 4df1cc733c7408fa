"""Work spread over processes of one thread each, and a line that says which machine did it."""

from __future__ import annotations

import multiprocessing
import os
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch

Case = TypeVar("Case")
Found = TypeVar("Found")


def spread(work: Callable[[Case], Found], cases: Iterable[Case], processes: int) -> Iterator[Found]:
    """Yield what `work` returns for each case, in their order, however many processes there are."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=one_thread) as pool:
        yield from pool.map(work, cases)


def one_thread() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def cpu_seconds() -> float:
    """Return the processor time of this process and of those that it has ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def machine() -> str:
    """Return the processor, and the versions that results depend on."""
    parts = [platform.machine(), *_processor(), f"Python {platform.python_version()}"]
    return ", ".join([*parts, "one thread a process", f"torch {torch.__version__}"])


def _processor() -> list[str]:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return [name for name in names[:1] if name != "unknown"]
