"""How good the scores of a model are: AUC, log loss, Brier score and calibration, for many edits.

Accuracy counts predicted labels. An edit can keep it and still ruin the order of the rows, or turn
chances into numbers that mean nothing. These measures show that. Everything is counted, so the
scores of hundreds of edits cost little, and parts of the rows can be pooled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.fairness.groups import Groups
from fairij.fairness.rates import ratio_of

Array = NDArray[np.float64]
OF_SCORES = ("auc", "log_loss", "brier", "calibration_error")
AT_ONCE = 2**20  # rows times edits that are counted together
SMALLEST = 1e-7  # chances are kept this far from 0 and 1
REACH = 12.0  # log odds beyond this count as this
LEVELS = 1024  # of log odds: rows less than 0.024 apart count as tied
BINS = 10  # of chances, all of one width, in which calibration is measured
_MIDDLES = 1 / (1 + np.exp(-((np.arange(LEVELS) + 0.5) / LEVELS * 2 - 1) * REACH))
_BIN_OF = np.eye(BINS)[(_MIDDLES * BINS).astype(int)]  # (LEVELS, BINS)


@dataclass(frozen=True)
class Scored:
    """What the scores of S edits are worth on some rows.

    With several classes, ``auc`` is the mean over classes of each against the rest, ``brier`` sums
    over classes, and calibration is that of the chance of the predicted class.
    """

    rows: int
    auc: Array  # (S,) NaN where a class has all rows or none
    log_loss: Array  # (S,) mean of -log P(y)
    brier: Array  # (S,) mean of (P(1) - y)^2
    bins: Array  # (S, G, BINS, 3): rows, sum of chances, and how many were right

    @staticmethod
    def together(parts: Sequence[Scored]) -> Scored:
        """Other edits on the same rows, one after the other."""
        names = ("auc", "log_loss", "brier", "bins")
        columns = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
        return Scored(parts[0].rows, *columns)

    @staticmethod
    def pooled(parts: Sequence[Scored], rows: Sequence[NDArray[np.int64]]) -> Scored:
        """The same edits on the rows of all parts; ``rows`` finds them in each part.

        Calibration is that of all rows together. The other measures are means over the parts: the
        order of two rows means little if different models scored them.
        """
        weight = np.array([part.rows for part in parts]) / sum(part.rows for part in parts)
        found = list(zip(parts, rows, strict=True))
        auc, log_loss, brier = (
            weight @ np.stack([getattr(part, name)[index] for part, index in found])
            for name in ("auc", "log_loss", "brier")
        )
        bins = np.sum([part.bins[index] for part, index in found], axis=0)
        return Scored(sum(part.rows for part in parts), auc, log_loss, brier, bins)

    def measures(self, groups: Groups) -> dict[str, Array]:
        """Columns of the table of candidates; the calibration error also for each group."""
        by_group = calibration_error(self.bins)
        return {
            "auc": self.auc,
            "log_loss": self.log_loss,
            "brier": self.brier,
            "calibration_error": calibration_error(self.bins.sum(1)),
        } | {
            f"calibration_error[{name}]": by_group[:, code]
            for code, name in enumerate(groups.names)
        }


def scored(chances: Tensor, y: Tensor, groups: Groups) -> Scored:
    """Measure the chances ``(S, N)`` of the positive class, or ``(S, N, C)`` of all classes."""
    cells = chances[0].numel() + 2 * LEVELS * groups.slots
    rows = Rows.of(groups, chances.device)
    of_some = _of_one if chances.ndim == 2 else _of_several
    parts = [
        of_some(some.detach().clamp(SMALLEST, 1 - SMALLEST), y.long(), rows)
        for some in chances.split(max(1, AT_ONCE // cells))
    ]
    return Scored(len(y), *map(np.concatenate, zip(*parts, strict=True)))


@dataclass(frozen=True)
class Rows:
    """The group of each row, and what it counts."""

    codes: Tensor  # (N,)
    slots: int  # groups, and one more if some rows have none
    weight: Tensor | None  # (N,)
    member: Tensor | None  # (N, slots), if groups are known as chances

    @classmethod
    def of(cls, groups: Groups, device: torch.device) -> Rows:
        codes, weight = torch.as_tensor(groups.codes, device=device), None
        if groups.weight is not None:
            weight = torch.as_tensor(groups.weight, device=device)
        if groups.chances is None:
            return cls(codes, groups.slots, weight, None)
        member = torch.as_tensor(groups.membership(), device=device)
        return cls(codes, groups.slots, weight, member)

    def mean(self, values: Tensor) -> Array:
        """The mean over rows of values ``(S, N)``."""
        if self.weight is None:
            return _numbers(values.mean(1, dtype=torch.float64))
        return _numbers(values.double() @ (self.weight / self.weight.sum()))

    def counted(self, odds: Tensor, kinds: Tensor) -> Array:
        """How much lies at each level of log odds in each group and kind, (S, slots, 2, LEVELS)."""
        if self.member is None:
            found = _counted(odds, self.codes * 2 + kinds, 2 * self.slots, self.weight)
            return found.reshape(len(odds), self.slots, 2, LEVELS)
        parts = [_counted(odds, kinds, 2, of_group) for of_group in self.member.T]
        return np.stack(parts, 1)


def calibration_error(bins: Array) -> Array:
    """``sum_b |sum of chances - number right| / N`` of bins ``(..., BINS, 3)``; NaN without rows.

    This is the expected calibration error. On few rows it is above zero by chance alone.
    """
    apart = np.abs(bins[..., 1] - bins[..., 2]).sum(-1)
    return ratio_of(apart, bins[..., 0].sum(-1), empty=np.nan)


def _of_one(p: Tensor, y: Tensor, rows: Rows) -> tuple[Array, ...]:
    """Two classes: ``p`` is the chance of the positive one, ``(S, N)``."""
    hit, against = y.to(p), torch.log1p(-p)
    odds = torch.log(p).sub_(against)
    log_loss = (odds * hit).add_(against)
    if rows.weight is None:
        total = _numbers(-log_loss.sum(1, dtype=torch.float64) / len(y))
    else:
        total = -rows.mean(log_loss)
    brier, counts = rows.mean((p - hit).square_()), rows.counted(odds, y)
    return _auc(counts.sum(1)), total, brier, _binned(counts)


def _of_several(p: Tensor, y: Tensor, rows: Rows) -> tuple[Array, ...]:
    """Several classes: ``p`` are the chances of all of them, ``(S, N, C)``."""
    right = p.gather(2, y.expand(p.shape[:2])[..., None])[..., 0]
    odds = torch.log(p) - torch.log1p(-p)
    each = [
        _auc(_counted(odds[..., c], (y == c).long(), 2, rows.weight)) for c in range(p.shape[2])
    ]
    defined = [auc for auc in each if not np.isnan(auc).all()]
    auc = np.mean(defined, axis=0) if defined else np.full(len(p), np.nan)
    brier = rows.mean(p.square().sum(2) - 2 * right + 1)
    surest, predicted = odds.max(2)
    bins = _binned(rows.counted(surest, (predicted == y).long()))
    return auc, rows.mean(-right.log()), brier, bins


def _numbers(values: Tensor) -> Array:
    found: Array = values.double().cpu().numpy()
    return found


def _counted(odds: Tensor, kinds: Tensor, n_kinds: int, weight: Tensor | None = None) -> Array:
    """How many rows of each kind lie at each level of the log odds, ``(S, kinds, LEVELS)``."""
    level = (odds + REACH).mul_(LEVELS / (2 * REACH)).clamp_(0, LEVELS - 1).int()
    size = n_kinds * LEVELS
    start = size * torch.arange(len(odds), dtype=torch.int32, device=odds.device)[:, None]
    cells = level.add_((kinds * LEVELS).int()).add_(start).flatten()
    times = None if weight is None else weight.repeat(len(odds))
    found = torch.bincount(cells, times, minlength=size * len(odds))
    return _numbers(found).reshape(-1, n_kinds, LEVELS)


def _auc(counts: Array) -> Array:
    """The chance that a positive row has higher log odds than a negative one; ties count half.

    Of counts ``(S, 2, LEVELS)``. The error of the levels is far below that of any sample.
    """
    negative, positive = counts[:, 0], counts[:, 1]
    below = negative.cumsum(1) - negative / 2
    pairs = negative.sum(1) * positive.sum(1)
    return ratio_of((below * positive).sum(1), pairs, empty=np.nan)


def _binned(counts: Array) -> Array:
    """Rows, sum of chances and hits in each group and bin, of counts ``(S, G, 2, LEVELS)``."""
    rows = counts.sum(2)
    return np.stack([rows @ _BIN_OF, (rows * _MIDDLES) @ _BIN_OF, counts[:, :, 1] @ _BIN_OF], -1)
