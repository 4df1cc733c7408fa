"""Intervals of gaps and ratios of rates that also hold where a group has few rows.

Each rate has Wilson's score interval, which is not a point where all or none of the rows were
counted. Intervals of two rates are put together as in Newcombe's hybrid: the margin of a difference
``p - q`` is ``sqrt(margin of p squared + margin of q squared)``, each towards its own side (MOVER).

A gap is the *largest* of many differences: of every pair of groups and of every rate. So

- the upper end is the largest upper end of any pair: one of them is the pair that is truly apart;
- the lower end is the largest lower end of any pair, at a level that allows for looking at all of
  them (Bonferroni, or Scheffe where that is less). It is 0 if no pair is clearly apart.

A bootstrap of the gap does neither. It sees no doubt in a cell where nobody was selected, and the
gaps of its resamples are all above zero, also if there is no gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fairij.fairness.quantiles import (
    chi_squared_quantile,
    normal_above,
    normal_quantile,
    t_quantile,
)
from fairij.fairness.rates import Aggregate

Array = NDArray[np.float64]
Ends = tuple[Array, Array]


def wilson(rate: Array, size: Array, confidence: float) -> Ends:
    """Wilson's interval for a share of ``size`` rows; not a point if all or none were selected."""
    return score_limits(rate, size, float(normal_quantile((1 - confidence) / 2)))


def score_limits(rate: Array, size: Array, z: float) -> Ends:
    """Wilson's interval with ``z`` standard errors."""
    whole = size + z**2
    middle = (rate * size + z**2 / 2) / whole
    half = z * np.sqrt(rate * (1 - rate) * size + z**2 / 4) / whole
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)


@dataclass(frozen=True)
class Compared:
    """Values ``(..., G, P)`` of G groups in P comparisons, each with its margins."""

    values: Array
    margins: Callable[[float], Ends]  # below and above, for so many standard errors
    most: float = np.inf  # that two groups can differ by

    @classmethod
    def shares(cls, rates: Array, sizes: Array) -> Compared:
        """Rates, each over so many rows."""
        return cls(rates, partial(_share_margins, rates, sizes), 1.0)

    @classmethod
    def means(cls, means: Array, errors: Array, sizes: Array) -> Compared:
        """Means of numbers with their standard errors, by Student's t."""
        return cls(means, partial(_mean_margins, errors, sizes))

    def gap(self, fold: Aggregate, confidence: float) -> Ends:
        """The interval of the largest difference between groups, folded over the comparisons."""
        groups, parts = self.values.shape[-2:]
        tail = (1 - confidence) / 2
        surely = _simultaneous(2 * tail, groups, parts, is_sum=fold != "worst_case")
        high = self._folded(fold, float(normal_quantile(tail)), sign=1)
        low = self._folded(fold, surely, sign=-1)
        if groups == 1:
            low, high = np.zeros_like(low), np.zeros_like(high)
        unknown = np.isnan(self.values).any((-2, -1))
        most = self.most * (parts if fold == "sum" else 1)
        return (
            np.where(unknown, np.nan, np.clip(low, 0, None)),
            np.where(unknown, np.nan, np.minimum(high, most)),
        )

    def highest(self, fold: Aggregate, confidence: float) -> Ends:
        """The interval of the highest value of any group, folded over the comparisons."""
        tail = (1 - confidence) / 2
        _, above = self.margins(float(normal_quantile(tail)))
        below, _ = self.margins(float(normal_quantile(tail / np.prod(self.values.shape[-2:]))))
        folds: dict[Aggregate, Callable[..., Array]]
        folds = {"worst_case": np.max, "sum": np.sum, "mean": np.mean}
        low, high = ((self.values + part).max(-2) for part in (-below, above))
        return folds[fold](low, -1), folds[fold](high, -1)

    def _folded(self, fold: Aggregate, z: float, sign: int) -> Array:
        """The largest upper (1) or lower (-1) end of any choice of a pair in each comparison."""
        below, above = self.margins(z)
        if sign < 0:
            below, above = above, below
        shape = (*self.values.shape[:-2], self.values.shape[-1])
        # of two choices of a pair: the widest end, and the largest difference
        ends = [np.full(shape, -np.inf), np.full(shape, -np.inf)]
        apart, margin = ([np.zeros(shape), np.zeros(shape)] for _ in range(2))
        for code in range(self.values.shape[-2]):  # the group that is above the other one
            one = slice(code, code + 1)
            difference = self.values[..., one, :] - self.values  # (..., G, P)
            squares = above[..., one, :] ** 2 + below**2
            for place, of_place in enumerate((difference + sign * np.sqrt(squares), difference)):
                by = of_place.copy()
                by[..., one, :] = -np.inf  # a group is not compared with itself
                best = by.argmax(-2)[..., None, :]
                found, d, m = (
                    np.take_along_axis(array, best, -2)[..., 0, :]
                    for array in (by, difference, squares)
                )
                better = found > ends[place]
                ends[place] = np.where(better, found, ends[place])
                apart[place] = np.where(better, d, apart[place])
                margin[place] = np.where(better, m, margin[place])
        if fold == "worst_case":
            return np.max(ends[0], axis=-1)
        parts = self.values.shape[-1] if fold == "mean" else 1
        sums = [d.sum(-1) + sign * np.sqrt(m.sum(-1)) for d, m in zip(apart, margin, strict=True)]
        return np.maximum(*sums) / parts


