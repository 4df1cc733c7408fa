"""The table of gaps: one line per constraint, from which everything else follows.

A gap says which rates are compared between groups and how several differences become one number.
From its line follow the smooth form and its gradient (`surrogates`, `constraints`), the hard metric
and functions with fairlearn's signature (`metrics`), rows of audits (`audits`), the check of group
sizes (`sizes`), the words on the report page, and the table in the documentation. This module
imports neither torch nor pandas, so that the command line can list the names quickly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.fairness.counts import overall, ratio_of
from fairij.fairness.rates import (
    ACCURACY,
    FALSE_NEGATIVE_RATE,
    FALSE_POSITIVE_RATE,
    MEAN_ERROR,
    MEAN_PREDICTION,
    SELECTION_RATE,
    TRUE_POSITIVE_RATE,
    Rate,
)

Array = NDArray[np.float64]
Method = Literal["between_groups", "to_overall"]
Aggregate = Literal["worst_case", "mean", "sum"]
ENDINGS: dict[Aggregate, str] = {"worst_case": "difference", "mean": "mean", "sum": "sum"}


@dataclass(frozen=True)
class Gap:
    """Differences of rates between groups, folded to one number.

    Parameters
    ----------
    name : str
        The name of the constraint.
    rates : tuple of Rate
        The rates that are compared, all of classification or all of regression.
    fold : {"worst_case", "mean", "sum"}, default="worst_case"
        How the differences of all rates and classes become one number.
    balanced : bool, default=False
        Whether an edit closes all differences together. Otherwise it follows their fold, and may
        close one and leave another. Needs ``fold="sum"``.
    audited : bool, default=False
        Whether the gap is among the metrics that every audit shows.
    """

    name: str
    rates: tuple[Rate, ...]
    fold: Aggregate = "worst_case"
    balanced: bool = False
    audited: bool = False

    def __post_init__(self) -> None:
        if len({rate.is_classification for rate in self.rates}) != 1:
            raise InvalidInputError(
                f"`rates` of the gap {self.name!r} must be rates of classification or means of "
                f"regression, and not both; got {[rate.name for rate in self.rates]}."
            )
        if self.balanced and self.fold != "sum":
            raise InvalidInputError(
                f"`fold` of the gap {self.name!r} must be 'sum', as it is balanced; got "
                f"{self.fold!r}."
            )

    @property
    def is_classification(self) -> bool:
        return self.rates[0].is_classification

    @property
    def family(self) -> str:
        """The first gap of the table with these rates: gaps of one family differ in the fold."""
        return next((gap.name for gap in GAPS.values() if gap.rates == self.rates), self.name)

    @property
    def metric_name(self) -> str:
        """The name of the metric in audits, as ``demographic_parity_difference``."""
        return f"{self.family}_{ENDINGS[self.fold]}"

    @property
    def words(self) -> str:
        """The metric in plain words, as "equalized odds gap (sum)"."""
        if not self.is_classification:
            return f"gap of {self.rates_in_words}"
        told = len(self.rates) == 1 and self.fold == "worst_case"
        fold = "" if told else f" ({self.fold.replace('_', ' ')})"
        return f"{self.family.replace('_', ' ')} gap{fold}"

    @property
    def rates_in_words(self) -> str:
        """The rates, as "true positive rates and false positive rates"."""
        return " and ".join(rate.words for rate in self.rates)

    @property
    def compares(self) -> str:
        """What is compared and how, in plain words."""
        return self.rates_in_words + (
            "; the differences are closed together" if self.balanced else ""
        )

    @property
    def formula(self) -> str:
        """The definition, with the fold if there can be several differences."""
        parts = " and ".join(f"(max_g - min_g) {rate.formula}" for rate in self.rates)
        if len(self.rates) == 1 and not self.rates[0].has_classes:
            return parts
        fold = {"worst_case": "largest", "mean": "mean", "sum": "sum"}[self.fold]
        return f"{fold} over c of {parts}"

    def metric(self, *data: Any) -> Array:
        """The hard gap: of ``counts``, or in regression of ``values (..., N), y, groups``."""
        if self.is_classification:
            return self.measured(*data)
        return self.of_means(*data)

    def measured(
        self,
        counts: Array,
        *,
        method: Method = "between_groups",
        agg: Aggregate | None = None,
        ratio: bool = False,
    ) -> Array:
        """The gap (or ratio) of a table of counts, one number for each leading entry."""
        parts = [_spread(rate, counts, method, ratio) for rate in self.rates]
        return _folded(parts, agg or self.fold, ratio=ratio)

    def of_means(
        self, predicted: Array, y: Array, groups: Any, weight: Array | None = None
    ) -> Array:
        """The gap of means in regression, one number for each leading entry."""
        parts = []
        for rate in self.rates:
            means = group_means(rate.values(predicted, y), groups, weight)
            parts.append(np.nanmax(means, -1) - np.nanmin(means, -1))
        return aggregate(np.stack(parts, -1), self.fold)


GAPS: dict[str, Gap] = {}
GAPS |= {
    gap.name: gap
    for gap in (
        Gap("demographic_parity", (SELECTION_RATE,), audited=True),
        Gap("demographic_parity_sum", (SELECTION_RATE,), "sum"),
        Gap("demographic_parity_balanced", (SELECTION_RATE,), "sum", balanced=True),
        Gap("equalized_odds", (TRUE_POSITIVE_RATE, FALSE_POSITIVE_RATE), "sum", audited=True),
        Gap("equalized_odds_balanced", (TRUE_POSITIVE_RATE, FALSE_POSITIVE_RATE), "sum", True),
        Gap("equalized_odds_worst_case", (TRUE_POSITIVE_RATE, FALSE_POSITIVE_RATE), audited=True),
        Gap("equalized_odds_mean", (TRUE_POSITIVE_RATE, FALSE_POSITIVE_RATE), "mean"),
        Gap("equal_opportunity", (TRUE_POSITIVE_RATE,), audited=True),
        Gap("predictive_equality", (FALSE_POSITIVE_RATE,)),
        Gap("false_negative_rate_parity", (FALSE_NEGATIVE_RATE,)),
        Gap("accuracy_parity", (ACCURACY,)),
        Gap("mean_prediction", (MEAN_PREDICTION,), audited=True),
        Gap("mean_error", (MEAN_ERROR,), audited=True),
    )
}


def gaps_by_metric(counts: Array) -> dict[str, Array]:
    """Every gap of counts, by the name of its metric. Each rate is computed once."""
    gaps = [gap for gap in GAPS.values() if gap.is_classification]
    rates = {rate for gap in gaps for rate in gap.rates}
    spreads = {rate: _spread(rate, counts, "between_groups", ratio=False) for rate in rates}
    folds = {gap.metric_name: gap for gap in gaps}
    return {
        name: _folded([spreads[rate] for rate in gap.rates], gap.fold)
        for name, gap in folds.items()
    }


def markdown() -> str:
    """The table of all constraints for the documentation: name, what it compares, formula."""
    head = ["| constraint | what it compares between groups | gap |", "|---|---|---|"]
    rows = [(f"`{gap.name}`", gap.compares, f"`{gap.formula}`") for gap in GAPS.values()]
    return "\n".join(head + [f"| {' | '.join(row)} |" for row in rows])


def group_means(values: Array, groups: Any, weight: Array | None = None) -> Array:
    """The mean of ``values (..., N)`` in each group, ``(..., G)``; NaN for a group without rows."""
    member = np.zeros((len(groups), len(groups.names)))
    member[np.arange(len(groups)), groups.codes] = 1.0 if weight is None else weight
    return ratio_of(values @ member, member.sum(0), empty=np.nan)


def aggregate(parts: Array, agg: Aggregate, *, ratio: bool = False) -> Array:
    """Fold the last axis (rates and classes): the worst, the mean or the sum.

    Undefined ratios are left out; the result is NaN only if none is defined. There fairlearn's
    worst case depends on the order of its two rates.
    """
    if agg == "worst_case":
        return np.fmin.reduce(parts, -1) if ratio else np.fmax.reduce(parts, -1)
    if agg == "mean":
        return ratio_of(np.nansum(parts, -1), (~np.isnan(parts)).sum(-1), empty=np.nan)
    if agg == "sum" and not ratio:
        return parts.sum(-1)
    allowed = [name for name in get_args(Aggregate) if not (ratio and name == "sum")]
    raise InvalidInputError(f"`agg` must be one of {allowed}, got {agg!r}.")


def _folded(parts: list[Array], agg: Aggregate, *, ratio: bool = False) -> Array:
    together = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
    return aggregate(together, agg, ratio=ratio)


def _spread(rate: Rate, counts: Array, method: Method, ratio: bool) -> Array:
    """The difference (or ratio) of a rate between groups, ``(..., K)`` for K classes.

    ``between_groups``: largest minus smallest (smallest over largest). ``to_overall``: the largest
    distance to (smallest ratio with) the rate of all rows. fmin and fmax pass over the NaN of
    groups without rows, min and max would not.
    """
    if method not in get_args(Method):
        raise InvalidInputError(f"`method` must be one of {get_args(Method)}, got {method!r}.")
    rates = rate.of_groups(counts)
    if method == "between_groups":
        low, high = np.fmin.reduce(rates, -2), np.fmax.reduce(rates, -2)
        return ratio_of(low, high, empty=np.nan) if ratio else high - low
    total = rate.of_groups(overall(counts))
    low, high = np.minimum(rates, total), np.maximum(rates, total)
    if ratio:
        return np.fmin.reduce(ratio_of(low, high, empty=np.nan), -2)
    return np.fmax.reduce(high - low, -2)
