"""Intervals for each group's own rates: Wilson's for proportions, the normal one for means."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from fairij.fairness import counts as tables
from fairij.fairness.groups import Groups
from fairij.fairness.metrics import group_means

Array = NDArray[np.float64]


def wilson(rate: Array, size: Array, confidence: float) -> tuple[Array, Array]:
    """Wilson's interval for a proportion of ``size`` rows; 0 to 1 where there are none.

    Unlike a bootstrap it does not collapse to a point where all or none were selected.
    """
    z = float(norm.ppf((1 + confidence) / 2))
    whole = size + z**2
    middle = (rate * size + z**2 / 2) / whole
    half = z * np.sqrt(rate * (1 - rate) * size + z**2 / 4) / whole
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)


def rate_intervals(
    rates: pd.DataFrame, table: Array, squares: Array, confidence: float
) -> pd.DataFrame:
    """``value, low, high`` of every rate in a `rates_frame`, by (group, rate).

    ``squares`` is the table of squared weights; ``whole^2 / squares`` (Kish) is then the number of
    rows that a weighted rate is worth. Without weights it is the table itself.
    """
    sizes = {
        kind: tables.ratio_of(weight**2, square, empty=0)
        for (kind, weight), square in zip(
            _wholes(table).items(), _wholes(squares).values(), strict=True
        )
    }
    places: dict[str, int] = {}
    parts = []
    for name in rates.columns.drop("count"):
        kind = str(name).split("[")[0]
        place = places[kind] = places.get(kind, -1) + 1
        value = rates[name].to_numpy(np.float64)
        low, high = wilson(value, sizes[kind][:, place], confidence)
        parts.append(pd.DataFrame({"value": value, "low": low, "high": high}, rates.index))
    return _by_group_and_rate(parts, list(rates.columns.drop("count")), rates.index)


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


def _wholes(table: Array) -> dict[str, Array]:
    """The rows that each rate is taken over, ``(G, columns)``."""
    total = table.sum((-2, -1))[:, None]
    truth = table.sum(-1)  # (G, C)
    of_interest = tables.of_interest(truth)
    return {
        "accuracy": total,
        "selection_rate": np.broadcast_to(total, of_interest.shape),
        "true_positive_rate": of_interest,
        "false_positive_rate": tables.of_interest(total - truth),
    }


def _by_group_and_rate(
    parts: list[pd.DataFrame], names: list[str], groups: pd.Index
) -> pd.DataFrame:
    together = pd.concat(parts, keys=names, names=["rate", "group"])
    order = pd.MultiIndex.from_product([groups, names], names=["group", "rate"])
    return together.swaplevel().reindex(order)
