"""Exchanges between processes that fail on all of them together.

Before each exchange, processes report errors, so that all fail together instead of hanging. A
process that fails reports its error in place of the next exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fairij.data.row_vectors import lies_in_file, new_rows
from fairij.data.rows import processes
from fairij.errors import FairIJError, InvalidInputError, ProcessError

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


class _Run:
    """Work that all processes do together, and the error that ended it.

    Code in between may reword an error or ignore it. The run is over all the same: the other
    processes no longer take part in its exchanges.
    """

    def __init__(self) -> None:
        self.ended_by: Exception | None = None
        self._depth = 0

    @contextmanager
    def under_way(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self.ended_by = None

    def end(self, error: Exception) -> None:
        if self._depth and self.ended_by is None:
            self.ended_by = error


_run = _Run()


def report_error(problem: Exception | None) -> None:
    """Tell the other processes of an error or of none; raise on every process if there is one."""
    if _run.ended_by is not None:
        raise _run.ended_by
    with _connected():
        found = torch.tensor(int(problem is not None), device=_device())
        dist.all_reduce(found)
        if int(found) == 0:
            return
        reports: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(reports, None if problem is None else _described(problem))
    number, (is_ours, text) = next((n, said) for n, said in enumerate(reports) if said is not None)
    if problem is not None and not isinstance(problem, FairIJError):
        raise _reported(problem)
    if is_ours:
        raise _reported(InvalidInputError(f"On process {number}: {text}"))
    raise _reported(
        ProcessError(
            f"Process {number} failed, and this one stopped with it: {text}. The output of process "
            f"{number} shows where it failed."
        )
    )


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
    """The results of all processes, on every process.

    ``step`` names what this process is doing, so that an error can name processes that are doing
    something else.
    """
    value = done_by_all(work)
    results: list[Any] = [None] * dist.get_world_size()
    with _connected():
        dist.all_gather_object(results, (step, value))
    _check_steps([name for name, _ in results])
    return [result for _, result in results]


def _check_steps(steps: list[str]) -> None:
    other = next((rank for rank, name in enumerate(steps) if name != steps[0]), None)
    if other is not None:
        problem = InvalidInputError(
            f"All processes must take the same steps, but process {other} is at "
            f"{steps[other] or 'another one'} and process 0 at {steps[0] or 'another one'}: make a "
            "`Shard` on all of them or on none, and run the same program on each."
        )
        raise _reported(problem)


def values_of_all(value: T) -> list[T]:
    """One value per process, on every process."""
    return [value] if processes() == 1 else collected(lambda: value)


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


def _described(problem: Exception) -> tuple[bool, str]:
    """Whether the error is one of fairij's own, and its text."""
    if isinstance(problem, FairIJError):
        return True, str(problem)
    return False, f"{type(problem).__name__}: {problem}".removesuffix(": ").removesuffix(".")


def _reported(error: Exception) -> Exception:
    setattr(error, REPORTED, True)
    _run.end(error)
    return error


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        problem = ProcessError(
            "The exchange with the other processes broke off, most likely because one of them has "
            f"ended: see their output. The error here was: {error}"
        )
        raise _reported(problem) from error


def _device() -> torch.device:
    """The device for small numbers: NCCL on its own takes them on a GPU only."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
