"""Parameters that move in blocks: leaves that lie together in a tree.

Trees that are averaged are deep, with nearly as many leaves as rows, and moving leaves one by one
would fit the few rows in each. So each block of leaves gets a parameter of its own:

``value[leaf] = theta[leaf] / unit + gain[block] theta[block]``.

``theta[block]`` is 0 in every model: what a block moved is kept in its leaves. ``unit`` is a power
of two, so that no digit is lost. It makes steps of single leaves small next to steps of blocks, and
damping nearly keeps single leaves where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.models.base import (
    Delegating,
    Editable,
    EvaluatorDefaults,
    LinearizationDefaults,
    Middle,
)

SHARE = 0.01  # of the rows of a tree, which a block has at least


@dataclass(frozen=True)
class Blocks:
    """Which parameters of a model move together, and how far."""

    of: Tensor  # (D,) the block of each parameter
    gain: Tensor  # (K,)
    unit: float = 1.0

    def single(self, theta: Tensor) -> Tensor:
        """The parameters without blocks, ``(D,)``."""
        return theta[: len(self.of)] / self.unit

    def added(self, theta: Tensor) -> Tensor:
        """What blocks add to them, ``(D,)``."""
        moved = self.gain.to(theta) * theta[len(self.of) :]
        return moved.index_select(0, self.of)

    def values(self, theta: Tensor) -> Tensor:
        return self.single(theta) + self.added(theta)

    def pulled(self, values: Tensor) -> Tensor:
        """The transpose of `values`, ``(D + K,)``."""
        sums = values.new_zeros(len(self.gain)).index_add_(0, self.of, values)
        return torch.cat([values / self.unit, self.gain.to(values) * sums])

    def joined(self, values: Tensor, blocks: Tensor) -> Tensor:
        """Parameters with these values, of which ``blocks`` are not yet added."""
        return torch.cat([values * self.unit, blocks])


class InBlocks(Delegating):
    """A model whose parameters also move in blocks."""

    def __init__(self, inner: Editable, blocks: Blocks) -> None:
        super().__init__(inner)
        self._blocks = blocks

    @property
    def theta(self) -> Tensor:
        theta = self._inner.theta
        return self._blocks.joined(theta, theta.new_zeros(len(self._blocks.gain)))

    def linearize(self, X: Any, *, keep: bool = True) -> BlockLinearization:
        return BlockLinearization(self._inner.linearize(X, keep=keep), self._blocks)

    evaluator = linearize

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        return self._inner.outputs(X, None if theta is None else self._blocks.values(theta))

    def within(self, theta: Tensor) -> Tensor:
        values, added = self._blocks.values(theta), self._blocks.added(theta)
        nearest = self._inner.within(values)
        if nearest is values:
            return theta
        return self._blocks.joined(nearest - added, theta[len(added) :])

    def stored(self, theta: Tensor) -> Tensor:
        single, added = self._blocks.single(theta), self._blocks.added(theta)
        moved = single + added if bool(added.any()) else single
        return self._blocks.joined(self._inner.stored(moved), 0 * theta[len(added) :])

    def edited(self, theta: Tensor) -> Any:
        return self._inner.edited(self._blocks.single(self.stored(theta)))


@dataclass(frozen=True)
class BlockLinearization(LinearizationDefaults, EvaluatorDefaults):
    """`Linearization` and `Evaluator` of a model in blocks."""

    inner: Any  # both of the model without blocks
    blocks: Blocks
    mode = "blocks of leaves"

    @property
    def outputs(self) -> Tensor:
        z: Tensor = self.inner.outputs
        return z

    def jvp(self, direction: Tensor) -> Tensor:
        moved: Tensor = self.inner.jvp(self.blocks.values(direction))
        return moved

    def vjp(self, weights: Tensor) -> Tensor:
        return self.blocks.pulled(self.inner.vjp(weights))

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        return self.blocks.pulled(self.inner.sandwich(self.blocks.values(direction), middle))

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        inner = self.inner.second_order(weights, self.blocks.values(direction))
        return self.blocks.pulled(inner)

    def rows(self, index: Tensor) -> Tensor:
        found: Tensor = self.inner.rows(index)
        each = [torch.stack([self.blocks.pulled(one) for one in row]) for row in found]
        return torch.stack(each)

    def restrict(self, index: Tensor, *, keep: bool = False) -> BlockLinearization:
        return BlockLinearization(self.inner.restrict(index, keep=keep), self.blocks)

    def moved(self, by: Tensor) -> BlockLinearization:
        return BlockLinearization(self.inner.moved(self.blocks.values(by)), self.blocks)

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        found: Tensor = self.inner.along(self.blocks.values(direction), scales)
        return found

    def held_bytes(self) -> int | None:
        held: int | None = self.inner.held_bytes()
        return held


def ancestors(
    left: NDArray[np.integer[Any]],
    right: NDArray[np.integer[Any]],
    rows: NDArray[np.float64],
) -> NDArray[np.int64]:
    """The deepest ancestor of each node with enough rows; children are -1 in leaves."""
    large, own = rows >= SHARE * rows[0], np.zeros(len(left), np.int64)
    todo = [0]
    while todo:
        node = todo.pop()
        own[node] = node if large[node] else own[node]
        if left[node] != -1:
            own[left[node]] = own[right[node]] = own[node]
            todo += [int(left[node]), int(right[node])]
    return own


def joined_blocks(of_trees: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The blocks of the leaves of each tree, numbered through all trees in ascending order."""
    found, count = [], 0
    for own in of_trees:
        kinds, places = np.unique(own, return_inverse=True)
        found.append(places + count)
        count += len(kinds)
    return np.concatenate(found)
