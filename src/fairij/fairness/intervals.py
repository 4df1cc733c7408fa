"""Intervals for the rates of each group: Wilson's for shares, the normal one for means."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from fairij.fairness import counts as tables
from fairij.fairness.gaps import group_means
from fairij.fairness.groups import Groups
from fairij.fairness.rates import shown_rates

Array = NDArray[np.float64]


def wilson(rate: Array, size: Array, confidence: float) -> tuple[Array, Array]:
    """Wilson's interval for a share of ``size`` rows; 0 to 1 without rows.

    Unlike a bootstrap interval it does not shrink to a point if all or none were selected.
    """
    z = float(norm.ppf((1 + confidence) / 2))
    whole = size + z**2
    middle = (rate * size + z**2 / 2) / whole
    half = z * np.sqrt(rate * (1 - rate) * size + z**2 / 4) / whole
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)


def rate_intervals(
    names: list[str], groups: pd.Index, table: Array, squares: Array, confidence: float
) -> pd.DataFrame:
    """``value, low, high`` of every rate that audits list, by (group, rate).

    ``names`` has one name per rate and class. ``squares`` is the table of squared weights: by
    Kish's formula a weighted rate is worth ``whole^2 / squares`` rows. Without weights ``squares``
    is the table itself.
    """
    parts = []
    for rate, values in shown_rates(table):  # (G, K)
        size = tables.ratio_of(rate.rows(table) ** 2, rate.rows(squares), empty=0)
        ends = (values, *wilson(values, size, confidence))
        for columns in zip(*(end.T for end in ends), strict=True):
            named = dict(zip(("value", "low", "high"), columns, strict=True))
            parts.append(pd.DataFrame(named, groups))
    return _by_group_and_rate(parts, names, groups)


def mean_intervals(
    by_group: pd.DataFrame, values: dict[str, Array], groups: Groups, confidence: float
) -> pd.DataFrame:
    """``mean -+ z s / sqrt(n)`` of each column of values, by (group, column)."""
    z = float(norm.ppf((1 + confidence) / 2))
    size = groups.sizes.astype(np.float64)
    parts = []
    for column in values.values():
        mean = group_means(column, groups)
        spread = group_means((column - mean[groups.codes]) ** 2, groups)
        half = z * np.sqrt(tables.ratio_of(spread, size - 1, empty=np.nan))
        parts.append(
            pd.DataFrame({"value": mean, "low": mean - half, "high": mean + half}, by_group.index)
        )
    return _by_group_and_rate(parts, list(values), by_group.index)


def _by_group_and_rate(
    parts: list[pd.DataFrame], names: list[str], groups: pd.Index
) -> pd.DataFrame:
    together = pd.concat(parts, keys=names, names=["rate", "group"])
    order = pd.MultiIndex.from_product([groups, names], names=["group", "rate"])
    return together.swaplevel().reindex(order)
