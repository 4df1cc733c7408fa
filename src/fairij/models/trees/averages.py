"""A mean over trees of what their leaves hold, ``p(x) = sum_t v[leaf_t(x)] / T``.

The outputs ``z(p)`` follow from it; `shares` says how.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fairij.models.base import EvaluatorDefaults, LinearizationDefaults, Middle
from fairij.models.trees.leaves import LeafJacobian
from fairij.models.trees.shares import Content


@dataclass(frozen=True)
class AverageLinearization(LinearizationDefaults, EvaluatorDefaults):
    """`Linearization` and `Evaluator` of averaged trees."""

    content: Content
    leaves: LeafJacobian  # from one number in each leaf to its sum over trees
    trees: int
    theta: Tensor  # (L * C,)
    mode = "averaged leaves"

    def _columns(self, theta: Tensor) -> Tensor:
        """What is asked of each leaf, ``(L, C)``."""
        return theta.view(-1, self.content.columns)

    @cached_property
    def _free(self) -> Tensor:
        return self.content.free(self._columns(self.theta))

    @cached_property
    def mean(self) -> Tensor:
        """The mean of what the leaves hold, ``(N, C)``."""
        return self._means(self.content.nearest(self._columns(self.theta)))

    @cached_property
    def outputs(self) -> Tensor:
        return self.content.outputs(self.mean)

    def _means(self, columns: Tensor) -> Tensor:
        sums = [self.leaves.times(column) for column in columns.T.contiguous()]
        return torch.stack(sums, 1) / self.trees  # after the sum: whole numbers stay whole

    def _moved(self, r: Tensor) -> Tensor:
        """The change of the means that outputs follow from: ``(N,)`` or ``(N, C)``."""
        change = self.content.along(self._columns(r), self._free)
        if self.outputs.ndim == 1:
            return self._means(change[:, -1:])[:, 0]
        return self._means(change)

    @cached_property
    def _slope(self) -> Tensor:
        return self.content.slope(self.mean)

    def jvp(self, direction: Tensor) -> Tensor:
        return self._slope * self._moved(direction)

    def vjp(self, weights: Tensor) -> Tensor:
        return self._pulled(weights * self._slope)

    def _pulled(self, u: Tensor) -> Tensor:
        """The transpose of `_moved`, ``(L * C,)``."""
        columns = torch.zeros_like(self._columns(self.theta))
        if u.ndim == 1:
            columns[:, -1] = self.leaves.transposed_times(u)
        else:
            for place, column in enumerate(u.T.contiguous()):
                columns[:, place] = self.leaves.transposed_times(column)
        return self.content.along(columns / self.trees, self._free).reshape(-1)

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        moved = self.jvp(direction)
        return self.vjp(middle(moved, slice(0, len(moved))))

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return self._pulled(weights * self.content.bend(self.mean) * self._moved(direction))

    def rows(self, index: Tensor) -> Tensor:
        outputs = self.outputs[0].numel()
        units = torch.eye(outputs, dtype=self.theta.dtype)
        found = []
        for row in index:
            one = self.restrict(row.view(1))
            found.append(torch.stack([one.vjp(unit.view(one.outputs.shape)) for unit in units]))
        return torch.stack(found)

    def restrict(self, index: Tensor, *, keep: bool = False) -> AverageLinearization:
        return replace(self, leaves=self.leaves.take(index))

    def moved(self, by: Tensor) -> AverageLinearization:
        return replace(self, theta=self.theta + by)

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        return torch.stack([self.moved(c * direction).outputs for c in scales.to(self.theta)])

    def held_bytes(self) -> int:
        return self.leaves.held_bytes()
