"""How much the gap of a chosen edit grows on new rows.

The candidate with the smallest gap on the validation rows is partly the luckiest one. So the choice
is repeated on resamples of the rows, and each chosen gap is measured on a second, independent
resample. What labels alone do not tell, such as the AUC, stays as it was on all rows: a candidate
over a budget of it is never taken. The candidates are not computed again: if they come from the
rows of the choice, as with ``validation="reuse"``, the expected gap is too low.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, nan, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fairij.fairness.rates import performances

Array = NDArray[np.float64]
MOST_ROWS = 2**17  # with more rows luck hardly matters, so the choice is not recorded
DRAWS_AT_ONCE = 2**19  # resamples times patterns
Z = NormalDist().inv_cdf(0.975)  # confidence 0.95
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
        whole = keys.view(np.dtype((np.void, keys.shape[1]))).ravel()
        _, first, times = np.unique(whole, return_index=True, return_counts=True)
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
            found[:, :, cell, 0] = part.sum(1)[:, None] - found[:, :, cell, 1:].sum(-1)
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


@dataclass(frozen=True)
class Choice:
    """What is needed to repeat the choice of a run."""

    patterns: Patterns
    metric: Callable[[Array], Array]  # the gap of confusion counts
    choose: Callable[[Mapping[str, Array]], int]  # of measures by name, as rules of choice have it
    gap: float  # of the chosen candidate
    confidence: float = 0.95
    seed: int = 0
    # what else counts say of the candidates, by name, (R, K) each
    measures: Callable[[Array], Mapping[str, Array]] = performances
    # (K,) measures that counts do not give, such as the AUC: those of all rows, in every resample
    fixed: Mapping[str, Array] = field(default_factory=dict)

    def honest_gap(self, n_resamples: int = 200) -> HonestGap:
        """Repeat the choice on resamples, and measure each chosen one on another resample."""
        rng, patterns = np.random.default_rng(self.seed), self.patterns
        counted = patterns.predictions.shape[1] * patterns.n_groups * patterns.n_classes**2
        at_once = max(1, min(DRAWS_AT_ONCE // len(patterns.cells), COUNTS_AT_ONCE // counted))
        parts = [
            self._repeated(min(at_once, n_resamples - start), rng)
            for start in range(0, n_resamples, at_once)
        ]
        seen, fresh = np.concatenate(parts, 1)
        usable = np.isfinite(seen) & np.isfinite(fresh)
        if not usable.any():
            return HonestGap(self.gap, nan, nan, nan, nan, self.confidence)
        tail = (1 - self.confidence) / 2
        low, high = map(float, np.quantile(fresh[usable], [tail, 1 - tail]))
        expected, optimism = float(fresh[usable].mean()), float((fresh - seen)[usable].mean())
        return HonestGap(self.gap, expected, low, high, optimism, self.confidence)

    def _repeated(self, times: int, rng: np.random.Generator) -> Array:
        """The gap of each chosen one on the resample of its choice and on another, ``(2, R)``."""
        table = self.patterns.tables(self.patterns.resampled(rng, times))
        gaps = _defined(self.metric(table))  # (R, K)
        columns = {"gap": gaps, **self.measures(table)}
        chosen = np.array(
            [
                self.choose({**self.fixed, **{name: all_[row] for name, all_ in columns.items()}})
                for row in range(times)
            ]
        )
        again = self.patterns.tables_of(chosen, self.patterns.resampled(rng, times))
        seen = np.take_along_axis(gaps, chosen[:, None], 1)[:, 0]
        return np.stack([seen, _defined(self.metric(again))])


def _defined(gaps: Array) -> Array:
    return np.where(np.isnan(gaps), np.inf, gaps)


def rows_needed(rate: float, gap: float) -> int:
    """Rows of each of two groups that show their gap to within it: ``2 z^2 p (1 - p) / gap^2``."""
    return ceil(2 * Z**2 * rate * (1 - rate) / gap**2)


def half_width(rate: float, rows: int) -> float:
    """How far the rate of one group may be off: ``z sqrt(p (1 - p) / rows)``."""
    return Z * sqrt(rate * (1 - rate) / rows)
