"""How much the gap of a chosen edit grows on new rows.

The interval is for an audit of the chosen edit on as many new rows. Three things part its gap from
the one of the choice:

* The rows of the choice and the new rows both are samples. So gaps are measured on resamples of
  resamples, which have both errors.
* The candidate with the smallest gap is partly the luckiest one. So half of the measurements repeat
  the choice on a resample. The other half keep it: repeating it also adds a spread over candidates,
  which an audit of one edit does not have.
* A gap is an absolute value, so noise makes it larger, and resampling adds noise to noise. So the
  groups of a candidate are first made more alike, until resampling gives the measured gap
  (`with_less_noise`). And as no gap lies below zero, only a quarter of the error is on that side.

What labels alone do not tell, such as the AUC, stays as it was on all rows: a candidate over a
budget of it is never taken. The candidates are not computed again: if they come from the rows of
the choice, as with ``validation_use="reuse"``, the expected gap is too low.
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
BELOW = 0.25  # of the chance that the interval misses, below it


@dataclass(frozen=True)
class HonestGap:
    """The gap of the chosen candidate, and the gap to expect of an audit on as many new rows."""

    gap: float  # on the rows of the choice
    expected: float  # on new rows
    low: float
    high: float
    optimism: float  # the expected gap minus that on the rows of the choice
    confidence: float


@dataclass(frozen=True)
class Patterns:
    """Rows with equal group, label and predictions of all candidates, counted together."""

    predictions: NDArray[np.uint8]  # (U, K)
    cells: NDArray[np.int64]  # (U,) group * classes + label, ascending
    times: NDArray[np.int64]  # (U,)
    n_groups: int
    n_classes: int
    weight: Array | None = None  # (U,) what each of the rows counts; None: all alike

    @classmethod
    def of(
        cls,
        predictions: NDArray[np.uint8],  # (K, N)
        y: NDArray[np.int64],
        codes: NDArray[np.int64],
        *,
        n_groups: int,
        n_classes: int,
        weight: Array | None = None,  # (N,)
    ) -> Patterns:
        cells = (codes * n_classes + y).astype("<i8")
        parts = [cells] if weight is None else [cells, weight.astype("<f8")]
        own = [part.view(np.uint8).reshape(-1, 8) for part in parts]
        keys = np.column_stack([*own, predictions.T])
        keys = np.ascontiguousarray(keys)  # (N, 8 + K) bytes, each row compared as a whole
        whole = keys.view(np.dtype((np.void, keys.shape[1]))).ravel()
        _, first, times = np.unique(whole, return_index=True, return_counts=True)
        order = np.argsort(cells[first], kind="stable")
        first, times = first[order], times[order]
        counted = None if weight is None else weight[first]
        return cls(predictions.T[first], cells[first], times, n_groups, n_classes, counted)

    @property
    def worth(self) -> int:
        """How many rows of equal weight these are worth: ``(sum w)^2 / sum w^2`` (Kish)."""
        if self.weight is None:
            return int(self.times.sum())
        total = float(self.times @ self.weight)
        return max(1, round(total**2 / float(self.times @ self.weight**2)))

    def resampled(self, rng: np.random.Generator, size: int) -> Array:
        """How often each pattern occurs in resamples of all rows, ``(R, U)``."""
        total = int(self.times.sum())
        return rng.multinomial(total, self.times / total, size=size).astype(np.float64)

    def tables(self, times: Array) -> Array:
        """Confusion counts of all candidates, ``(R, K, G, C, C)``, for times ``(R, U)``."""
        times = times if self.weight is None else times * self.weight
        size = self.n_groups * self.n_classes
        ends = np.searchsorted(self.cells, np.arange(size + 1))
        found = np.zeros((len(times), self.predictions.shape[1], size, self.n_classes))
        for cell, (start, stop) in enumerate(pairwise(ends)):
            part, predicted = times[:, start:stop], self.predictions[start:stop]
            for label in range(1, self.n_classes):
                found[:, :, cell, label] = part @ (predicted == label).astype(np.float64)
            found[:, :, cell, 0] = part.sum(1)[:, None] - found[:, :, cell, 1:].sum(-1)
        return found.reshape(*found.shape[:2], self.n_groups, self.n_classes, self.n_classes)


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
        """Measure the choice, and as many repeated ones, on resamples of resamples."""
        rng, patterns = np.random.default_rng(self.seed), self.patterns
        counted = patterns.predictions.shape[1] * patterns.n_groups * patterns.n_classes**2
        at_once = max(1, min(DRAWS_AT_ONCE // len(patterns.cells), COUNTS_AT_ONCE // counted))
        table = patterns.tables(patterns.times[None].astype(np.float64))  # (1, K, G, C, C)
        again = np.concatenate(
            [
                self.chosen(patterns.tables(patterns.resampled(rng, size)))
                for size in np.diff([*range(0, n_resamples, at_once), n_resamples])
            ]
        )
        first = self.chosen(table).repeat(n_resamples)
        audits, fresh = [], []  # with the error of the new rows, and with both
        chosen, counts = np.unique(np.concatenate([first, again]), return_counts=True)
        for which, times in zip(chosen, counts, strict=True):
            found = self._measured(table[0, which], times, rng)
            repeated = int((again == which).sum())
            audits.append(found[0, :repeated])
            fresh.append(found[1])
        audit, new = (np.concatenate(parts) for parts in (audits, fresh))
        audit, new = audit[np.isfinite(audit)], new[np.isfinite(new)]
        if not len(audit):
            return HonestGap(self.gap, nan, nan, nan, nan, self.confidence)
        missed = 1 - self.confidence
        low, high = map(float, np.quantile(new, [BELOW * missed, 1 - (1 - BELOW) * missed]))
        expected = float(audit.mean())
        return HonestGap(self.gap, expected, low, high, expected - self.gap, self.confidence)

    def _measured(self, table: Array, times: int, rng: np.random.Generator) -> Array:
        """Gaps of a candidate with counts ``(G, C, C)`` on resamples, and on resamples of them."""
        rows, shape = self.patterns.worth, (times, *table.shape)
        shares = with_less_noise(table, self.metric, rng, rows=rows).ravel()
        one = rng.multinomial(rows, shares, size=times)
        two = rng.multinomial(rows, rng.multinomial(rows, shares, size=times) / rows)
        return np.stack([_defined(self.metric(draws.reshape(shape) * 1.0)) for draws in (one, two)])

    def chosen(self, table: Array) -> NDArray[np.int64]:
        """The candidates that the rule takes by counts ``(R, K, G, C, C)``."""
        gaps = _defined(self.metric(table))  # (R, K)
        columns = {"gap": gaps, **self.measures(table)}
        return np.array(
            [
                self.choose({**self.fixed, **{name: all_[row] for name, all_ in columns.items()}})
                for row in range(len(gaps))
            ]
        )


def with_less_noise(
    table: Array,
    metric: Callable[[Array], Array],
    rng: np.random.Generator,
    draws: int = 200,
    *,
    rows: int | None = None,
) -> Array:
    """Shares of the counts ``(G, C, C)``, its groups more alike by as much as noise parts them.

    ``rows``: how many rows of equal weight the counts are worth, if that is not their sum.
    Resampling moves the mean gap up from ``gap`` by some bias. Each group becomes ``1 - bias /
    gap`` of itself and the rest of all groups together, which takes about the bias off the gap.
    """
    rows, gap = int(table.sum()) if rows is None else rows, float(metric(table))
    shares = table / table.sum()
    drawn = rng.multinomial(rows, shares.ravel(), size=draws).reshape(draws, *table.shape)
    gaps = metric(drawn.astype(np.float64))
    gaps = gaps[np.isfinite(gaps)]
    if not len(gaps) or not gap > 0:
        return shares
    part = min(1.0, max(0.0, float(gaps.mean()) / gap - 1))
    alike = shares.sum(0, keepdims=True) * shares.sum((1, 2), keepdims=True)
    mixed: Array = (1 - part) * shares + part * alike
    return mixed


def _defined(gaps: Array) -> Array:
    return np.where(np.isnan(gaps), np.inf, gaps)


def rows_needed(rate: float, gap: float) -> int:
    """Rows of each of two groups that show their gap to within it: ``2 z^2 p (1 - p) / gap^2``."""
    return ceil(2 * Z**2 * rate * (1 - rate) / gap**2)


def half_width(rate: float, rows: int) -> float:
    """How far the rate of one group may be off: ``z sqrt(p (1 - p) / rows)``."""
    return Z * sqrt(rate * (1 - rate) / rows)
