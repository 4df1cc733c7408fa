"""A frozen, slow copy of the gaps as they were written by hand, before they came from a table.

The gaps that are derived from the table of rates must equal these to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = Any
Aggregate = Method = str
FOLDS: dict[str, Callable[[Tensor], Tensor]] = {
    "worst_case": torch.amax,
    "mean": torch.mean,
    "sum": torch.sum,
}


def selection_rates(counts: Array) -> Array:
    """``P(prediction = c | group)``, shape ``(..., G, C)``."""
    return _rates(counts, counts.sum(-2), counts.sum((-2, -1))[..., None])


def true_positive_rates(counts: Array) -> Array:
    """``P(prediction = c | truth = c, group)``, shape ``(..., G, C)``."""
    return _rates(counts, np.diagonal(counts, axis1=-2, axis2=-1), counts.sum(-1))


def false_positive_rates(counts: Array) -> Array:
    """``P(prediction = c | truth != c, group)``, shape ``(..., G, C)``."""
    other = 1 - np.eye(counts.shape[-1])  # sums over t != c; a difference of sums would cancel
    return _rates(counts, (counts * other).sum(-2), counts.sum(-1) @ other)


def overall(counts: Array) -> Array:
    """The same table with all groups together, shape ``(..., 1, C, C)``."""
    return counts.sum(-3, keepdims=True)


def spread(rates: Array, total: Array, *, method: Method, ratio: bool = False) -> Array:
    """The difference (or ratio) of a rate between groups; the group axis is ``-2``.

    ``between_groups``: largest minus smallest (smallest over largest). ``to_overall``: the
    largest distance to (smallest ratio with) the rate of all rows together. Empty groups, whose
    rate is NaN, are passed over: so fmin and fmax, not min and max.
    """
    if method == "between_groups":
        low, high = np.fmin.reduce(rates, -2), np.fmax.reduce(rates, -2)
        return ratio_of(low, high, empty=np.nan) if ratio else high - low
    if method == "to_overall":
        low, high = np.minimum(rates, total), np.maximum(rates, total)
        if ratio:
            return np.fmin.reduce(ratio_of(low, high, empty=np.nan), -2)
        return np.fmax.reduce(high - low, -2)
    raise ValueError(method)


def aggregate(parts: Array, agg: Aggregate, *, ratio: bool = False) -> Array:
    """Fold the last axis (rates or classes): the worst, the mean or the sum."""
    defined = ~np.isnan(parts)
    if agg == "worst_case":
        return np.fmin.reduce(parts, -1) if ratio else np.fmax.reduce(parts, -1)
    if agg == "mean":
        return ratio_of(np.nansum(parts, -1), defined.sum(-1), empty=np.nan)
    if agg == "sum" and not ratio:
        return parts.sum(-1)
    raise ValueError(agg)


def of_interest(rates: Array) -> Array:
    """The rates of the positive class of two, or of every class (one against the rest) of more."""
    return rates[..., 1:] if rates.shape[-1] == 2 else rates


def demographic_parity(
    counts: Array,
    *,
    method: Method = "between_groups",
    agg: Aggregate = "worst_case",
    ratio: bool = False,
) -> Array:
    """The spread of selection rates; with more than two classes, ``agg`` over classes."""
    rates, total = selection_rates(counts), selection_rates(overall(counts))
    parts = spread(of_interest(rates), of_interest(total), method=method, ratio=ratio)
    return aggregate(parts, agg, ratio=ratio)


def equalized_odds(
    counts: Array,
    *,
    method: Method = "between_groups",
    agg: Aggregate = "worst_case",
    ratio: bool = False,
) -> Array:
    """The spreads of true and of false positive rates, folded by ``agg``.

    ``agg="sum"`` is the paper's definition, ``"worst_case"`` and ``"mean"`` are fairlearn's.
    """
    parts = [
        spread(of_interest(f(counts)), of_interest(f(overall(counts))), method=method, ratio=ratio)
        for f in (true_positive_rates, false_positive_rates)
    ]
    return aggregate(np.concatenate(parts, axis=-1), agg, ratio=ratio)


def equal_opportunity(
    counts: Array,
    *,
    method: Method = "between_groups",
    agg: Aggregate = "worst_case",
    ratio: bool = False,
) -> Array:
    """The spread of true positive rates."""
    rates, total = true_positive_rates(counts), true_positive_rates(overall(counts))
    parts = spread(of_interest(rates), of_interest(total), method=method, ratio=ratio)
    return aggregate(parts, agg, ratio=ratio)


def ratio_of(part: Array, whole: Array, *, empty: float) -> Array:
    """``part / whole``, and ``empty`` where ``whole`` is 0."""
    out = np.full(np.broadcast_shapes(np.shape(part), np.shape(whole)), float(empty))
    return np.divide(part, whole, out=out, where=whole != 0)


def _rates(counts: Array, part: Array, whole: Array) -> Array:
    """``part / whole`` by group and class: 0 where no rows count, NaN where a group has none."""
    occurs = counts.sum((-2, -1))[..., None] != 0
    return np.where(occurs, ratio_of(part, whole, empty=0.0), np.nan)


def soft_demographic_parity(
    scores: Tensor, y: Tensor, groups: Tensor, *, agg: Aggregate = "worst_case"
) -> Tensor:
    """``max_g E[score | g] - min_g E[score | g]``."""
    return _fold(soft_demographic_parity_parts(scores, y, groups), agg)


def soft_demographic_parity_parts(scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """The gap of each class's mean score, one by one."""
    return _gaps(_columns(scores), groups)


