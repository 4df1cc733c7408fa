"""Runs a study: units of work, done in any order and number of processes, each recorded once.

A study that was stopped goes on where it stopped; one unit's failure does not stop the others.
"""

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
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fairij._version import __version__, code_hash
from fairij.data.checks import whole_number
from fairij.errors import FairIJError, InvalidInputError
from fairij.method.progress import silent
from fairij.method.search.dropping import Progress
from fairij_studies.records import (
    UNIT,
    append_unit,
    check_plain,
    cut_torn_end,
    identity,
    read_records,
    record_frame,
    sole_writer,
)

RESULTS = "results.jsonl"
Scalar = str | int | float | bool | None


class StudyError(FairIJError):
    """Units of a study failed; what the others found is recorded."""


@dataclass(frozen=True)
class Unit:
    """One piece of work, done whole or not at all.

    Parameters
    ----------
    key : what tells it from the other units; part of each of its records
    function : of a module's top level; returns its records, one at least
    arguments : its keyword arguments
    cost : what it takes beside other units, for the remaining time
    """

    key: Mapping[str, Scalar]
    function: Callable[..., Sequence[Mapping[str, Any]]]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    cost: float = 1.0


@dataclass(frozen=True)
class Study:
    """What is to be done, and how its README and figures are drawn from the records alone.

    Parameters
    ----------
    name : as in ``fairij reproduce NAME``
    units : of the whole study, or of its quick form where called with True
    draw : writes README.md and figures into a folder
    source : says what data are read, as records have it in ``data_source``
    """

    name: str
    units: Callable[[bool], Sequence[Unit]]
    draw: Callable[[pd.DataFrame, Path], None]
    source: Callable[[], str] | None = None


@dataclass(frozen=True)
class Done:
    """What came of one unit: records, or the text of its error."""

    records: Sequence[Mapping[str, Any]]
    seconds: float
    cpu_seconds: float
    error: str | None = None


def run_study(
    study: Study,
    folder: Path | str,
    *,
    quick: bool = False,
    processes: int = 1,
    only: Callable[[Unit], bool] | None = None,
    progress: Progress = silent,
) -> pd.DataFrame:
    """Do what is not yet recorded in ``folder/results.jsonl``; return all records.

    Raises `StudyError` at the end if units failed; a further run tries them again.

    Parameters
    ----------
    quick : the study's short form; its records are kept apart from those of the whole one
    processes : workers, each with one thread; 1 works in this process
    only : which units to do, all unless given
    progress : hears ``(study, cost done, cost of all)`` after each unit
    """
    whole_number("processes", processes, 1)
    code_hash()  # of what was loaded, whatever is written meanwhile
    folder = Path(folder)
    results = folder / RESULTS
    units = [unit for unit in study.units(quick) if only is None or only(unit)]
    _check_distinct(units)
    with sole_writer(folder):
        cut_torn_end(results)
        earlier = [r for r in read_records(results) if r["quick"] == quick]
        _check_same_data(study, earlier, folder)
        recorded = {r[UNIT] for r in earlier}
        waiting = [unit for unit in units if identity(unit.key) not in recorded]
        total = round(sum(unit.cost for unit in units))
        reached = sum(unit.cost for unit in units) - sum(unit.cost for unit in waiting)
        progress(study.name, round(reached), total)
        failed: list[str] = []
        for unit, done in _finished(waiting, processes):
            reached += unit.cost
            if done.error is None:
                append_unit(results, _full_records(study, unit, done, quick))
            else:
                failed.append(f"{identity(unit.key)}:\n{done.error}")
            progress(study.name, round(reached), total)
    if failed:
        raise StudyError(
            f"{len(failed)} of the {len(waiting)} units that were left of the study {study.name!r} "
            f"failed; all others are recorded in {results}. Run the study again to try them once "
            "more.\n" + "\n".join(failed)
        )
    return load_records(folder, quick=quick)


def _check_same_data(study: Study, earlier: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Raise where records of other data would be gone on from."""
    read = {r["data_source"] for r in earlier if "data_source" in r}
    if study.source is None or not read:
        return
    now = study.source()
    if read != {now}:
        raise InvalidInputError(
            f"{folder} holds records of other data ({', '.join(sorted(read))}) than are read now "
            f"({now}): give another folder, or the data that it was begun with."
        )


def load_records(folder: Path | str, *, quick: bool = False) -> pd.DataFrame:
    """The records of a study, without running anything."""
    records = read_records(Path(folder) / RESULTS)
    return record_frame([record for record in records if record["quick"] == quick])


def _full_records(study: Study, unit: Unit, done: Done, quick: bool) -> list[dict[str, Any]]:
    return [
        {
            "study": study.name,
            "quick": quick,
            "version": __version__,
            "code": code_hash(),
            **unit.key,
            "seconds": done.seconds,  # the unit's, unless the record says its own
            **record,
            "unit_seconds": done.seconds,
            "unit_cpu_seconds": done.cpu_seconds,
            UNIT: identity(unit.key),
        }
        for record in done.records
    ]


def _finished(units: Sequence[Unit], processes: int) -> Iterator[tuple[Unit, Done]]:
    """Units as they get done, in this process or in several."""
    if processes == 1:
        with _one_thread():
            for unit in units:
                yield unit, _do(unit)
        return
    waiting = list(reversed(units))
    while waiting:  # a new pool each time a worker died
        yield from _by_workers(waiting, processes)


def _by_workers(waiting: list[Unit], processes: int) -> Iterator[tuple[Unit, Done]]:
    """Take units off the end of ``waiting`` until there are none left or the pool is broken."""
    spawn = multiprocessing.get_context("spawn")
    running: dict[Future[Done], Unit] = {}
    broken = False
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_start_worker) as pool:
        try:
            while running or (waiting and not broken):
                while waiting and not broken and len(running) < processes:
                    try:
                        future = pool.submit(_do, waiting[-1])
                    except BrokenProcessPool:
                        broken = True
                    else:
                        running[future] = waiting.pop()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    broken = broken or isinstance(future.exception(), BrokenProcessPool)
                    yield running.pop(future), _result(future)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _result(future: Future[Done]) -> Done:
    try:
        return future.result()
    except Exception as error:  # the worker died, or its answer could not be sent
        return Done([], 0.0, 0.0, f"{type(error).__name__}: {error}")


def _do(unit: Unit) -> Done:
    start, cpu_start = time.perf_counter(), time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they would be repeated for every seed
            records = list(unit.function(**unit.arguments))
        if not records:
            raise StudyError("A unit must return at least one record, got none.")
        check_plain(records)
        error = None
    except Exception:
        records, error = [], traceback.format_exc()
    return Done(records, time.perf_counter() - start, time.process_time() - cpu_start, error)


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


def _check_distinct(units: Sequence[Unit]) -> None:
    seen: set[str] = set()
    for unit in units:
        name = identity(unit.key)
        if name in seen:
            raise InvalidInputError(f"Every unit must have a key of its own, got {name} twice.")
        seen.add(name)
