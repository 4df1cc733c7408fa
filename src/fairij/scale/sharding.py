"""Several processes, each with its own rows, on `torch.distributed`.

Every process runs the same program on a `Shard`. Vectors with one entry a row are known to all;
what is dear, the products with the Jacobian, each process makes for its own rows only, and sums are
made by one all-reduce. All processes therefore see the same numbers and take the same steps.
`fairij.scale.collectives` has the exchanges.
"""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.hashing import rows_fingerprint
from fairij.data.processes import processes
from fairij.data.rows import Columns, n_rows, part_of, take_rows
from fairij.data.sources import Name, Source, joined_tables, named_column
from fairij.errors import InvalidInputError
from fairij.fairness.arrays import unwrapped
from fairij.models.base import (
    Evaluator,
    EvaluatorDefaults,
    Linearization,
    LinearizationDefaults,
    Middle,
    Some,
    counted_from,
)
from fairij.models.delegating import Delegating
from fairij.scale.agreement import check_columns, check_rows, columns_of
from fairij.scale.collectives import gathered, in_unison, summed, together


def start() -> int:
    """Join the processes that `torchrun` started, if there are any; this process's number."""
    if "RANK" in os.environ and not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group("cpu:gloo,cuda:nccl", **_meeting())
        else:
            dist.init_process_group("gloo", **_meeting())
        atexit.register(_leave)
    return dist.get_rank() if dist.is_initialized() else 0


def _leave() -> None:
    """Part from the others; a group that a cycle keeps alive would abort the ending process."""
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()


def _meeting() -> dict[str, Any]:
    """Where the processes of one attempt of `torchrun` find each other.

    Its store outlasts a restart, with the addresses of processes that have ended; one that reads
    those waits for them in vain. So each attempt has names of its own. Several machines count their
    restarts apart, which leaves them with torch's own way.
    """
    given = os.environ
    if given.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or given.get("GROUP_WORLD_SIZE") != "1":
        return {}
    host, port, size = given["MASTER_ADDR"], int(given["MASTER_PORT"]), int(given["WORLD_SIZE"])
    stores: Any = dist  # which tells type checkers nothing of them
    store = stores.TCPStore(host, port, size, is_master=False)
    attempt = f"attempt-{given.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    return {
        "store": stores.PrefixStore(attempt, store),
        "rank": int(given["RANK"]),
        "world_size": size,
    }


class Shard(Source):
    """The rows of one process; the table is those of all processes, one after the other.

    Labels and weights of a `Shard` are given for this process's rows too.
    """

    def __init__(self, X: Any) -> None:
        _check_started()
        self.local = X
        self.rank = dist.get_rank()
        told = together(lambda: (_some_rows(X), columns_of(X)), step="the making of a `Shard`")
        check_columns([columns for _, columns in told])
        self.counts: list[int] = [rows for rows, _ in told]
        self.start = sum(self.counts[: self.rank])
        self.shape = (sum(self.counts), *tuple(getattr(X, "shape", (0,)))[1:])
        self.columns = getattr(X, "columns", None)

    @classmethod
    def of(cls, X: Any) -> Shard:
        """A share, for this process, of rows that all processes can read."""
        _check_started()
        told = together(lambda: n_rows(X), step="the making of a `Shard` by `Shard.of`")
        check_rows(told)
        rank, size, rows = dist.get_rank(), len(told), told[0]
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

    def hashed(self, size: int) -> Iterator[Any]:
        """One fingerprint per process, of its own rows."""
        yield np.array(together(lambda: rows_fingerprint(self.local)))

    def subset(self, index: NDArray[np.int64]) -> Shard:
        own = (index >= self.own.start) & (index < self.own.stop)
        return Shard(part_of(self.local, index[own] - self.start))


def _check_started() -> None:
    if not (dist.is_available() and dist.is_initialized()):
        raise InvalidInputError(
            "A `Shard` needs several processes that know of each other: start them with "
            "`torchrun` and call `fairij.scale.sharding.start()` first."
        )


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
        return ShardedLinearization(part, X.counts, self.theta)

    def evaluator(self, X: Any) -> Evaluator:
        if not isinstance(X, Shard):
            return self._inner.evaluator(X)
        return ShardedEvaluator(in_unison(lambda: self._inner.evaluator(X.local)), X.counts)

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        if not isinstance(X, Shard):
            return self._inner.outputs(X, theta)
        return gathered(lambda: self._inner.outputs(X.local, theta), X.counts)


