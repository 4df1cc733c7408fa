"""The AUC of many edits, and how sure its change from the model as it was is.

A row's *pull* is how far its place among the rows of the other label departs from the AUC, as a
share of the AUC (DeLong's components). The change between two models is a sum of differences of
pulls, and the sum of their squares is its variance.

The AUC is measured twice: of the rows as they count, and with every group counting the same. A
group of few rows hardly shows in the first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.fairness.rates import ratio_of

Array = NDArray[np.float64]
REACH = 12.0  # log odds beyond this count as this
LEVELS = 1024  # of log odds: rows less than 0.024 apart count as tied


def levels(odds: Tensor) -> Tensor:
    """The level of log odds, ``(S, N)`` whole numbers. The log odds are used up."""
    return odds.add_(REACH).mul_(LEVELS / (2 * REACH)).clamp_(0, LEVELS - 1).int()


def counted(level: Tensor, kinds: Tensor, n_kinds: int, weight: Tensor | None = None) -> Array:
    """How many rows of each kind lie at each level, ``(S, kinds, LEVELS)``."""
    size = n_kinds * LEVELS
    start = size * torch.arange(len(level), dtype=torch.int32, device=level.device)[:, None]
    cells = (level + (kinds * LEVELS).int()).add_(start).flatten()
    times = None if weight is None else weight.repeat(len(level))
    found = torch.bincount(cells, times, minlength=size * len(level))
    counts: Array = found.double().cpu().numpy()
    return counts.reshape(-1, n_kinds, LEVELS)


def area(counts: Array) -> Array:
    """The chance that a positive row has higher log odds than a negative one; ties count half.

    Of counts ``(S, 2, LEVELS)``. The error of the levels is far below that of any sample.
    """
    negative, positive = counts[:, 0], counts[:, 1]
    below = negative.cumsum(1) - negative / 2
    pairs = negative.sum(1) * positive.sum(1)
    return ratio_of((below * positive).sum(1), pairs, empty=np.nan)


@dataclass(frozen=True)
class Areas:
    """AUCs of S edits, and the pulls of the rows."""

    auc: Array  # (S,) NaN where a label has all rows or none
    pulls: Tensor  # (S, N)

    @classmethod
    def of(cls, level: Tensor, positive: Tensor, weight: Tensor) -> Areas:
        """By levels ``(S, N)``, the label ``(N,)`` and what each row counts ``(N,)``."""
        counts = counted(level, positive.long(), 2, weight)
        auc = area(counts)
        share = counts / np.maximum(counts.sum(-1, keepdims=True), np.finfo(float).tiny)
        below = share.cumsum(-1) - share / 2
        places = np.stack([1 - below[:, 1], below[:, 0]], 1)  # by the row's own label
        table = torch.as_tensor(places, device=level.device).flatten(1)
        place = table.gather(1, (level + LEVELS * positive).long())
        own = torch.where(
            positive, weight / weight[positive].sum(), weight / weight[~positive].sum()
        )
        middle = torch.as_tensor(np.nan_to_num(auc), device=level.device)[:, None]
        return cls(auc, place.sub_(middle).mul_(own))

    @staticmethod
    def mean(parts: list[Areas]) -> Areas:
        """The mean over classes, of those that have an AUC."""
        known = [part for part in parts if not np.isnan(part.auc).all()]
        if not known:
            return parts[0]
        auc = np.mean([part.auc for part in known], axis=0)
        return Areas(auc, torch.stack([part.pulls for part in known]).mean(0))

    def error(self, before: Tensor) -> Array:
        """The standard error of the change from a model with pulls ``(N,)``."""
        found: Array = (self.pulls - before).square_().sum(1).sqrt_().cpu().numpy()
        return np.where(np.isnan(self.auc), np.nan, found)
