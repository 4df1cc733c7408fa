"""How good the scores of a model are: AUC, log loss, Brier score and calibration, for many edits.

Accuracy counts predicted labels. An edit can keep it and still ruin the order of the rows, or turn
chances into numbers that mean nothing. These measures show that. Everything is counted, so the
scores of hundreds of edits cost little, and parts of the rows can be pooled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.fairness.areas import LEVELS, REACH, Areas, counted, levels
from fairij.fairness.groups import Groups
from fairij.fairness.rates import ratio_of

Array = NDArray[np.float64]
OF_SCORES = (
    "auc",
    "auc_error",
    "group_auc",
    "group_auc_error",
    "log_loss",
    "brier",
    "calibration_error",
)
AT_ONCE = 2**20  # rows times edits that are counted together
SMALLEST = 1e-7  # chances are kept this far from 0 and 1
BINS = 10  # of chances, all of one width, in which calibration is measured
MEANS = ("auc", "group_auc", "log_loss", "brier")  # over the parts of pooled rows
ERRORS = ("auc_error", "group_auc_error")
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
    auc_error: Array  # (S,) of its change; NaN if it was not compared
    group_auc: Array  # (S,) with every group counting the same
    group_auc_error: Array
    log_loss: Array  # (S,) mean of -log P(y)
    brier: Array  # (S,) mean of (P(1) - y)^2
    bins: Array  # (S, G, BINS, 3): rows, sum of chances, and how many were right

    @staticmethod
    def together(parts: Sequence[Scored]) -> Scored:
        """Other edits on the same rows, one after the other."""
        names = (*MEANS, *ERRORS, "bins")
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return Scored(parts[0].rows, **columns)

    @staticmethod
    def pooled(parts: Sequence[Scored], rows: Sequence[NDArray[np.int64]]) -> Scored:
        """The same edits on the rows of all parts; ``rows`` finds them in each part.

        Calibration is that of all rows together. The other measures are means over the parts: the
        order of two rows means little if different models scored them.
        """
        weight = np.array([part.rows for part in parts]) / sum(part.rows for part in parts)
        found = list(zip(parts, rows, strict=True))

        def stacked(name: str) -> Array:
            return np.stack([getattr(part, name)[index] for part, index in found])

        means = {name: weight @ stacked(name) for name in MEANS}
        errors = {name: np.sqrt(weight**2 @ stacked(name) ** 2) for name in ERRORS}
        bins = np.sum([part.bins[index] for part, index in found], axis=0)
        return Scored(sum(part.rows for part in parts), **means, **errors, bins=bins)

    def measures(self, groups: Groups) -> dict[str, Array]:
        """Columns of the table of candidates; the calibration error also for each group."""
        by_group = calibration_error(self.bins)
        return {
            **{name: getattr(self, name) for name in (*MEANS, *ERRORS)},
            "calibration_error": calibration_error(self.bins.sum(1)),
        } | {
            f"calibration_error[{name}]": by_group[:, code]
            for code, name in enumerate(groups.names)
        }


@dataclass(frozen=True)
class Before:
    """The places of the rows by the scores of the model as it was."""

    pulls: Tensor  # (N,) of the AUC
    group_pulls: Tensor  # (N,) of the AUC with every group counting the same


def scored(
    chances: Tensor, y: Tensor, groups: Groups, before: list[Before] | None = None
) -> Scored:
    """Measure the chances ``(S, N)`` of the positive class, or ``(S, N, C)`` of all classes.

    ``before``: the model that changes are measured from. An empty list is filled with the first of
    these edits. Without it there are no errors of changes.
    """
    cells = chances[0].numel() + 2 * LEVELS * groups.slots
    rows = Rows.of(groups, chances.device)
    of_some = _of_one if chances.ndim == 2 else _of_several
    parts = []
    for some in chances.split(max(1, AT_ONCE // cells)):
        inside = some.detach().clamp(SMALLEST, 1 - SMALLEST)
        areas, by_group, *others = of_some(inside, y.long(), rows)
        if before is not None and not before:
            before.append(Before(areas.pulls[0], by_group.pulls[0]))
        unknown = np.full(len(some), np.nan)
        first = areas.error(before[0].pulls) if before else unknown
        second = by_group.error(before[0].group_pulls) if before else unknown
        parts.append((areas.auc, first, by_group.auc, second, *others))
    return Scored(len(y), *map(np.concatenate, zip(*parts, strict=True)))


@dataclass(frozen=True)
class Rows:
    """The group of each row, and what it counts."""

    codes: Tensor  # (N,)
    slots: int  # groups, and one more if some rows have none
    weight: Tensor | None  # (N,)
    member: Tensor | None  # (N, slots), if groups are known as chances
    counts: Tensor  # (N,) what each row counts
    alike: Tensor  # (N,) the same, if every group counts the same; 0 for rows without a group

    @classmethod
    def of(cls, groups: Groups, device: torch.device) -> Rows:
        codes, weight = torch.as_tensor(groups.codes, device=device), None
        counts = torch.ones(len(codes), dtype=torch.float64, device=device)
        if groups.weight is not None:
            counts = weight = torch.as_tensor(groups.weight, device=device).double()
        known = codes < len(groups.names)
        if groups.chances is None:
            size = torch.bincount(codes, counts, minlength=groups.slots).clamp_(min=SMALLEST)
            alike = torch.where(known, counts / size[codes], 0.0)
            return cls(codes, groups.slots, weight, None, counts, alike)
        member = torch.as_tensor(groups.membership(), device=device)
        alike = torch.where(known, (member / member.sum(0).clamp(min=SMALLEST)).sum(1), 0.0)
        return cls(codes, groups.slots, weight, member, counts, alike)

    def mean(self, values: Tensor) -> Array:
        """The mean over rows of values ``(S, N)``."""
        if self.weight is None:
            return _numbers(values.mean(1, dtype=torch.float64))
        return _numbers(values.double() @ (self.weight / self.weight.sum()))

    def counted(self, level: Tensor, kinds: Tensor) -> Array:
        """How much lies at each level of log odds in each group and kind, (S, slots, 2, LEVELS)."""
        if self.member is None:
            found = counted(level, self.codes * 2 + kinds, 2 * self.slots, self.weight)
            return found.reshape(len(level), self.slots, 2, LEVELS)
        parts = [counted(level, kinds, 2, of_group) for of_group in self.member.T]
        return np.stack(parts, 1)

    def areas(self, level: Tensor, positive: Tensor) -> tuple[Areas, Areas]:
        """AUCs of the rows as they count, and with every group counting the same."""
        return Areas.of(level, positive, self.counts), Areas.of(level, positive, self.alike)


def calibration_error(bins: Array) -> Array:
    """``sum_b |sum of chances - number right| / N`` of bins ``(..., BINS, 3)``; NaN without rows.

    This is the expected calibration error. On few rows it is above zero by chance alone.
    """
    apart = np.abs(bins[..., 1] - bins[..., 2]).sum(-1)
    return ratio_of(apart, bins[..., 0].sum(-1), empty=np.nan)


def _of_one(p: Tensor, y: Tensor, rows: Rows) -> tuple[Any, ...]:
    """Two classes: ``p`` is the chance of the positive one, ``(S, N)``."""
    hit, against = y.to(p), torch.log1p(-p)
    odds = torch.log(p).sub_(against)
    log_loss = (odds * hit).add_(against)
    if rows.weight is None:
        total = _numbers(-log_loss.sum(1, dtype=torch.float64) / len(y))
    else:
        total = -rows.mean(log_loss)
    brier, level = rows.mean((p - hit).square_()), levels(odds)
    return *rows.areas(level, y == 1), total, brier, _binned(rows.counted(level, y))


def _of_several(p: Tensor, y: Tensor, rows: Rows) -> tuple[Any, ...]:
    """Several classes: ``p`` are the chances of all of them, ``(S, N, C)``."""
    right = p.gather(2, y.expand(p.shape[:2])[..., None])[..., 0]
    odds = torch.log(p) - torch.log1p(-p)
    surest, predicted = odds.max(2)
    bins = _binned(rows.counted(levels(surest), (predicted == y).long()))
    brier = rows.mean(p.square().sum(2) - 2 * right + 1)
    each = [rows.areas(levels(odds[..., c].contiguous()), y == c) for c in range(p.shape[2])]
    areas = [Areas.mean(list(parts)) for parts in zip(*each, strict=True)]
    return *areas, rows.mean(-right.log()), brier, bins


def _numbers(values: Tensor) -> Array:
    found: Array = values.double().cpu().numpy()
    return found


def _binned(counts: Array) -> Array:
    """Rows, sum of chances and hits in each group and bin, of counts ``(S, G, 2, LEVELS)``."""
    rows = counts.sum(2)
    return np.stack([rows @ _BIN_OF, (rows * _MIDDLES) @ _BIN_OF, counts[:, :, 1] @ _BIN_OF], -1)
