"""What scores are worth in an audit: order, losses and calibration, of all rows and of each group.

A score is a chance of the favourable label. ``calibration_bias`` is the mean score less the share
of rows with that label: above zero, a group is given higher chances than it turns out to have.
``calibration_error`` is the expected calibration error over ten bins of chances. On few rows it is
above zero by chance alone, so it has no interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.fairness.counted import Interval
from fairij.fairness.decisions import TopShare, check_threshold, top_cut
from fairij.fairness.groups import Groups, numbers, unwrapped, vector
from fairij.fairness.intervals import Compared, wilson
from fairij.fairness.quantiles import t_quantile
from fairij.fairness.rates import Array, ratio_of
from fairij.fairness.scores import BINS, SMALLEST, calibration_error

COLUMNS = ["value", "low", "high"]
ROUNDED = 1e-5  # how far the float32 of a library may lead outside of 0 to 1
ROUNDING = 1e-12  # of a chance that was read from text, or taken from 1


@dataclass(frozen=True)
class Scores:
    """The score of each row, whether it has the favourable label, its groups and its weight."""

    chance: Array  # (N,)
    truth: NDArray[np.int64]  # (N,) 0 or 1
    groups: Groups
    weight: Array | None

    def measures(self, confidence: float) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The measures of all rows, and those of each group by (group, measure)."""
        size, names = len(self.truth), self.groups.names
        overall = self._of(np.ones(size) if self.weight is None else self.weight, confidence)
        overall["calibration_bias_difference"] = self._bias_gap(confidence)
        member = self.groups.membership(self.weight)
        each = {name: self._of(member[:, code], confidence) for code, name in enumerate(names)}
        return frame_of(overall, "metric"), by_group(each)

    def _of(self, weight: Array, confidence: float) -> dict[str, Interval]:
        some = weight > 0
        p, y, w = self.chance[some], self.truth[some], weight[some]
        inside = p.clip(SMALLEST, 1 - SMALLEST)
        losses = -np.where(y == 1, np.log(inside), np.log1p(-inside))
        return {
            "auc": area(p, y, w, confidence),
            "log_loss": mean_of(losses, w, confidence, (0, np.inf)),
            "brier": mean_of((p - y) ** 2, w, confidence, (0, 1)),
            "calibration_bias": mean_of(p - y, w, confidence, (-1, 1)),
            "calibration_error": (float(calibration_error(binned(p, y, w))), np.nan, np.nan),
        }

    def _bias_gap(self, confidence: float) -> Interval:
        """The largest difference of two groups' calibration bias."""
        off, names = self.chance - self.truth, self.groups.names
        member = self.groups.membership(self.weight)[:, : len(names)]
        found = [_moments(off, member[:, code]) for code in range(len(names))]
        mean, error, size = (np.array(part)[:, None] for part in zip(*found, strict=True))
        gap = float(mean.max() - mean.min())
        low, high = Compared.means(mean, error, size).gap("worst_case", confidence)
        return gap, min(float(low), gap), min(max(float(high), gap), 2.0)


def area(p: Array, y: NDArray[np.int64], weight: Array, confidence: float) -> Interval:
    """The area under the ROC curve, ties counting half, with Wilson's interval.

    Its variance is DeLong's: of each row, the share of the rows of the other label that it is on
    the right side of.
    """
    order, ties = np.unique(p, return_inverse=True)
    each = [np.bincount(ties, weight * (y == label), len(order)) for label in (0, 1)]
    totals = [part.sum() for part in each]
    if min(totals) == 0:
        return np.nan, np.nan, np.nan
    below = [(part.cumsum() - part / 2) / total for part, total in zip(each, totals, strict=True)]
    right = np.where(y == 1, below[0][ties], 1 - below[1][ties])
    value = float((weight * right)[y == 1].sum() / totals[1])
    parts = [weight[y == label] / totals[label] for label in (0, 1)]
    variance = sum(
        float((part**2) @ (right[y == label] - value) ** 2) for label, part in enumerate(parts)
    )
    fewest = min(1 / float(part @ part) for part in parts)
    rows = value * (1 - value) / variance if variance > 0 and 0 < value < 1 else fewest
    low, high = wilson(np.array(value), np.array(rows), confidence)
    return value, float(low), float(high)