def _simultaneous(alpha: float, groups: int, parts: int, *, is_sum: bool) -> float:
    """Standard errors that no difference of two groups' rates exceeds, with chance 1 - alpha."""
    pairs = max(groups * (groups - 1) / 2, 1)
    counted = np.log(pairs) * parts + np.log(2) * (parts - 1) if is_sum else np.log(pairs * parts)
    scheffe = float(np.sqrt(chi_squared_quantile(alpha, max(parts * (groups - 1), 1))))
    return min(float(normal_quantile(alpha / 2 * np.exp(-counted))), scheffe)


def _share_margins(rates: Array, sizes: Array, z: float) -> Ends:
    low, high = score_limits(rates, sizes, z)
    return rates - low, high - rates


def _mean_margins(errors: Array, sizes: Array, z: float) -> Ends:
    half = t_quantile(normal_above(z), np.maximum(sizes - 1, 1)) * errors
    half = np.where(sizes > 1, half, np.inf)  # of one row nothing is known
    return half, half


def smallest_ratio(rates: Array, sizes: Array, confidence: float) -> Ends:
    """The interval of the smallest ratio of two groups' rates ``(..., G, P)``, of all P.

    Margins are those of logarithms. The ends change sides: a small ratio is a large gap.
    """
    groups, parts = rates.shape[-2:]
    tail = (1 - confidence) / 2
    surely = _simultaneous(2 * tail, groups, parts, is_sum=False)
    low = _smallest(rates, sizes, float(normal_quantile(tail)), sign=-1)
    high = _smallest(rates, sizes, surely, sign=1)
    unknown = np.isnan(rates).any((-2, -1))
    low, high = (np.where(unknown, np.nan, np.clip(end, 0, 1)) for end in (low, high))
    return low, high


def _smallest(rates: Array, sizes: Array, z: float, sign: int) -> Array:
    below, above = score_limits(rates, sizes, z)
    middle = np.where(rates > 0, rates, z**2 / 2 / (sizes + z**2))  # none counted: Wilson's middle
    with np.errstate(divide="ignore"):
        low, mid, high = np.log(below), np.log(middle), np.log(above)
    part, whole = (high - mid, mid - low) if sign > 0 else (mid - low, high - mid)
    found = np.full((*rates.shape[:-2], rates.shape[-1]), np.inf)
    for code in range(rates.shape[-2]):  # the group whose rate is the larger one
        one = slice(code, code + 1)
        margin = np.sqrt(part**2 + whole[..., one, :] ** 2)
        ends = np.exp(mid - mid[..., one, :] + sign * margin)
        ends[..., one, :] = np.inf  # of itself
        found = np.minimum(found, ends.min(-2))
    return np.asarray(found.min(-1))