def soft_equalized_odds(
    scores: Tensor, y: Tensor, groups: Tensor, *, agg: Aggregate = "sum"
) -> Tensor:
    """The gaps given each truth, folded: the paper's surrogate is their sum.

    The definition of the metric sums absolute gaps; the paper's influence equation prints the
    absolute value of a sum, which lets the two gaps cancel. This follows the definition.
    """
    return _fold(soft_equalized_odds_parts(scores, y, groups), agg)


def soft_equalized_odds_parts(scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """The gaps given each truth, one by one: of true positives, then of false positives."""
    return torch.cat([_gaps_given(scores, y, groups, truth) for truth in (True, False)])


def soft_equal_opportunity(
    scores: Tensor, y: Tensor, groups: Tensor, *, agg: Aggregate = "worst_case"
) -> Tensor:
    """``max_g E[score | y = 1, g] - min_g E[score | y = 1, g]``."""
    return _fold(_gaps_given(scores, y, groups, True), agg)


def soft_mean_prediction(scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """Regression: ``max_g E[z | g] - min_g E[z | g]``."""
    return _gaps(scores[:, None], groups)[0]


def soft_mean_error(scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """Regression: ``max_g E[z - y | g] - min_g E[z - y | g]``."""
    return _gaps((scores - y)[:, None], groups)[0]


def _columns(scores: Tensor) -> Tensor:
    return scores[:, None] if scores.ndim == 1 else scores


def _gaps_given(scores: Tensor, y: Tensor, groups: Tensor, truth: bool) -> Tensor:
    """The gap of each class's score among rows that are (or are not) of that class."""
    columns = _columns(scores)
    classes = [1] if scores.ndim == 1 else range(columns.shape[1])
    gaps = []
    for column, of_class in enumerate(classes):
        chosen = (y == of_class) == truth
        gaps.append(_gaps(columns[chosen, column : column + 1], groups[chosen]))
    return torch.cat(gaps)


def _gaps(columns: Tensor, groups: Tensor) -> Tensor:
    """``max_g - min_g`` of each column's group means, over the groups that occur; 0 over none."""
    if len(groups) == 0:
        return columns.sum(0)  # zeros that keep their place in the graph
    present, codes = torch.unique(groups, return_inverse=True)
    sums = columns.new_zeros(len(present), columns.shape[1]).index_add(0, codes, columns)
    means = sums / torch.bincount(codes, minlength=len(present))[:, None]
    return means.max(0).values - means.min(0).values


def _fold(gaps: Tensor, agg: Aggregate) -> Tensor:
    if agg not in FOLDS:
        raise ValueError(agg)
    return FOLDS[agg](gaps)


def hard_mean_prediction(z: Array, y: Array, groups: Any) -> Array:
    member = np.zeros((len(groups), len(groups.names)))
    member[np.arange(len(groups)), groups.codes] = 1.0
    means = ratio_of(z @ member, member.sum(0), empty=np.nan)
    return np.asarray(np.nanmax(means, -1) - np.nanmin(means, -1))


def hard_mean_error(z: Array, y: Array, groups: Any) -> Array:
    return hard_mean_prediction(z - y, y, groups)


# by name: the smooth gap, the hard gap, and the parts that are closed together
FORMER: dict[str, tuple[Callable[..., Tensor], Callable[..., Array], Any]] = {
    "demographic_parity": (soft_demographic_parity, demographic_parity, None),
    "demographic_parity_sum": (
        partial(soft_demographic_parity, agg="sum"),
        partial(demographic_parity, agg="sum"),
        None,
    ),
    "demographic_parity_balanced": (
        partial(soft_demographic_parity, agg="sum"),
        partial(demographic_parity, agg="sum"),
        soft_demographic_parity_parts,
    ),
    "equalized_odds": (soft_equalized_odds, partial(equalized_odds, agg="sum"), None),
    "equalized_odds_balanced": (
        soft_equalized_odds,
        partial(equalized_odds, agg="sum"),
        soft_equalized_odds_parts,
    ),
    "equalized_odds_worst_case": (
        partial(soft_equalized_odds, agg="worst_case"),
        equalized_odds,
        None,
    ),
    "equalized_odds_mean": (
        partial(soft_equalized_odds, agg="mean"),
        partial(equalized_odds, agg="mean"),
        None,
    ),
    "equal_opportunity": (soft_equal_opportunity, equal_opportunity, None),
    "mean_prediction": (soft_mean_prediction, hard_mean_prediction, None),
    "mean_error": (soft_mean_error, hard_mean_error, None),
}
