"""A model on the rows of several processes.

Every process knows all vectors with one entry per row. It computes products with the Jacobian for
its own rows only, and one all-reduce adds them up: all processes take the same steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fairij.models.base import Delegating, Evaluator, Factors, Linearization, Middle, Some
from fairij.scale.collectives import collected, done_by_all, gathered, summed
from fairij.scale.sharding import Shard
from fairij.scale.streaming import counted_from, shifted


class ShardedEditable(Delegating):
    """An `Editable` that also takes a `Shard`."""

    def linearize(self, X: Any, *, keep: bool = True) -> Linearization:
        if not isinstance(X, Shard):
            return self._inner.linearize(X, keep=keep)
        part = done_by_all(lambda: self._inner.linearize(X.local, keep=keep))
        return ShardedLinearization(part, X.counts, self.theta)

    def evaluator(self, X: Any) -> Evaluator:
        if not isinstance(X, Shard):
            return self._inner.evaluator(X)
        return ShardedEvaluator(done_by_all(lambda: self._inner.evaluator(X.local)), X.counts)

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        if not isinstance(X, Shard):
            return self._inner.outputs(X, theta)
        return gathered(lambda: self._inner.outputs(X.local, theta), X.counts)

    def halve_batches(self, X: Any) -> bool:
        return self._inner.halve_batches(X.local if isinstance(X, Shard) else X)


class ShardedLinearization:
    """``J r`` and ``J^T u`` of the rows of all processes; ``local`` has those of this process."""

    # `place` has the place among all rows of each row, process by process; None if in that order

    def __init__(
        self, local: Linearization, counts: list[int], theta: Tensor, place: Tensor | None = None
    ) -> None:
        self._local, self._counts, self._theta, self._place = local, counts, theta, place
        first, self._count = sum(counts[: dist.get_rank()]), counts[dist.get_rank()]
        self._range = slice(first, first + self._count)
        self._own: Some = self._range if place is None else place[self._range]

    @property
    def mode(self) -> str:
        return self._local.mode

    @cached_property
    def outputs(self) -> Tensor:
        return self._all_rows(lambda: self._local.outputs)

    def jvp(self, direction: Tensor) -> Tensor:
        return self._all_rows(lambda: self._local.jvp(direction))

    def vjp(self, weights: Tensor) -> Tensor:
        return self._sum(lambda: self._local.vjp(weights[self._own]))

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        if self._place is not None:  # the middle takes neighbouring rows
            return self.vjp(middle(self.jvp(direction), slice(0, sum(self._counts))))
        own = shifted(middle, self._range.start)
        return self._sum(lambda: self._local.sandwich(direction, own))

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
        parts = collected(lambda: where.cpu().numpy())
        place = torch.as_tensor(np.concatenate(parts), device=index.device)
        in_order = bool((place[1:] > place[:-1]).all())
        local = self._local.restrict(here, keep=keep) if len(here) else self._local
        counts = [len(part) for part in parts]
        return ShardedLinearization(local, counts, self._theta, None if in_order else place)

    def moved(self, by: Tensor) -> ShardedLinearization:
        return ShardedLinearization(self._local.moved(by), self._counts, self._theta, self._place)

    def sums(self, weights: Tensor, pieces: list[Tensor]) -> Tensor:
        def own() -> Tensor:
            here = [self._here(index)[0] for index in pieces]
            if not any(len(index) for index in here):
                return torch.stack([torch.zeros_like(self._theta)] * len(pieces), 1)
            return self._local.sums(weights[self._own], here)

        return summed(own)

    def gram(self, middle: Tensor) -> Tensor | None:
        def own() -> Tensor | None:
            if self._count == 0:
                return self._theta.new_zeros(len(self._theta), len(self._theta))
            return self._local.gram(middle[self._own])

        found = self._if_all_have(own)
        return None if found is None else summed(lambda: found)

    def diagonal(self, middle: Callable[[Some], Tensor]) -> Tensor | None:
        def own() -> Tensor | None:
            if self._place is None:
                return self._local.diagonal(
                    lambda some: middle(counted_from(self._range.start, some))
                )
            place = self._place[self._range]
            return self._local.diagonal(lambda some: middle(place[some]))

        found = self._if_all_have(own)
        return None if found is None else self._sum(lambda: found)

    def row_squares(self) -> Tensor | None:
        found = self._if_all_have(self._local.row_squares)
        return None if found is None else self._all_rows(lambda: found)

    def row_products(self) -> Tensor | None:
        return None  # of rows of two processes, which no process has

    def factors(self) -> list[Factors] | None:
        return None  # no process has all rows

    def held_bytes(self) -> int | None:
        """The bytes that this process keeps."""
        return self._local.held_bytes()

    def with_outputs(self, outputs: Tensor) -> None:
        return None  # no process has all rows

    def _if_all_have(self, work: Callable[[], Tensor | None]) -> Tensor | None:
        """The result on this process; None if some process has none."""
        found = done_by_all(work)
        return found if all(collected(lambda: found is not None)) else None

    def _here(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of this process that are asked for, and their places in ``index``."""
        found = index - self._range.start
        if self._place is not None:
            number = torch.full((len(self._place),), -1, device=index.device)
            number[self._own] = torch.arange(self._count, device=index.device)
            found = number[index]
        where = torch.nonzero((found >= 0) & (found < self._count))[:, 0]
        return found[where], where

    def _sum(self, local: Callable[[], Tensor]) -> Tensor:
        return summed(local if self._count else lambda: torch.zeros_like(self._theta))

    def _all_rows(self, local: Callable[[], Tensor]) -> Tensor:
        """The results for the rows of all processes, in the order of this linearisation."""
        # a process without any of these rows runs other rows, for the shape of the result
        whole = gathered(lambda: local()[: self._count], self._counts)
        if self._place is None:
            return whole
        ordered = torch.empty_like(whole)
        ordered[self._place] = whole
        return ordered


class ShardedEvaluator:
    """The outputs of many edits on the rows of all processes."""

    def __init__(self, local: Evaluator, counts: list[int]) -> None:
        self._local, self._counts = local, counts

    @cached_property
    def estimates(self) -> bool:
        return any(collected(lambda: self._local.estimates))

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        return self._all_rows(lambda: self._local.along(direction, scales))

    def confirm(self, direction: Tensor, scale: float, *, everywhere: bool) -> Tensor:
        return self._all_rows(lambda: self._local.confirm(direction, scale, everywhere=everywhere))

    def _all_rows(self, local: Callable[[], Tensor]) -> Tensor:
        return gathered(lambda: local().transpose(0, 1).contiguous(), self._counts).transpose(0, 1)
