"""Do units of work, in this process or in several."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fairij.errors import FairIJError
from fairij_studies.records import check_plain

Scalar = str | int | float | bool | None


class StudyError(FairIJError):
    """Units of a study failed. The records of the other units are kept."""


@dataclass(frozen=True)
class Unit:
    """One piece of work, recorded completely or not at all.

    Parameters
    ----------
    key : mapping of str to scalar
        Distinguishes the unit from the others. Every record of the unit contains it.
    function : callable
        A function at the top level of a module. It returns at least one record.
    arguments : mapping of str to object, default={}
        Keyword arguments of the function.
    cost : float, default=1.0
        Cost relative to other units. It is used to estimate the remaining time.
    """

    key: Mapping[str, Scalar]
    function: Callable[..., Sequence[Mapping[str, Any]]]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    cost: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """The records of one unit, or the text of its error."""

    records: Sequence[Mapping[str, Any]]
    seconds: float
    cpu_seconds: float
    error: str | None = None


def work_through(units: Sequence[Unit], processes: int) -> Iterator[tuple[Unit, Outcome]]:
    """Yield every unit with its outcome, as soon as it is done."""
    if processes == 1:
        with _one_thread():
            for unit in units:
                yield unit, _outcome(unit)
        return
    waiting = list(reversed(units))
    while waiting:  # a new pool whenever a worker has died
        yield from _by_workers(waiting, processes)


def _by_workers(waiting: list[Unit], processes: int) -> Iterator[tuple[Unit, Outcome]]:
    """Take units off the end of ``waiting`` until it is empty or the pool is broken."""
    spawn = multiprocessing.get_context("spawn")
    running: dict[Future[Outcome], Unit] = {}
    broken = False
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_start_worker) as pool:
        try:
            while running or (waiting and not broken):
                while waiting and not broken and len(running) < processes:
                    try:
                        future = pool.submit(_outcome, waiting[-1])
                    except BrokenProcessPool:
                        broken = True
                    else:
                        running[future] = waiting.pop()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    broken = broken or isinstance(future.exception(), BrokenProcessPool)
                    yield running.pop(future), _received(future)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _received(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except Exception as error:  # the worker died, or its records could not be sent
        return Outcome([], 0.0, 0.0, f"{type(error).__name__}: {error}")


def _outcome(unit: Unit) -> Outcome:
    start, cpu_start = time.perf_counter(), time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # every seed would repeat them
            records = list(unit.function(**unit.arguments))
        if not records:
            raise StudyError("A unit must return at least one record, got none.")
        check_plain(records)
        error = None
    except Exception:
        records, error = [], traceback.format_exc()
    return Outcome(records, time.perf_counter() - start, time.process_time() - cpu_start, error)


def _start_worker() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    threadpool_limits(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
