"""Every thresholded group metric is a function of one small table of counts.

``counts[..., g, t, p]`` is the (weighted) number of rows of group ``g`` with true class ``t`` and
predicted class ``p``. Leading axes, if any, run over candidate models or bootstrap resamples.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fairij.errors import InvalidInputError

Array = NDArray[np.float64]
Method = Literal["between_groups", "to_overall"]
Aggregate = Literal["worst_case", "mean", "sum"]


def confusion_counts(
    y_true: NDArray[np.int64],
    y_pred: NDArray[np.int64],
    codes: NDArray[np.int64],
    *,
    n_groups: int,
    n_classes: int,
    sample_weight: Array | None = None,
) -> Array:
    """Count by (group, true class, predicted class); ``y_pred`` may have leading axes."""
    cell = (codes * n_classes + y_true) * n_classes  # (N,)
    size = n_groups * n_classes * n_classes
    flat = y_pred.reshape(-1, y_pred.shape[-1])
    table = np.stack(
        [np.bincount(cell + row, weights=sample_weight, minlength=size) for row in flat]
    )
    return table.reshape(*y_pred.shape[:-1], n_groups, n_classes, n_classes).astype(np.float64)


def selection_rates(counts: Array) -> Array:
    """``P(prediction = c | group)``, shape ``(..., G, C)``."""
    return _ratio(counts.sum(-2), counts.sum((-2, -1))[..., None])


def true_positive_rates(counts: Array) -> Array:
    """``P(prediction = c | truth = c, group)``, shape ``(..., G, C)``."""
    return _ratio(np.diagonal(counts, axis1=-2, axis2=-1), counts.sum(-1))


def false_positive_rates(counts: Array) -> Array:
    """``P(prediction = c | truth != c, group)``, shape ``(..., G, C)``."""
    wrong = counts.sum(-2) - np.diagonal(counts, axis1=-2, axis2=-1)
    return _ratio(wrong, counts.sum((-2, -1))[..., None] - counts.sum(-1))


def accuracy_rates(counts: Array) -> Array:
    """``P(prediction = truth | group)``, shape ``(..., G)``."""
    return _ratio(np.trace(counts, axis1=-2, axis2=-1), counts.sum((-2, -1)))


def overall(counts: Array) -> Array:
    """The same table with all groups together, shape ``(..., 1, C, C)``."""
    return counts.sum(-3, keepdims=True)


def accuracy(counts: Array) -> Array:
    return accuracy_rates(overall(counts))[..., 0]


def balanced_accuracy(counts: Array) -> Array:
    """The mean of the recalls of the classes that occur."""
    table = overall(counts)[..., 0, :, :]
    occurs = table.sum(-1) > 0
    recalls = _ratio(np.diagonal(table, axis1=-2, axis2=-1), table.sum(-1))
    return (recalls * occurs).sum(-1) / occurs.sum(-1)


def spread(rates: Array, total: Array, *, method: Method, ratio: bool = False) -> Array:
    """The difference (or ratio) of a rate between groups; the group axis is ``-2``.

    ``between_groups``: largest minus smallest (smallest over largest). ``to_overall``: the
    largest distance to (smallest ratio with) the rate of all rows together.
    """
    if method == "between_groups":
        high, low = rates.max(-2), rates.min(-2)
        return _ratio_or_one(low, high) if ratio else high - low
    if method == "to_overall":
        if not ratio:
            return np.abs(rates - total).max(-2)
        quotient = _ratio_or_one(rates, np.broadcast_to(total, rates.shape))
        return np.minimum(quotient, 1 / np.where(quotient == 0, 1, quotient)).min(-2)
    raise InvalidInputError(f"`method` must be 'between_groups' or 'to_overall', got {method!r}.")


def aggregate(parts: Array, agg: Aggregate, *, ratio: bool = False) -> Array:
    """Fold the last axis (rates or classes): the worst, the mean or the sum."""
    if agg == "worst_case":
        return parts.min(-1) if ratio else parts.max(-1)
    if agg == "mean":
        return parts.mean(-1)
    if agg == "sum" and not ratio:
        return parts.sum(-1)
    allowed = "'worst_case' or 'mean'" if ratio else "'worst_case', 'mean' or 'sum'"
    raise InvalidInputError(f"`agg` must be {allowed}, got {agg!r}.")


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


def _ratio(part: Array, whole: Array) -> Array:
    """``part / whole``, and 0 where there are no rows, as fairlearn has it."""
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole != 0)


def _ratio_or_one(low: Array, high: Array) -> Array:
    return np.divide(low, high, out=np.ones_like(high), where=high != 0)
