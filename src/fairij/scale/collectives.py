"""Exchanges between processes that fail on all of them together.

Before each exchange, processes report errors, so that none waits for one that has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fairij.data.row_vectors import lies_in_file, new_rows
from fairij.data.rows import processes
from fairij.errors import FairIJError, InvalidInputError, ProcessError
from fairij.scale.meeting import exchanging

T = TypeVar("T")
REPORTED = "reported_to_all_processes"  # set on errors that the other processes know already


def fail_together(work: Callable[[], T]) -> T:
    """Do work that all processes do; if it fails on one of them, it fails on all."""
    if processes() == 1:
        return work()
    with _run.under_way():
        try:
            done = work()
        except Exception as error:
            if _run.ended_by is None and not hasattr(error, REPORTED):
                with suppress(Exception):  # it would raise this same error
                    report_error(error)
            raise
        report_error(None)
        return done


@dataclass
class _Run:
    """Work that all processes do together. An error ends it, even if code in between ignores it."""

    ended_by: Exception | None = None
    depth: int = 0

    @contextmanager
    def under_way(self) -> Iterator[None]:
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            self.ended_by = self.ended_by if self.depth else None


_run = _Run()


def report_error(problem: Exception | None) -> None:
    """Tell the other processes of an error or of none; raise on every process if there is one."""
    if _run.ended_by is not None:
        raise _run.ended_by
    with _connected():
        # NCCL on its own takes small numbers on a GPU only
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        found = torch.tensor(int(problem is not None), device=device)
        dist.all_reduce(found)
        if int(found) == 0:
            return
        reports: list[Any] = [None] * dist.get_world_size()
        is_ours, name = isinstance(problem, FairIJError), type(problem).__name__
        text = str(problem) if is_ours else f"{name}: {problem}".removesuffix(": ")
        dist.all_gather_object(reports, None if problem is None else (is_ours, text))
    if problem is not None and not is_ours:
        raise _reported(problem)
    number, (is_ours, text) = next((n, said) for n, said in enumerate(reports) if said is not None)
    if is_ours:
        raise _reported(InvalidInputError(f"On process {number}: {text}"))
    text = (
        f"Process {number} failed, and this one stopped with it: {text.removesuffix('.')}. The "
        f"output of process {number} shows where it failed."
    )
    raise _reported(ProcessError(text))


def done_by_all(work: Callable[[], T]) -> T:
    """Do this process's part of the work; raise on every process if one of them failed."""
    done: list[T] = []
    problem: Exception | None = None
    try:
        done.append(work())
    except Exception as error:
        if hasattr(error, REPORTED):
            raise
        problem = error
    report_error(problem)
    return done[0]


def collected(work: Callable[[], T], *, step: str = "") -> list[T]:
    """The results of all processes, on every process; raises unless all are at the same step."""
    value = done_by_all(work)
    results: list[Any] = [None] * dist.get_world_size()
    with _connected():
        dist.all_gather_object(results, (step, value))
    steps = [name or "another one" for name, _ in results]
    if (other := odd_process(steps)) is not None:
        problem = InvalidInputError(
            f"All processes must take the same steps, but process {other} is at {steps[other]} and "
            f"process 0 at {steps[0]}: make a `Shard` on all of them or on none, and run the same "
            "program on each."
        )
        raise _reported(problem)
    return [result for _, result in results]


def odd_process(values: Sequence[Any]) -> int | None:
    """The first process whose value is not that of process 0."""
    return next((rank for rank, value in enumerate(values) if value != values[0]), None)


def values_of_all(value: T, *, step: str = "") -> list[T]:
    """One value per process, on every process."""
    return [value] if processes() == 1 else collected(lambda: value, step=step)


def check_agreement(facts: Callable[[], dict[str, str]]) -> None:
    """Raise on every process unless all have the same facts; does nothing on one process."""
    if processes() == 1:
        return
    by_process = collected(facts)
    for name in sorted(set().union(*by_process)):
        values = [facts_there.get(name) for facts_there in by_process]
        if (other := odd_process(values)) is not None:
            raise InvalidInputError(
                f"All processes must have the same {name}, but process {other} has "
                f"{values[other]} and process 0 has {values[0]}: load the same model, rows and "
                "settings on each."
            )


def summed(work: Callable[[], Tensor]) -> Tensor:
    """The sum over processes, in float64 so that it hardly depends on their number."""
    local = done_by_all(work)
    wide = local.double()
    with _connected():
        dist.all_reduce(wide)
    return wide.to(local.dtype)


def gathered(work: Callable[[], Tensor], counts: list[int]) -> Tensor:
    """The rows of all processes one after the other, on every process."""
    local = done_by_all(work)
    whole = new_rows(local, sum(counts), in_file=lies_in_file(local))
    for source, part in enumerate(whole.split(counts)):
        if source == dist.get_rank():
            part.copy_(local)
        if len(part):
            with _connected():
                dist.broadcast(part, source)
    return whole


def _reported(error: Exception) -> Exception:
    setattr(error, REPORTED, True)
    if _run.depth and _run.ended_by is None:
        _run.ended_by = error
    return error


@contextmanager
def _connected() -> Iterator[None]:
    try:
        with exchanging():
            yield
    except ProcessError as error:
        raise _reported(error) from error.__cause__
