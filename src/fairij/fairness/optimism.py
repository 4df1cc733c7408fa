"""How much the gap of a chosen edit grows on new rows.

The candidate with the smallest gap on the validation rows is partly the luckiest one. So the choice
is repeated: one candidate is chosen on a resample of the rows, and its gap is measured on a second,
independent resample. The spread of these gaps is what an audit of as many new rows may show. Their
mean distance to the gaps on the first resample is the optimism of the choice.

The candidates themselves are not computed again. If they were computed from the rows of the choice,
as with ``validation="reuse"``, they can fit the gap of just these rows, and the expected gap is too
low. Only rows that were split off or held out show by how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairij.fairness import counts

Array = NDArray[np.float64]
Choose = Callable[[Array, Array, float], int]  # gaps, performances, performance before -> which
MOST_ROWS = 2**17  # with more rows luck hardly matters, so the choice is not recorded
DRAWS_AT_ONCE = 2**19  # resamples times patterns
COUNTS_AT_ONCE = 2**25  # resamples times candidates times cells of their tables


@dataclass(frozen=True)
class HonestGap:
    """The gap of the chosen candidate, and the gap to expect on new rows."""

    gap: float  # on the rows of the choice
    expected: float  # on new rows
    low: float
    high: float
    optimism: float  # mean gap on new rows minus mean gap on the rows of the choice
    confidence: float


@dataclass(frozen=True)
class Patterns:
    """Rows with equal group, label and predictions of all candidates, counted together."""

    predictions: NDArray[np.uint8]  # (U, K)
    cells: NDArray[np.int64]  # (U,) group * classes + label, ascending
    times: NDArray[np.int64]  # (U,)
    n_groups: int
    n_classes: int

    @classmethod
    def of(
        cls,
        predictions: NDArray[np.uint8],  # (K, N)
        y: NDArray[np.int64],
        codes: NDArray[np.int64],
        *,
        n_groups: int,
        n_classes: int,
    ) -> Patterns:
        cells = (codes * n_classes + y).astype("<i8")
        keys = np.column_stack([cells.view(np.uint8).reshape(-1, 8), predictions.T])
        keys = np.ascontiguousarray(keys)  # (N, 8 + K) bytes, each row compared as a whole
        _, first, times = np.unique(
            keys.view(np.dtype((np.void, keys.shape[1]))).ravel(),
            return_index=True,
            return_counts=True,
        )
        order = np.argsort(cells[first], kind="stable")
        first, times = first[order], times[order]
        return cls(predictions.T[first], cells[first], times, n_groups, n_classes)

    def resampled(self, rng: np.random.Generator, size: int) -> Array:
        """How often each pattern occurs in resamples of all rows, ``(R, U)``."""
        total = int(self.times.sum())
        return rng.multinomial(total, self.times / total, size=size).astype(np.float64)

    def tables(self, times: Array) -> Array:
        """Confusion counts of all candidates, ``(R, K, G, C, C)``, for times ``(R, U)``."""
        size = self.n_groups * self.n_classes
        ends = np.searchsorted(self.cells, np.arange(size + 1))
        found = np.zeros((len(times), self.predictions.shape[1], size, self.n_classes))
        for cell, (start, stop) in enumerate(pairwise(ends)):
            part, predicted = times[:, start:stop], self.predictions[start:stop]
            for label in range(1, self.n_classes):
                found[:, :, cell, label] = part @ (predicted == label).astype(np.float64)
            rest = part.sum(1)[:, None] - found[:, :, cell, 1:].sum(-1)
            found[:, :, cell, 0] = rest
        return found.reshape(*found.shape[:2], self.n_groups, self.n_classes, self.n_classes)

    def tables_of(self, which: NDArray[np.int64], times: Array) -> Array:
        """Confusion counts of one candidate per resample, ``(R, G, C, C)``."""
        place = self.cells[:, None] * self.n_classes + self.predictions[:, which]  # (U, R)
        size = self.n_groups * self.n_classes**2
        found = [
            np.bincount(places, weights=weights, minlength=size)
            for places, weights in zip(place.T, times, strict=True)
        ]
        shape = (-1, self.n_groups, self.n_classes, self.n_classes)
        return np.stack(found).astype(np.float64).reshape(shape)


class Rule(Protocol):
    """How one candidate is chosen; `fairij.method.selection` has such rules."""

    def choose(self, gap: Array, performance: Array, *, before: float) -> int: ...

    @property
    def performance(self) -> str | None: ...


@dataclass(frozen=True)
class Choice:
    """What is needed to repeat the choice of a run."""

    patterns: Patterns
    metric: Callable[[Array], Array]
    rule: Rule
    gap: float  # of the chosen candidate
    confidence: float
    seed: int

    def honest_gap(self) -> HonestGap:
        """Repeat the choice on resamples."""
        balanced = self.rule.performance == "balanced_accuracy"
        return honest_gap(
            self.patterns,
            self.metric,
            lambda gap, level, before: self.rule.choose(gap, level, before=before),
            gap=self.gap,
            performance=counts.balanced_accuracy if balanced else counts.accuracy,
            confidence=self.confidence,
            seed=self.seed,
        )


def honest_gap(
    patterns: Patterns,
    metric: Callable[[Array], Array],
    choose: Choose,
    *,
    gap: float,
    performance: Callable[[Array], Array] = counts.accuracy,
    n_resamples: int = 200,
    confidence: float = 0.95,
    seed: int = 0,
) -> HonestGap:
    """Repeat the choice on resamples, and measure each chosen candidate on another resample.

    Parameters
    ----------
    patterns : Patterns
        The rows, counted.
    metric : callable
        The gap of confusion counts.
    choose : callable
        A function of gaps, performances and the performance before that returns the choice.
    gap : float
        The gap of the chosen candidate on all rows.
    performance : callable, default=accuracy
        The performance of confusion counts.
    n_resamples : int, default=200
        How often the choice is repeated.
    confidence : float, default=0.95
        The confidence of the interval.
    seed : int, default=0
        The seed of the draws.
    """
    rng = np.random.default_rng(seed)
    counted = patterns.predictions.shape[1] * patterns.n_groups * patterns.n_classes**2
    at_once = max(1, min(DRAWS_AT_ONCE // len(patterns.cells), COUNTS_AT_ONCE // counted))
    parts = [
        _repeat(patterns, metric, performance, choose, min(at_once, n_resamples - start), rng)
        for start in range(0, n_resamples, at_once)
    ]
    seen, fresh = np.concatenate(parts, 1)
    usable = np.isfinite(seen) & np.isfinite(fresh)
    if not usable.any():
        return HonestGap(gap, math.nan, math.nan, math.nan, math.nan, confidence)
    tail = (1 - confidence) / 2
    low, high = np.quantile(fresh[usable], [tail, 1 - tail])
    optimism = float((fresh - seen)[usable].mean())
    return HonestGap(
        gap, float(fresh[usable].mean()), float(low), float(high), optimism, confidence
    )


def _repeat(
    patterns: Patterns,
    metric: Callable[[Array], Array],
    performance: Callable[[Array], Array],
    choose: Choose,
    times: int,
    rng: np.random.Generator,
) -> Array:
    """The gap of the chosen candidate on the resample of the choice and on another, ``(2, R)``."""
    table = patterns.tables(patterns.resampled(rng, times))
    gaps, levels = _defined(metric(table)), performance(table)  # (R, K)
    chosen = np.array(
        [choose(gap, level, float(level[0])) for gap, level in zip(gaps, levels, strict=True)]
    )
    fresh = _defined(metric(patterns.tables_of(chosen, patterns.resampled(rng, times))))
    return np.stack([np.take_along_axis(gaps, chosen[:, None], 1)[:, 0], fresh])


def rows_needed(rate: float, gap: float, confidence: float = 0.95) -> int:
    """How many rows each of two groups needs, so that their gap is known to within ``gap``.

    A gap is the difference of two rates, so their variances add up: ``2 z^2 p (1 - p) / gap^2``.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    return math.ceil(2 * z**2 * rate * (1 - rate) / gap**2)


def half_width(rate: float, rows: int, confidence: float = 0.95) -> float:
    """How far the rate of one group may be off: ``z sqrt(p (1 - p) / rows)``."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    return z * math.sqrt(rate * (1 - rate) / rows)


def _defined(gaps: Array) -> Array:
    return np.where(np.isnan(gaps), np.inf, gaps)
