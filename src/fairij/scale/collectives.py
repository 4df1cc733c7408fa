"""Processes that go on together or not at all.

Every exchange begins with a word from each process on whether all is well there. A process on which
a run fails gives its word in place of the next exchange: so the others end with an error that says
why, instead of waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fairij.data.processes import processes
from fairij.data.row_vectors import lies_in_file, new_rows
from fairij.errors import FairIJError, InvalidInputError, ProcessError

P = ParamSpec("P")
T = TypeVar("T")
KNOWN = "known_to_all_processes"  # set on errors that need not be told any more


def all_or_none(work: Callable[P, T]) -> Callable[P, T]:
    """Work that all processes do: where it fails on one of them, it fails on all."""

    @wraps(work)
    def guarded(*args: P.args, **given: P.kwargs) -> T:
        if processes() == 1:
            return work(*args, **given)
        with _run.under_way():
            try:
                done = work(*args, **given)
            except Exception as error:
                if _run.ended_by is None and not hasattr(error, KNOWN):
                    with suppress(Exception):  # what it raises here is this error again
                        all_well(error)
                raise
            all_well()
            return done

    return guarded


class _Run:
    """What all processes do together, and the error that ended it.

    Code in between may give an error other words, or think nothing of it: the run is over all the
    same, and the other processes no longer take part in its exchanges.
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


def all_well(problem: Exception | None = None) -> None:
    """Raise on every process if there is a problem on any of them."""
    if _run.ended_by is not None:
        raise _run.ended_by
    with _connected():
        found = torch.tensor(int(problem is not None), device=_device())
        dist.all_reduce(found)
        if int(found) == 0:
            return
        told: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(told, None if problem is None else _described(problem))
    number, (is_ours, text) = next((n, said) for n, said in enumerate(told) if said is not None)
    if problem is not None and not isinstance(problem, FairIJError):
        raise _known(problem)
    if is_ours:
        raise _known(InvalidInputError(f"On process {number}: {text}"))
    raise _known(
        ProcessError(
            f"Process {number} failed, and this one has stopped with it: {text}. See what process "
            f"{number} wrote for where it happened."
        )
    )


def in_unison(work: Callable[[], T]) -> T:
    """The work of this process, once it is known to have gone well on all of them."""
    done: list[T] = []
    problem: Exception | None = None
    try:
        done.append(work())
    except Exception as error:
        if hasattr(error, KNOWN):
            raise
        problem = error
    all_well(problem)
    return done[0]


def together(work: Callable[[], T], *, step: str = "") -> list[T]:
    """What the work gives on each process; an error on one is raised on all of them.

    ``step`` says what this process is about, so that those at another step are told apart.
    """
    value = in_unison(work)
    answers: list[Any] = [None] * dist.get_world_size()
    with _connected():
        dist.all_gather_object(answers, (step, value))
    _check_steps([name for name, _ in answers])
    return [answer for _, answer in answers]


def _check_steps(steps: list[str]) -> None:
    other = next((rank for rank, name in enumerate(steps) if name != steps[0]), None)
    if other is not None:
        problem = InvalidInputError(
            f"All processes must take the same steps, but process {other} is at "
            f"{steps[other] or 'another one'} and process 0 at {steps[0] or 'another one'}: make a "
            "`Shard` on all of them or on none, and run the same program on each."
        )
        raise _known(problem)


def from_all(value: T) -> list[T]:
    """The values of all processes, or of the only one."""
    return [value] if processes() == 1 else together(lambda: value)


def summed(work: Callable[[], Tensor]) -> Tensor:
    """The sum over processes, made in float64 so that their number hardly shows."""
    local = in_unison(work)
    wide = local.double()
    with _connected():
        dist.all_reduce(wide)
    return wide.to(local.dtype)


def gathered(work: Callable[[], Tensor], counts: list[int]) -> Tensor:
    """The rows of all processes one after the other, on every process."""
    local = in_unison(work)
    whole = new_rows(local, sum(counts), in_file=lies_in_file(local))
    for source, part in enumerate(whole.split(counts)):
        if source == dist.get_rank():
            part.copy_(local)
        if len(part):
            with _connected():
                dist.broadcast(part, source)
    return whole


def _described(problem: Exception) -> tuple[bool, str]:
    if isinstance(problem, FairIJError):
        return True, str(problem)
    return False, f"{type(problem).__name__}: {problem}".removesuffix(": ").removesuffix(".")


def _known(error: Exception) -> Exception:
    setattr(error, KNOWN, True)
    _run.end(error)
    return error


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        problem = ProcessError(
            "The exchange with the other processes broke off, most likely because one of them has "
            f"ended: see what they wrote. Here it showed as: {error}"
        )
        raise _known(problem) from error


def _device() -> torch.device:
    """Where small numbers are exchanged: NCCL alone takes them on a GPU only."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
