"""What follows from a table of counts: rates of groups, gaps and ratios, each with its interval."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairij.fairness.intervals import Compared, score_limits, smallest_ratio, wilson
from fairij.fairness.quantiles import normal_quantile
from fairij.fairness.rates import (
    AUDITED_RATES,
    GAPS,
    NEGATIVE_PREDICTIVE_VALUE,
    PRECISION,
    Array,
    Gap,
    Rate,
    measures,
    ratio_of,
)

Interval = tuple[float, float, float]  # value, low, high


@dataclass(frozen=True)
class Counted:
    """Confusion counts ``(G, C, C)`` by group, true and predicted class.

    Groups beyond the first ``n_groups`` are of rows whose group is not known.
    """

    table: Array
    squares: Array  # the same table of squared weights
    n_groups: int | None = None
    of_all: Array | None = None  # squared weights without groups (C, C), if rows are in several

    @property
    def known(self) -> Array:
        """The counts of rows that have a group."""
        return self.table[: self.n_groups]

    def size(self, rate: Rate) -> Array:
        """Rows of equal weight that a rate is worth, ``(G, K)``: Kish's (sum w)^2 / sum w^2."""
        rows, squares = rate.rows(self.known), rate.rows(self.squares[: self.n_groups])
        return ratio_of(rows**2, squares, empty=0)

    def _squares_of_all(self) -> Array:
        return self.squares.sum(0) if self.of_all is None else self.of_all

    def rate_intervals(self, classes: Iterable[Any], confidence: float) -> dict[str, Array]:
        """``value, low, high`` of each group, ``(3, G)``, for every rate and class."""
        found = dict[str, Array]()
        for rate in (*AUDITED_RATES, PRECISION, NEGATIVE_PREDICTIVE_VALUE):
            values = rate.of_groups(self.known, strict=True)  # (G, K)
            ends = np.stack([values, *wilson(values, self.size(rate), confidence)])
            found |= rate.by_class(ends, classes)
        return found

    def metrics(self, confidence: float) -> dict[str, Interval]:
        """Every performance and gap; NaN where a group lacks the rows that it needs."""
        values = measures(self.table, self.n_groups)
        ends = {
            "accuracy": self._accuracy(confidence),
            "balanced_accuracy": self._balanced_accuracy(confidence),
        }
        for gap in GAPS.values():
            if gap.is_classification:
                ends[gap.metric_name] = self._ends(gap, confidence)
        return {name: _interval(value, *ends[name]) for name, value in values.items()}

    def ratios(self, confidence: float) -> dict[str, Interval]:
        """The smallest ratio of each family of gaps: of the lowest rate to the highest."""
        found = {}
        for gap in GAPS.values():
            is_first = gap.name == gap.family and gap.form == "difference"
            if gap.is_classification and is_first:
                rates, sizes = self._compared(gap)
                value = gap.of_counts(self.known, agg="worst_case", ratio=True)
                known = np.nan if np.isnan(rates).any() else float(value)
                ends = smallest_ratio(rates, sizes, confidence)
                found[f"{gap.name}_ratio"] = _interval(known, *ends)
        return found

    def fewest_rows(self) -> dict[str, Array]:
        """The rows that the rates of each family of gaps are taken over in each group, ``(G,)``.

        Rows of equal weight, the fewest of all rates and classes.
        """
        gaps = [gap for gap in GAPS.values() if gap.is_classification and gap.name == gap.family]
        return {gap.name: self._compared(gap)[1].min(-1) for gap in gaps}

    def _ends(self, gap: Gap, confidence: float) -> tuple[Array, Array]:
        """The interval of a gap, by the form in which it compares groups."""
        rates, sizes = self._compared(gap)
        if gap.form == "ratio":
            low, high = smallest_ratio(rates, sizes, confidence)
            return 1 - high, 1 - low
        compared = Compared.shares(rates, sizes)
        of_form = compared.highest if gap.form == "highest" else compared.gap
        return of_form(gap.fold, confidence)

    def _compared(self, gap: Gap) -> tuple[Array, Array]:
        """The rates of a gap and their numbers of rows, ``(G, P)`` each."""
        rates = [rate.of_groups(self.known, strict=True) for rate in gap.rates]
        return np.concatenate(rates, -1), np.concatenate([self.size(r) for r in gap.rates], -1)

    def _accuracy(self, confidence: float) -> tuple[Array, Array]:
        total = self.table.sum()
        right = np.trace(self.table.sum(0)) / total
        return wilson(right, total**2 / self._squares_of_all().sum(), confidence)

    def _balanced_accuracy(self, confidence: float) -> tuple[Array, Array]:
        """Each class's share of right rows has its own margins; those of a mean add in squares."""
        whole = Counted(self.table.sum(0, keepdims=True), self._squares_of_all()[None])
        recalls, sizes = whole.recalls()
        low, high = score_limits(recalls, sizes, float(normal_quantile((1 - confidence) / 2)))
        n, middle = max(len(recalls), 1), recalls.sum()
        below, above = (np.sqrt(((end - recalls) ** 2).sum()) for end in (low, high))
        return (middle - below) / n, (middle + above) / n

    def recalls(self) -> tuple[Array, Array]:
        """The share of right rows of each class that occurs in the first group, and its rows."""
        table, squares = self.table[0], self.squares[0]
        rows = table.sum(-1)
        occurs = rows > 0
        rates = np.diagonal(table)[occurs] / rows[occurs]
        return rates, ratio_of(rows[occurs] ** 2, squares.sum(-1)[occurs], empty=0)


def _interval(value: Any, low: Any, high: Any) -> Interval:
    """The value lies between its ends, also where rounding would have it outside."""
    v = float(value)
    if np.isnan(v):
        return np.nan, np.nan, np.nan
    return v, min(float(low), v), max(float(high), v)
