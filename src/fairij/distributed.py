"""Several processes, each with its own rows, on `torch.distributed`.

Every process runs the same program on a `Shard`. Vectors with one entry a row are known to all;
what is dear, the products with the Jacobian, each process makes for its own rows only, and sums are
made by one all-reduce. All processes therefore see the same numbers and take the same steps.
"""

from __future__ import annotations

import atexit
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from fairij.errors import FairIJError, InvalidInputError
from fairij.fairness.arrays import unwrapped
from fairij.models.base import Evaluator, Linearization, Middle, Some, counted_from
from fairij.models.delegating import Delegating
from fairij.models.rows import n_rows, part_of, take_rows
from fairij.models.sources import Name, Source, joined_tables, named_column

T = TypeVar("T")


def start() -> int:
    """Join the processes that `torchrun` started, if there are any; this process's number."""
    if "RANK" in os.environ and not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group("cpu:gloo,cuda:nccl")
        else:
            dist.init_process_group("gloo")
        atexit.register(dist.destroy_process_group)
    return dist.get_rank() if dist.is_initialized() else 0


class Shard(Source):
    """The rows of one process; the table is those of all processes, one after the other.

    Labels and weights of a `Shard` are given for this process's rows too.
    """

    def __init__(self, X: Any) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise InvalidInputError(
                "A `Shard` needs several processes that know of each other: start them with "
                "`torchrun` and call `fairij.distributed.start()` first."
            )
        self.local = X
        self.rank = dist.get_rank()
        self.counts: list[int] = together(lambda: _some_rows(X))
        self.start = sum(self.counts[: self.rank])
        self.shape = (sum(self.counts), *tuple(getattr(X, "shape", (0,)))[1:])
        self.columns = getattr(X, "columns", None)

    @classmethod
    def of(cls, X: Any) -> Shard:
        """A share, for this process, of rows that all processes can read."""
        rank, size, rows = dist.get_rank(), dist.get_world_size(), n_rows(X)
        return cls(part_of(X, np.arange(rows * rank // size, rows * (rank + 1) // size)))

    @property
    def own(self) -> slice:
        return slice(self.start, self.start + self.counts[self.rank])

    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        raise InvalidInputError("A `Shard` has only its own rows at hand; see `Shard.local`.")

    def column(self, name: Name) -> NDArray[Any]:
        return gathered_values(named_column(self.local, name))

    def take(self, index: Any) -> Any:
        """Some rows of all processes, on every process."""
        wanted = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
        own = wanted[(wanted >= self.own.start) & (wanted < self.own.stop)] - self.start
        parts = together(lambda: take_rows(self.local, own) if len(own) else None)
        owner = np.searchsorted(np.cumsum(self.counts), wanted, side="right")
        table = joined_tables([part for part in parts if part is not None])
        return take_rows(table, np.argsort(np.argsort(owner, kind="stable"), kind="stable"))

    def subset(self, index: NDArray[np.int64]) -> Shard:
        own = (index >= self.own.start) & (index < self.own.stop)
        return Shard(part_of(self.local, index[own] - self.start))


def _some_rows(X: Any) -> int:
    rows = n_rows(X)
    if rows == 0:
        raise InvalidInputError("Every process needs at least one row of its own, got none.")
    return rows


class DistributedEditable(Delegating):
    """An `Editable` that also takes a `Shard`."""

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:
        if not isinstance(X, Shard):
            return self._inner.linearize(X, keep=keep)
        part = in_unison(lambda: self._inner.linearize(X.local, keep=keep))
        place = torch.arange(len(X), device=self.theta.device)
        return ShardedLinearization(part, X.counts, place, self.theta)

    def evaluator(self, X: Any) -> Evaluator:
        if not isinstance(X, Shard):
            return self._inner.evaluator(X)
        return ShardedEvaluator(self._inner.evaluator(X.local), X.counts)

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        if not isinstance(X, Shard):
            return self._inner.outputs(X, theta)
        return gathered(in_unison(lambda: self._inner.outputs(X.local, theta)), X.counts)


class ShardedLinearization:
    """``J r`` and ``J^T u`` of the rows of all processes.

    The rows, process after process, stand at ``place`` among all rows of this linearisation.
    """

    def __init__(
        self, local: Linearization, counts: list[int], place: Tensor, theta: Tensor
    ) -> None:
        self._local, self._counts, self._place, self._theta = local, counts, place, theta
        self._rank = dist.get_rank()
        first = sum(counts[: self._rank])
        self._own = place[first : first + counts[self._rank]]
        self._in_order = bool((place[1:] > place[:-1]).all())

    @property
    def mode(self) -> str:
        return str(getattr(self._local, "mode", "exact"))

    @cached_property
    def outputs(self) -> Tensor:
        return self._spread(in_unison(lambda: self._local.outputs))

    def jvp(self, direction: Tensor) -> Tensor:
        return self._spread(self._local.jvp(direction))

    def vjp(self, weights: Tensor) -> Tensor:
        return self._sum(lambda: self._local.vjp(weights[self._own]))

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        if not self._in_order:  # a middle takes rows that lie side by side
            return self.vjp(middle(self.jvp(direction), slice(0, len(self._place))))
        start = int(self._own[0]) if len(self._own) else 0

        def shifted(moved: Tensor, rows: Some) -> Tensor:
            return middle(moved, counted_from(start, rows))

        return self._sum(lambda: self._local.sandwich(direction, shifted))

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return self._sum(lambda: self._local.second_order(weights[self._own], direction))

    def rows(self, index: Tensor) -> Tensor:
        here, where = self._here(index)
        outputs = self.outputs[0].numel()
        found = self._theta.new_zeros(len(index), outputs, len(self._theta))
        if len(here):
            found[where] = self._local.rows(here)
        dist.all_reduce(found)
        return found

    def restrict(self, index: Tensor) -> ShardedLinearization:
        here, where = self._here(index)
        parts = together(lambda: where.tolist())
        place = torch.tensor([n for part in parts for n in part], device=index.device)
        local = self._local.restrict(here) if len(here) else self._local
        return ShardedLinearization(local, [len(p) for p in parts], place, self._theta)

    def moved(self, by: Tensor) -> ShardedLinearization:
        return ShardedLinearization(self._local.moved(by), self._counts, self._place, self._theta)

    def sums(self, weights: Tensor, pieces: list[Tensor]) -> Tensor:
        """``J^T u`` over each piece of the rows alone, ``(D, K)``."""
        here = [self._here(index)[0] for index in pieces]
        own, nothing = weights[self._own], torch.zeros_like(self._theta)
        at_once = getattr(self._local, "sums", None)
        if at_once is not None:
            found = at_once(own, here)
        else:
            restrict = self._local.restrict
            parts = [restrict(i).vjp(own[i]) if len(i) else nothing for i in here]
            found = torch.stack(parts, 1)
        return summed(found)

    def _here(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Which of this process's rows are asked for, and at which places of ``index``."""
        number = torch.full((len(self._place),), -1, device=index.device)
        number[self._own] = torch.arange(len(self._own), device=index.device)
        found = number[index]
        where = torch.nonzero(found >= 0)[:, 0]
        return found[where], where

    def _sum(self, local: Callable[[], Tensor]) -> Tensor:
        return summed(local() if len(self._own) else torch.zeros_like(self._theta))

    def _spread(self, local: Tensor) -> Tensor:
        own = local if len(self._own) else local[:0]
        whole = gathered(own, self._counts)
        if self._in_order:
            return whole
        spread = torch.empty_like(whole)
        spread[self._place] = whole
        return spread


class ShardedEvaluator:
    """The outputs of many edits on the rows of all processes."""

    def __init__(self, local: Evaluator, counts: list[int]) -> None:
        self._local, self._counts = local, counts

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        z = self._local.along(direction, scales)
        return gathered(z.transpose(0, 1), self._counts).transpose(0, 1)


def summed(local: Tensor) -> Tensor:
    """The sum over processes, made in float64 so that their number hardly shows."""
    wide = local.double()
    dist.all_reduce(wide)
    return wide.to(local.dtype)


def gathered(local: Tensor, counts: list[int]) -> Tensor:
    """The rows of all processes one after the other, on every process."""
    whole = local.new_empty(sum(counts), *local.shape[1:])
    for source, part in enumerate(whole.split(counts)):
        if source == dist.get_rank():
            part.copy_(local)
        if len(part):
            dist.broadcast(part, source)
    return whole


def gathered_values(values: Any) -> Any:
    """Labels, weights or groups of all processes, one after the other."""
    return np.concatenate(together(lambda: np.asarray(unwrapped(values))))


def whole_column(X: Any, values: Any) -> Any:
    """``values`` for all rows: by name from a source, from all processes for a `Shard`."""
    if isinstance(X, Shard) and values is not None:
        return X.column(values) if isinstance(values, (str, int)) else gathered_values(values)
    return named_column(X, values)


def shared_out(X: Any, *columns: Any) -> tuple[Any, ...]:
    """Rows that every process holds, and their columns: on several processes a share of each."""
    if processes() == 1:
        return X, *columns
    shard = Shard.of(X)
    index = np.arange(shard.own.start, shard.own.stop)
    return shard, *(None if c is None else take_rows(c, index) for c in columns)


def together(work: Callable[[], T]) -> list[T]:
    """What the work gives on each process; an error on one is raised on all of them."""
    value: T | None = None
    problem: str | None = None
    try:
        value = work()
    except FairIJError as error:
        problem = str(error)
    answers: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(answers, (problem, value))
    for rank, (message, _) in enumerate(answers):
        if message is not None:
            raise InvalidInputError(f"On process {rank}: {message}")
    return [found for _, found in answers]


def in_unison(work: Callable[[], T]) -> T:
    """The work of this process, once it is known to have gone well on all of them."""
    kept: list[T] = []

    def quietly() -> None:
        kept.append(work())

    together(quietly)
    return kept[0]


def processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def own_number() -> int:
    return dist.get_rank() if processes() > 1 else 0


def from_all(value: T) -> list[T]:
    """The values of all processes, or of the only one."""
    return [value] if processes() == 1 else together(lambda: value)


def check_agreement(facts: Callable[[], dict[str, str]]) -> None:
    """Raise on every process unless all have the same facts; does nothing on one process."""
    if processes() == 1:
        return
    told = together(facts)
    for name in sorted(set().union(*told)):
        values = [facts_there.get(name) for facts_there in told]
        other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            raise InvalidInputError(
                f"All processes must have the same {name}, but process {other} has "
                f"{values[other]} and process 0 has {values[0]}: load the same model, rows and "
                "settings on each."
            )


def shared_seed(seed: int) -> int:
    """The first process's seed, on all of them."""
    if processes() == 1:
        return seed
    told: list[int] = together(lambda: seed)
    return told[0]


def fingerprint(values: Tensor) -> str:
    """A short hash of a tensor."""
    content = values.detach().cpu().contiguous().numpy().tobytes()
    return hashlib.sha256(content).hexdigest()[:16]
