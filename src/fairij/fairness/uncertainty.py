"""How sure a measured gap is: its standard error, and whether it can be told from zero.

Both follow from the same counts (in regression: means) as the gap itself, and from the sizes of
the groups. A group of forty rows makes a gap uncertain, however many rows the others have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fairij.fairness.rates import Gap, Rate, group_means, ratio_of

Array = NDArray[np.float64]


def of_counts(gap: Gap, counts: Array, squares: Array | None = None) -> dict[str, Array]:
    """``gap_error`` and ``gap_p`` of tables of counts ``(..., G, C, C)``; see `_told`.

    ``squares`` (G, C, C): the sums of squared weights, if counts are sums of weights. A rate is
    then worth ``(sum w)^2 / sum w^2`` rows (Kish).
    """
    rates = [rate.of_groups(counts) for rate in gap.rates]  # (..., G, K) each
    sizes = [
        np.broadcast_to(_worth(rate, counts, squares), values.shape)
        for rate, values in zip(gap.rates, rates, strict=True)
    ]
    values, size = (np.concatenate(parts, -1) for parts in (rates, sizes))
    # two more successes and failures (Agresti and Coull), as a rate of 0 or 1 is not sure either
    smooth = (values * size + 2) / (size + 4)
    return _told(gap, values, smooth * (1 - smooth) / (size + 4), size)


def _worth(rate: Rate, counts: Array, squares: Array | None) -> Array:
    """How many rows of equal weight the rate of each group is worth."""
    rows = rate.rows(counts)
    return rows if squares is None else ratio_of(rows**2, rate.rows(squares), empty=0)


def of_means(gap: Gap, predicted: Array, y: Array, groups: Any) -> dict[str, Array]:
    """The same in regression, of predictions ``(..., N)``."""
    if groups.missing:
        some = groups.known
        predicted, y, groups = predicted[..., some], y[some], groups.take(some)
    means, variances = [], []
    for rate in gap.rates:
        values = rate.values(predicted, y)
        mean = group_means(values, groups)
        spread = group_means((values - mean[..., groups.codes]) ** 2, groups)
        means.append(mean[..., None])
        variances.append((spread / np.maximum(groups.sizes - 1, 1))[..., None])
    values = np.concatenate(means, -1)
    size = np.broadcast_to(groups.sizes[:, None], values.shape)
    return _told(gap, values, np.concatenate(variances, -1), size, is_share=False)


def _told(
    gap: Gap, values: Array, variance: Array, size: Array, *, is_share: bool = True
) -> dict[str, Array]:
    """Standard error and p-value of a gap of rates ``(..., G, P)`` of P comparisons.

    ``gap_error``: of the highest rate minus the lowest, folded as the gap is. ``gap_p``: how
    likely differences as clear as the clearest one would be, if no two groups differed at all: of
    every pair of groups and every rate, times their number (Bonferroni).
    """
    size = np.where(np.isnan(values), 0.0, size)  # groups without rows take no part
    compared = values.shape[-2] * (values.shape[-2] - 1) // 2 * values.shape[-1]
    chance = 2 * ndtr(-_clearest(values, variance, size, is_share=is_share))
    error = _error(gap, values, variance, size)
    if not gap.is_zero_if_equal:
        chance = np.full_like(chance, np.nan)  # there is no zero that it could be
    return {"gap_error": error, "gap_p": np.minimum(chance * compared, 1)}


def _error(gap: Gap, values: Array, variance: Array, size: Array) -> Array:
    """The standard error of the gap: the highest and the lowest rate are those of other rows.

    Of a ratio ``l / h`` of rates: ``sqrt(var(l) / h^2 + l^2 var(h) / h^4)``.
    """
    high = np.where(size > 0, values, -np.inf).argmax(-2)[..., None, :]
    low = np.where(size > 0, values, np.inf).argmin(-2)[..., None, :]

    def at(place: NDArray[np.intp], of_group: Array) -> Array:
        found: Array = np.take_along_axis(of_group, place, -2)[..., 0, :]
        return found

    least, most = at(low, values), at(high, values)  # (..., P)
    above, below, apart = at(high, variance), at(low, variance), most - least
    if gap.form == "highest":
        below, apart = 0 * below, most
    elif gap.form == "ratio":
        apart = 1 - ratio_of(least, most, empty=np.nan)
        above = ratio_of(least**2 * above, most**4, empty=np.nan)
        below = ratio_of(below, most**2, empty=np.nan)
    each = np.sqrt(above + below)
    if gap.fold == "worst_case":
        apart = np.nan_to_num(apart, nan=-1.0)
        widest = apart.argmax(-1)[..., None]
        return np.asarray(np.take_along_axis(each, widest, -1)[..., 0])
    together = np.sqrt((each**2).sum(-1))
    return together / (each.shape[-1] if gap.fold == "mean" else 1)


def _clearest(values: Array, variance: Array, size: Array, *, is_share: bool) -> Array:
    """The largest difference of two groups in standard errors, ``(...)``."""
    first, second = np.triu_indices(values.shape[-2], 1)

    def of(of_group: Array) -> tuple[Array, Array]:
        return of_group[..., first, :], of_group[..., second, :]

    (a, b), (rows, others) = of(np.nan_to_num(values)), of(size)
    if is_share:  # if the groups do not differ, they share one rate
        shared = ratio_of(a * rows + b * others, rows + others, empty=np.nan)
        spread = shared * (1 - shared) * ratio_of(rows + others, rows * others, empty=np.nan)
    else:
        spread = np.add(*of(variance))
    apart = ratio_of(np.abs(a - b), np.sqrt(spread), empty=0.0)
    return np.asarray(np.where(rows * others > 0, apart, 0.0).max((-2, -1), initial=0.0))