class ShardedLinearization(LinearizationDefaults):
    """``J r`` and ``J^T u`` of the rows of all processes.

    The rows, process after process, stand at ``place`` among all rows of this linearisation; None
    where they stand in that order.
    """

    def __init__(
        self, local: Linearization, counts: list[int], theta: Tensor, place: Tensor | None = None
    ) -> None:
        self._local, self._counts, self._theta, self._place = local, counts, theta, place
        first, self._count = sum(counts[: dist.get_rank()]), counts[dist.get_rank()]
        self._range = slice(first, first + self._count)
        self._own: Some = self._range if place is None else place[self._range]

    @property
    def mode(self) -> str:  # type: ignore[override]
        return self._local.mode

    @cached_property
    def outputs(self) -> Tensor:
        return self._spread(lambda: self._local.outputs)

    def jvp(self, direction: Tensor) -> Tensor:
        return self._spread(lambda: self._local.jvp(direction))

    def vjp(self, weights: Tensor) -> Tensor:
        return self._sum(lambda: self._local.vjp(weights[self._own]))

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        if self._place is not None:  # a middle takes rows that lie side by side
            return self.vjp(middle(self.jvp(direction), slice(0, sum(self._counts))))

        def shifted(moved: Tensor, rows: Some) -> Tensor:
            return middle(moved, counted_from(self._range.start, rows))

        return self._sum(lambda: self._local.sandwich(direction, shifted))

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return self._sum(lambda: self._local.second_order(weights[self._own], direction))

    def rows(self, index: Tensor) -> Tensor:
        outputs = self.outputs[0].numel()

        def own() -> Tensor:
            here, where = self._here(index)
            found = self._theta.new_zeros(len(index), outputs, len(self._theta))
            if len(here):
                found[where] = self._local.rows(here)
            return found

        return summed(own)

    def restrict(self, index: Tensor, *, keep: bool = False) -> ShardedLinearization:
        here, where = self._here(index)
        parts = together(lambda: where.cpu().numpy())
        place = torch.as_tensor(np.concatenate(parts), device=index.device)
        in_order = bool((place[1:] > place[:-1]).all())
        local = self._local.restrict(here, keep=keep) if len(here) else self._local
        counts = [len(part) for part in parts]
        return ShardedLinearization(local, counts, self._theta, None if in_order else place)

    def moved(self, by: Tensor) -> ShardedLinearization:
        return ShardedLinearization(self._local.moved(by), self._counts, self._theta, self._place)

    def sums(self, weights: Tensor, pieces: list[Tensor]) -> Tensor:
        """``J^T u`` over each piece of the rows alone, ``(D, K)``."""

        def own() -> Tensor:
            here = [self._here(index)[0] for index in pieces]
            given, nothing = weights[self._own], torch.zeros_like(self._theta)
            if not any(len(index) for index in here):
                return torch.stack([nothing] * len(pieces), 1)
            return self._local.sums(given, here)

        return summed(own)

    def _here(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Which of this process's rows are asked for, and at which places of ``index``."""
        found = index - self._range.start
        if self._place is not None:
            number = torch.full((len(self._place),), -1, device=index.device)
            number[self._own] = torch.arange(self._count, device=index.device)
            found = number[index]
        where = torch.nonzero((found >= 0) & (found < self._count))[:, 0]
        return found[where], where

    def _sum(self, local: Callable[[], Tensor]) -> Tensor:
        return summed(local if self._count else lambda: torch.zeros_like(self._theta))

    def _spread(self, local: Callable[[], Tensor]) -> Tensor:
        # a process with none of these rows runs others, for the shape of what they give
        whole = gathered(lambda: local()[: self._count], self._counts)
        if self._place is None:
            return whole
        spread = torch.empty_like(whole)
        spread[self._place] = whole
        return spread


class ShardedEvaluator(EvaluatorDefaults):
    """The outputs of many edits on the rows of all processes."""

    def __init__(self, local: Evaluator, counts: list[int]) -> None:
        self._local, self._counts = local, counts

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        def by_row() -> Tensor:
            return self._local.along(direction, scales).transpose(0, 1).contiguous()

        return gathered(by_row, self._counts).transpose(0, 1)


def gathered_values(values: Any) -> Any:
    """Labels, weights or groups of all processes, one after the other."""
    name = "What is given for each row"
    told = together(lambda: (_plain(values), {name: Columns.of(values)}))
    check_columns([columns for _, columns in told])
    return np.concatenate([array for array, _ in told])


def _plain(values: Any) -> NDArray[Any]:
    """As an array; in a list with text the other entries stay what they are."""
    values = pd.DataFrame(values) if isinstance(values, dict) else unwrapped(values)
    array = np.asarray(values)
    if array.ndim == 0:
        raise InvalidInputError(
            "Labels, weights and groups of a `Shard` must have a value for each of its rows, got "
            f"{values!r}: pass the values; the name of a column is for rows that are a `Source`."
        )
    return np.asarray(values, object) if array.dtype.kind in "US" else array


def whole_column(X: Any, values: Any) -> Any:
    """``values`` for all rows: by name from a source, from all processes for a `Shard`."""
    if processes() > 1:
        _check_given_alike(X, values)
    if isinstance(X, Shard) and values is not None:
        return X.column(values) if isinstance(values, (str, int)) else gathered_values(values)
    return named_column(X, values)


def _check_given_alike(X: Any, values: Any) -> None:
    """Raise on every process unless all have a `Shard` or none, and all have values or none."""
    told = together(lambda: (isinstance(X, Shard), values is not None), step="a fit")
    for place, what in enumerate(
        ("Rows must be a `Shard`", "Labels, weights and groups must be given")
    ):
        those = [rank for rank, said in enumerate(told) if said[place]]
        if 0 < len(those) < len(told):
            others = [rank for rank in range(len(told)) if rank not in those]
            raise InvalidInputError(
                f"{what} on all processes or on none, but this is so on process "
                f"{_listed(those)} and not on process {_listed(others)}: pass the same arguments "
                "on each, for its own rows."
            )


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:5])) + (", ..." if len(ranks) > 5 else "")


def shared_out(X: Any, *columns: Any) -> tuple[Any, ...]:
    """Rows that every process holds, and their columns: on several processes a share of each."""
    if processes() == 1:
        return X, *columns
    shard = Shard.of(X)
    index = np.arange(shard.own.start, shard.own.stop)
    return shard, *(None if c is None else take_rows(c, index) for c in columns)
