"""How sure a measured gap is: its standard error, and whether it can be told from zero.

Both follow from the same counts (in regression: means) as the gap itself, and from the sizes of
the groups. A group of forty rows makes a gap uncertain, however many rows the others have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fairij.fairness.rates import Gap, group_means, ratio_of

Array = NDArray[np.float64]


def of_counts(gap: Gap, counts: Array) -> dict[str, Array]:
    """``gap_error`` and ``gap_p`` of tables of counts ``(..., G, C, C)``; see `_told`."""
    rates = [rate.of_groups(counts) for rate in gap.rates]  # (..., G, K) each
    sizes = [np.broadcast_to(rate.rows(counts), rate.of_groups(counts).shape) for rate in gap.rates]
    values, size = (np.concatenate(parts, -1) for parts in (rates, sizes))
    # two more successes and failures (Agresti and Coull), as a rate of 0 or 1 is not sure either
    smooth = (values * size + 2) / (size + 4)
    return _told(gap, values, smooth * (1 - smooth) / (size + 4), size)


def of_means(gap: Gap, predicted: Array, y: Array, groups: Any) -> dict[str, Array]:
    """The same in regression, of predictions ``(..., N)``."""
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
    able = (size > 0) & ~np.isnan(values)
    high = np.where(able, values, -np.inf).argmax(-2)[..., None, :]
    low = np.where(able, values, np.inf).argmin(-2)[..., None, :]
    ends = (
        np.take_along_axis(v, at, -2)[..., 0, :] for v in (values, variance) for at in (high, low)
    )
    top, bottom, *of_ends = ends
    each = np.sqrt(sum(of_ends))  # (..., P)
    if gap.fold == "worst_case":
        widest = np.where(np.isnan(top - bottom), -1, top - bottom).argmax(-1)[..., None]
        error = np.take_along_axis(each, widest, -1)[..., 0]
    else:
        error = np.sqrt((each**2).sum(-1)) / (each.shape[-1] if gap.fold == "mean" else 1)
    first, second = np.triu_indices(values.shape[-2], 1)
    of_pair = [(v[..., first, :], v[..., second, :]) for v in (values, variance, size, able)]
    (a, b), (va, vb), (na, nb), (oka, okb) = of_pair
    if is_share:  # if the groups do not differ, they share one rate
        shared = ratio_of(a * na + b * nb, na + nb, empty=np.nan)
        spread = shared * (1 - shared) * (ratio_of(1, na, empty=0) + ratio_of(1, nb, empty=0))
    else:
        spread = va + vb
    z = np.where(oka & okb, ratio_of(np.abs(a - b), np.sqrt(spread), empty=0), 0)
    clearest = z.max((-2, -1), initial=0)
    compared = len(first) * values.shape[-1]
    return {"gap_error": error, "gap_p": np.minimum(2 * ndtr(-clearest) * compared, 1)}
