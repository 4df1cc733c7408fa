"""The leaf of every tree that each row falls into, as a Jacobian: ``J[n, leaf_t(n)] = weight_t``.

Trees of one output are bundled. Consecutive trees split the rows in similar ways, so only a few
combinations (i, j, ...) of their leaves occur. Each combination gets a number. For ``J r``, one
look-up of ``r_i + r_j + ...`` replaces one per tree. For ``J^T u`` one addition per bundle will do,
and the sums over i, over j, ... are made once at the end. So a product costs N additions per bundle
instead of per tree, and the table of leaves is smaller by the same factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.models.base import JacobianDefaults

MOST_SUMS = 2**15  # per bundle: 256 KiB, which stay in the processor's cache
ROWS_PER_SUM = 4  # making the sums must be cheap compared to using them
MARKS_PER_ROW = 16  # marking which combinations occur must be cheap as well
ENTRIES_AT_ONCE = 2**15  # entries of the table per call: with few rows, few calls
GRAM_ROWS = 2**16  # rows whose leaves are found at once


@dataclass(frozen=True, eq=False)
class Bundle:
    """Some trees of one output, with the combinations of their leaves that occur."""

    output: int
    members: list[Tensor]  # for each tree its leaf in each combination, (P,) int32
    codes: Tensor  # (N,) int32: each row's combination

    def joined(self, tree: Bundle) -> Bundle | None:
        """The bundle with one more tree; None if too many combinations occur."""
        rows, size = len(self.codes), len(tree.members[0])
        span = len(self.members[0]) * size
        most = min(MOST_SUMS, rows // (ROWS_PER_SUM * (len(self.members) + 1)))
        if self.output != tree.output or span > min(max(MARKS_PER_ROW * rows, MOST_SUMS), 2**28):
            return None
        if most < 1:  # too few rows for a bundle
            return None
        wide = torch.add(tree.codes, self.codes, alpha=size)
        pairs = np.flatnonzero((torch.bincount(wide, minlength=span) > 0).numpy())
        if len(pairs) > most:
            return None
        number = torch.zeros(span, dtype=torch.int32)
        number[pairs] = torch.arange(len(pairs), dtype=torch.int32)
        before, last = np.divmod(pairs.astype(np.int32), np.int32(size))
        members = [*(leaves[before] for leaves in self.members), tree.members[0][last]]
        return Bundle(self.output, members, number.index_select(0, wide))


def bundled(
    leaves: NDArray[np.integer[Any]], sizes: NDArray[np.int64], outputs: NDArray[np.int64]
) -> list[Bundle]:
    """Bundles of trees of one output, the widest first, by each row's leaf in each tree."""
    starts, found = np.cumsum(sizes) - sizes, list[Bundle]()
    for tree in np.argsort(outputs, kind="stable"):
        own = torch.from_numpy((starts[tree] + np.arange(sizes[tree])).astype(np.int32))
        codes = torch.from_numpy(leaves[tree].astype(np.int32))
        alone = Bundle(int(outputs[tree]), [own], codes)
        together = found[-1].joined(alone) if found else None
        if together:
            found[-1] = together
        else:
            found.append(alone)
    return sorted(found, key=lambda bundle: -len(bundle.members))


@dataclass(frozen=True, eq=False)
class Layout:
    """Bundles of trees, the widest first, and all their combinations one after the other."""

    outputs: list[int]  # (G,)
    starts: list[int]  # (G,) the first combination of each bundle
    members: list[Tensor]  # int32: the w-th leaf of each combination that has one
    weights: Tensor  # (D,) the weight of each leaf's tree
    n_outputs: int

    def sums(self, r: Tensor) -> Tensor:
        """``r_i + r_j + ...`` of every combination, shape ``(P,)``."""
        weighted = r.double() * self.weights
        total = weighted.index_select(0, self.members[0])
        for leaves in self.members[1:]:
            total[: len(leaves)] += weighted.index_select(0, leaves)
        return total

    def unsum(self, sums: Tensor) -> Tensor:
        """The transpose of `sums`: the total over the combinations of each leaf, ``(D,)``."""
        total = torch.zeros_like(self.weights)
        for leaves in self.members:
            total.index_add_(0, leaves, sums[: len(leaves)])
        return total * self.weights


