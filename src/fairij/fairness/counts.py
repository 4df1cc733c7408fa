"""Every thresholded group metric is a function of one small table of counts.

``counts[..., g, t, p]`` is the (weighted) number of rows of group ``g`` with true class ``t`` and
predicted class ``p``. Leading axes, if any, run over candidate models or bootstrap resamples.

What is not defined is handled as fairlearn does. A group without rows (or of weight zero) has the
rate NaN and takes no part in a gap. A rate over no rows of a group that has some, such as the true
positive rate of a group without positives, is 0: so look at the sizes before believing a gap. A
ratio 0/0 is NaN. Of several ratios the undefined ones are left out, and the result is NaN only
where none is defined; there fairlearn's worst case depends on the order of its two rates (NaN if
the true positive rates are all zero, the other ratio if the false positive rates are).
"""

from __future__ import annotations

from typing import Any, Literal, get_args

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
    return _rates(counts, counts.sum(-2), counts.sum((-2, -1))[..., None])


def true_positive_rates(counts: Array) -> Array:
    """``P(prediction = c | truth = c, group)``, shape ``(..., G, C)``."""
    return _rates(counts, np.diagonal(counts, axis1=-2, axis2=-1), counts.sum(-1))


def false_positive_rates(counts: Array) -> Array:
    """``P(prediction = c | truth != c, group)``, shape ``(..., G, C)``."""
    other = 1 - np.eye(counts.shape[-1])  # sums over t != c; a difference of sums would cancel
    return _rates(counts, (counts * other).sum(-2), counts.sum(-1) @ other)


def rates_by_name(counts: Array) -> dict[str, Array]:
    """Each group's rates ``(..., G)``; of more than two classes with the class's number."""
    found = {}
    for name, rates in (
        ("selection_rate", selection_rates(counts)),
        ("true_positive_rate", true_positive_rates(counts)),
        ("false_positive_rate", false_positive_rates(counts)),
    ):
        shown = of_interest(rates)
        many = shown.shape[-1] > 1
        for place in range(shown.shape[-1]):
            found[f"{name}[{place}]" if many else name] = shown[..., place]
    return found


def accuracy_rates(counts: Array) -> Array:
    """``P(prediction = truth | group)``, shape ``(..., G)``."""
    return ratio_of(np.trace(counts, axis1=-2, axis2=-1), counts.sum((-2, -1)), empty=np.nan)


def overall(counts: Array) -> Array:
    """The same table with all groups together, shape ``(..., 1, C, C)``."""
    return counts.sum(-3, keepdims=True)


def accuracy(counts: Array) -> Array:
    return accuracy_rates(overall(counts))[..., 0]


def balanced_accuracy(counts: Array) -> Array:
    """The mean of the recalls of the classes that occur."""
    table = overall(counts)[..., 0, :, :]
    occurs = table.sum(-1) > 0
    recalls = ratio_of(np.diagonal(table, axis1=-2, axis2=-1), table.sum(-1), empty=0)
    return ratio_of(recalls.sum(-1), occurs.sum(-1), empty=np.nan)


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
    raise InvalidInputError(f"`method` must be one of {get_args(Method)}, got {method!r}.")


def aggregate(parts: Array, agg: Aggregate, *, ratio: bool = False) -> Array:
    """Fold the last axis (rates or classes): the worst, the mean or the sum."""
    defined = ~np.isnan(parts)
    if agg == "worst_case":
        return np.fmin.reduce(parts, -1) if ratio else np.fmax.reduce(parts, -1)
    if agg == "mean":
        return ratio_of(np.nansum(parts, -1), defined.sum(-1), empty=np.nan)
    if agg == "sum" and not ratio:
        return parts.sum(-1)
    allowed = [name for name in get_args(Aggregate) if not (ratio and name == "sum")]
    raise InvalidInputError(f"`agg` must be one of {allowed}, got {agg!r}.")


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


def ratio_of(part: NDArray[Any], whole: NDArray[Any], *, empty: float) -> Array:
    """``part / whole``, and ``empty`` where ``whole`` is 0."""
    out = np.full(np.broadcast_shapes(np.shape(part), np.shape(whole)), float(empty))
    return np.divide(part, whole, out=out, where=whole != 0)


def _rates(counts: Array, part: Array, whole: Array) -> Array:
    """``part / whole`` by group and class: 0 where no rows count, NaN where a group has none."""
    occurs = counts.sum((-2, -1))[..., None] != 0
    return np.where(occurs, ratio_of(part, whole, empty=0.0), np.nan)
