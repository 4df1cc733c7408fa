"""Which leaf of every tree each row falls into, as a Jacobian: ``J[n, leaf_t(n)] = weight_t``.

Trees of one output are bundled. The leaves (i, j) of two trees of L leaves have one number,
i + j L, and one look-up of ``r_i + r_j`` then serves both trees; turned round, one addition serves
both, and the sums over i and over j are made once at the end. So a product costs N additions a
bundle rather than a tree, and the table of leaves is as much smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MOST_SUMS = 2**15  # of a bundle: 256 KiB, so that they stay in a cache
ROWS_PER_SUM = 4  # making the sums must be cheap beside using them


def bundled(sizes: NDArray[np.int64], outputs: NDArray[np.int64], rows: int) -> list[list[int]]:
    """Trees of one output together, in order, while their combinations are few beside the rows."""
    bundles: list[list[int]] = []
    for output in np.unique(outputs):
        span = 0
        for tree in np.flatnonzero(outputs == output).tolist():
            span *= int(sizes[tree])
            most = min(MOST_SUMS, rows // (ROWS_PER_SUM * (len(bundles[-1]) + 1))) if span else 0
            if span > most or not span:
                span = int(sizes[tree])
                bundles.append([])
            bundles[-1].append(tree)
    return bundles


@dataclass(frozen=True, eq=False)
class Layout:
    """Bundles of trees, and the combinations of leaves in each of them, one after the other."""

    bundles: list[list[int]]  # (G,) of trees
    outputs: list[int]  # (G,)
    starts: NDArray[np.int64]  # (G,) of each bundle's combinations
    strides: NDArray[np.int64]  # (T,) of a tree's leaf in the number of a combination
    members: Tensor  # (P, W) int32: the leaves in each combination; D where there are fewer
    weights: Tensor  # (D,) of each leaf's tree
    n_outputs: int

    @classmethod
    def of(
        cls,
        sizes: NDArray[np.int64],
        outputs: NDArray[np.int64],
        weights: NDArray[np.float64],
        n_outputs: int,
        rows: int,
    ) -> Layout:
        """The layout for so many rows, from each tree's number of leaves, output and weight."""
        bundles = bundled(sizes, outputs, rows)
        spans = np.array([np.prod(sizes[trees]) for trees in bundles])
        starts, first_leaf = np.cumsum(spans) - spans, np.cumsum(sizes) - sizes
        strides = np.ones(len(sizes), np.int64)
        members = np.full((max(map(len, bundles)), spans.sum()), sizes.sum(), np.int32)
        for trees, start, span in zip(bundles, starts, spans, strict=True):
            combination, stride = np.arange(span), 1
            for place, tree in enumerate(trees):
                strides[tree] = stride
                leaf = combination // stride % sizes[tree]
                members[place, start : start + span] = first_leaf[tree] + leaf
                stride *= sizes[tree]
        return cls(
            bundles,
            [int(outputs[trees[0]]) for trees in bundles],
            starts,
            strides,
            torch.from_numpy(members),
            torch.from_numpy(np.repeat(weights, sizes)),
            n_outputs,
        )

    def table(self, leaves: NDArray[np.integer[Any]]) -> Tensor:
        """Each row's combination in each bundle, ``(G, N)``, from its leaves ``(N, T)``."""
        table = np.empty((len(self.bundles), len(leaves)), np.int32)
        for row, trees, start in zip(table, self.bundles, self.starts, strict=True):
            row[:] = start
            for tree in trees:
                row += leaves[:, tree].astype(np.int32) * np.int32(self.strides[tree])
        return torch.from_numpy(table)

    def sums(self, r: Tensor) -> Tensor:
        """``r_i + r_j + ...`` of every combination, shape ``(W,)``."""
        padded = torch.cat([r.double() * self.weights, torch.zeros(1, dtype=torch.float64)])
        total = padded.index_select(0, self.members[0])
        for leaves in self.members[1:]:
            total += padded.index_select(0, leaves)
        return total

    def unsum(self, sums: Tensor) -> Tensor:
        """The transpose of `sums`: for each leaf the total of its combinations, ``(D,)``."""
        padded = torch.zeros(len(self.weights) + 1, dtype=torch.float64)
        for leaves in self.members:
            padded.index_add_(0, leaves, sums)
        return padded[:-1] * self.weights


@dataclass(frozen=True, eq=False)
class LeafJacobian:
    """A constant ``J`` with one entry a tree and row; sums are made in float64."""

    table: Tensor  # (G, N) int32
    layout: Layout
    dtype: torch.dtype

    def times(self, r: Tensor) -> Tensor:
        sums = self.layout.sums(r)
        out = torch.zeros(self.layout.n_outputs, self.table.shape[1], dtype=torch.float64)
        of_output = out.unbind()  # `out[i] +=` would also copy the row
        for places, output in zip(self.table, self.layout.outputs, strict=True):
            of_output[output].add_(sums.index_select(0, places))
        z = out[0] if self.layout.n_outputs == 1 else out.T.contiguous()
        return z.to(self.dtype)

    def transposed_times(self, u: Tensor) -> Tensor:
        columns = u.double().reshape(len(u), self.layout.n_outputs).T.contiguous()
        sums = torch.zeros(self.layout.members.shape[1], dtype=torch.float64)
        for places, output in zip(self.table, self.layout.outputs, strict=True):
            sums.index_add_(0, places, columns[output])
        return self.layout.unsum(sums).to(self.dtype)

    def rows(self, index: Tensor) -> Tensor:
        layout, size = self.layout, len(self.layout.weights)
        out = torch.zeros(len(index), layout.n_outputs, size + 1, dtype=self.dtype)
        each, places = torch.arange(len(index)), self.table[:, index].long()
        for leaves in layout.members:
            for place, output in zip(places, layout.outputs, strict=True):
                out[each, output, leaves[place].long()] = 1
        return out[:, :, :size] * layout.weights.to(self.dtype)

    def take(self, index: Tensor) -> LeafJacobian:
        return LeafJacobian(self.table[:, index], self.layout, self.dtype)
