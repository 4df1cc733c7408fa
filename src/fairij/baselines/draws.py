"""Rows for a penalty: the same number from every group.

A small group's mean is then no noisier than a large group's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fairij.baselines.base import Codes, strata_rows
from fairij.datasets.splits import Split
from fairij.models.torch.training import logits


@dataclass(frozen=True)
class Draw:
    """Rows for the penalty: ``strata[k][g]`` (n, D) of group g given the k-th true label."""

    strata: list[list[Tensor]]
    shares: list[Tensor]  # of the groups in each stratum, each (G,)
    y: Tensor  # of all rows, in order
    generator: torch.Generator

    @property
    def features(self) -> Tensor:
        """All rows, in order."""
        return torch.cat([x for groups in self.strata for x in groups])

    def scores(self, module: nn.Module) -> list[list[Tensor]]:
        """``sigmoid(z)`` of every group in every stratum, by one forward pass."""
        sizes = [len(x) for groups in self.strata for x in groups]
        pieces = iter(torch.sigmoid(logits(module, self.features)).split(sizes))
        return [[next(pieces) for _ in groups] for groups in self.strata]


@dataclass(frozen=True)
class Sampler:
    """Draws rows for the penalty. ``cells[k][g]`` are the rows of group g in stratum k."""

    X: Tensor
    y: Tensor
    cells: list[list[Tensor]]

    @classmethod
    def of(cls, split: Split, constraint: str, n_groups: int) -> Sampler:
        """A sampler of the rows of a split."""
        return cls.of_tensors(*split_tensors(split), split.s, constraint, n_groups)

    @classmethod
    def of_tensors(cls, X: Tensor, y: Tensor, s: Codes, constraint: str, n_groups: int) -> Sampler:
        """A sampler of rows on any device."""
        cells = strata_rows(constraint, y.cpu().numpy(), s, n_groups=n_groups)
        return cls(X, y, [[torch.as_tensor(c, device=y.device) for c in k] for k in cells])

    def draw(self, rows: int, generator: torch.Generator) -> Draw:
        """About ``rows`` rows, the same number from every cell, with replacement."""
        size = max(rows // sum(map(len, self.cells)), 2)
        return self._take(
            [
                [cell[torch.randint(len(cell), (size,), generator=generator)] for cell in groups]
                for groups in self.cells
            ],
            generator,
        )

    def everything(self, generator: torch.Generator) -> Draw:
        """All rows."""
        return self._take(self.cells, generator)

    def _take(self, rows: list[list[Tensor]], generator: torch.Generator) -> Draw:
        sizes = [torch.tensor([float(len(cell)) for cell in groups]) for groups in self.cells]
        return Draw(
            [[self.X.index_select(0, cell) for cell in groups] for groups in rows],
            [size / size.sum() for size in sizes],
            torch.cat([self.y[cell] for groups in rows for cell in groups]),
            generator,
        )


def split_tensors(split: Split) -> tuple[Tensor, Tensor]:
    """Features and labels as float32 tensors."""
    return (
        torch.as_tensor(np.asarray(split.X), dtype=torch.float32),
        torch.as_tensor(np.asarray(split.y), dtype=torch.float32),
    )