@dataclass(frozen=True, eq=False)
class LeafJacobian(JacobianDefaults):
    """A constant ``J`` with one entry per tree and row; sums use float64."""

    table: Tensor  # (G, N) int32: each row's combination in each bundle
    layout: Layout
    dtype: torch.dtype

    @classmethod
    def of(
        cls,
        leaves: NDArray[np.integer[Any]],
        sizes: NDArray[np.int64],
        outputs: NDArray[np.int64],
        weights: NDArray[np.float64],
        n_outputs: int,
        dtype: torch.dtype,
    ) -> LeafJacobian:
        """From each row's leaves ``(T, N)`` and each tree's size, output and weight."""
        bundles = bundled(leaves, sizes, outputs)
        counts = [len(bundle.members[0]) for bundle in bundles]
        starts = (np.cumsum(counts) - counts).tolist()
        table = torch.empty(len(bundles), leaves.shape[1], dtype=torch.int32)
        for row, start, bundle in zip(table, starts, bundles, strict=True):
            torch.add(bundle.codes, start, out=row)
        layout = Layout(
            [bundle.output for bundle in bundles],
            starts,
            [
                torch.cat([b.members[place] for b in bundles if place < len(b.members)])
                for place in range(len(bundles[0].members))
            ],
            torch.from_numpy(np.repeat(weights, sizes)),
            n_outputs,
        )
        return cls(table, layout, dtype)

    def times(self, r: Tensor) -> Tensor:
        sums = self.layout.sums(r)
        out = torch.zeros(self.layout.n_outputs, self.table.shape[1], dtype=torch.float64)
        for places, outputs in self._at_once():
            found = sums.index_select(0, places.reshape(-1)).view(places.shape)
            if self.layout.n_outputs == 1:
                out[0].add_(found[0] if len(found) == 1 else found.sum(0))
            else:
                out.index_add_(0, outputs, found)
        z = out[0] if self.layout.n_outputs == 1 else out.T.contiguous()
        return z.to(self.dtype)

    def transposed_times(self, u: Tensor) -> Tensor:
        columns = u.double().reshape(len(u), self.layout.n_outputs).T.contiguous()
        sums = torch.zeros(len(self.layout.members[0]), dtype=torch.float64)
        for places, outputs in self._at_once():
            values = columns if len(columns) == len(places) == 1 else columns[outputs]
            sums.index_add_(0, places.reshape(-1), values.reshape(-1))
        return self.layout.unsum(sums).to(self.dtype)

    def _at_once(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Some bundles of the table at a time, with the output of each."""
        size = max(1, ENTRIES_AT_ONCE // max(1, self.table.shape[1]))
        outputs = torch.tensor(self.layout.outputs)
        return zip(self.table.split(size), outputs.split(size), strict=True)

    def rows(self, index: Tensor) -> Tensor:
        weights = self.layout.weights.to(self.dtype)
        out = torch.zeros(len(index), self.layout.n_outputs, len(weights), dtype=self.dtype)
        each = torch.arange(len(index))
        for output, leaves in self._trees(index):
            out[each, output, leaves.long()] = 1
        return out * weights

    def take(self, index: Tensor) -> LeafJacobian:
        return LeafJacobian(self.table.index_select(1, index), self.layout, self.dtype)

    def held_bytes(self) -> int:
        return self.table.numel() * self.table.element_size()

    def gram(self, middle: Tensor) -> Tensor:
        """``sum_n J_n^T m_n J_n`` in float64, by N additions per pair of trees, not of leaves."""
        weights = self.layout.weights
        size, columns = len(weights), middle.double().permute(1, 2, 0).contiguous()
        number = torch.int32 if size**2 < 2**31 else torch.int64
        half = torch.zeros(size * size, dtype=torch.float64)
        for index in torch.arange(self.table.shape[1]).split(GRAM_ROWS):
            values = columns[:, :, index]
            trees = [(output, leaves.to(number)) for output, leaves in self._trees(index)]
            for place, (output, leaves) in enumerate(trees):
                row_starts = leaves * size
                for other, others in trees[place:]:
                    half.index_add_(0, row_starts + others, values[output, other])
        matrix = half.view(size, size)
        whole = matrix + matrix.T
        whole.diagonal().sub_(matrix.diagonal())  # each tree with itself was counted twice
        return whole.mul_(weights).mul_(weights[:, None])

    def _trees(self, index: Tensor) -> list[tuple[int, Tensor]]:
        """For every tree its output, and the leaf that each of these rows falls into."""
        layout = self.layout
        return [
            (output, leaves.index_select(0, places))
            for output, start, places in zip(
                layout.outputs, layout.starts, self.table[:, index], strict=True
            )
            for leaves in layout.members
            if start < len(leaves)
        ]