def mean_of(
    values: Array,
    weight: Array,
    confidence: float,
    ends: tuple[float, float] = (-np.inf, np.inf),
) -> Interval:
    """A weighted mean with Student's interval, inside what values can be."""
    mean, error, size = _moments(values, weight)
    half = float(t_quantile((1 - confidence) / 2, max(size - 1, 1))) * error
    return mean, max(mean - half, ends[0]), min(mean + half, ends[1])


def _moments(values: Array, weight: Array) -> tuple[float, float, float]:
    """The mean, its standard error, and how many rows of equal weight it is worth (Kish)."""
    total = weight.sum()
    if total == 0:
        return np.nan, np.nan, 0.0
    share = weight / total
    mean, size = float(share @ values), float(1 / (share @ share))
    spread = float(share @ (values - mean) ** 2)
    return mean, float(np.sqrt(ratio_of(np.array(spread), np.array(size - 1), empty=np.nan))), size


def binned(p: Array, y: NDArray[np.int64], weight: Array) -> Array:
    """Rows, sum of chances and rows with the label in each bin, ``(BINS, 3)``."""
    place = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    return np.stack(
        [np.bincount(place, weight * part, BINS) for part in (np.ones_like(p), p, y)], 1
    )


def frame_of(rows: Mapping[Any, Interval], name: str) -> pd.DataFrame:
    frame = pd.DataFrame.from_dict(dict(rows), orient="index", columns=COLUMNS, dtype=float)
    return frame.rename_axis(name)


def by_group(each: Mapping[str, Mapping[str, Interval]]) -> pd.DataFrame:
    """One line for each group and measure."""
    rows = {(name, one): ends for name, found in each.items() for one, ends in found.items()}
    index = pd.MultiIndex.from_tuples(list(rows), names=["group", "measure"])
    return pd.DataFrame(list(rows.values()), index, COLUMNS, dtype=float)


def look_like_scores(y_true: Any, values: Any) -> bool:
    """Whether these are chances of the second of two labels, and not labels."""
    given = np.asarray(unwrapped(values))
    if given.dtype.kind != "f" or given.size == 0 or np.isnan(given).any():
        return False
    if given.ndim == 2 and given.shape[1] == 2:
        return bool(((given >= -ROUNDED) & (given <= 1 + ROUNDED)).all())
    inside, whole = (given >= -ROUNDED) & (given <= 1 + ROUNDED), given == given.round()
    if given.ndim > 2 or not inside.all() or whole.all():
        return False
    return len(np.unique(vector("y_true", y_true))) <= 2  # else fractions are labels, or a mistake


def read_scores(name: str, values: Any, rows: int) -> Array:
    """Chances ``(N,)`` from a vector, or from two columns as ``predict_proba`` gives them."""
    given = np.asarray(unwrapped(values))
    if given.ndim == 2 and given.shape[1] > 2:
        raise InvalidInputError(
            f"`{name}` must be the chance of one of two labels, got {given.shape[1]} columns: for "
            "several labels audit the predicted labels."
        )
    p = numbers(name, given[:, 1] if given.ndim == 2 and given.shape[1] == 2 else values, rows)
    outside = (p < -ROUNDED) | (p > 1 + ROUNDED)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise InvalidInputError(
            f"`{name}` must be chances from 0 to 1, but row {row} holds {p[row]:g}: turn log-odds "
            "s into chances by 1 / (1 + exp(-s)); of points on another scale audit the decisions "
            "that are made from them."
        )
    return p.clip(0, 1)


def accepted(chance: Array, threshold: Any, weight: Array | None) -> NDArray[np.bool_]:
    """Which rows are accepted, by their chance of the favourable label; by default above 0.5."""
    cut = check_threshold(threshold)
    if isinstance(cut, TopShare):
        return chance > top_cut(chance, cut.share, weight)
    if cut is None and threshold is None:
        return chance > 0.5
    return chance >= (0.5 if cut is None else cut) - ROUNDING
