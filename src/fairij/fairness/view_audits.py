"""Audits of views: gaps of each stratum or sensitive column, and all of them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.fairness.counted import Interval
from fairij.fairness.groups import Groups
from fairij.fairness.labelled import Labelled
from fairij.fairness.rates import GAPS
from fairij.fairness.views import Kind, Seen, metric_name, seen

if TYPE_CHECKING:
    from fairij.fairness.audits import Audit

Line = tuple[str, str, float, float, float]
Found = tuple[pd.DataFrame, dict[str, Interval]]


def views_of(data: Labelled, cells: Groups, confidence: float) -> Found:
    """A line for each view and metric, and the gaps over all views. Empty if there are none."""
    if cells.views is None:
        return frame_of([]), {}
    lines, values, sizes = list[Line](), dict[str, list[Interval]](), []
    gaps = dict.fromkeys(gap.metric_name for gap in GAPS.values() if gap.is_classification)
    for one in seen(replace(cells, weight=None)):
        weight = None if data.sample_weight is None else data.sample_weight[one.rows]
        part = replace(
            data,
            y_true=data.y_true[one.rows],
            y_pred=data.y_pred[one.rows],
            groups=one.groups,
            sample_weight=weight,
        )
        counted = part.counted
        metrics, ratios = counted.metrics(confidence), counted.ratios(confidence)
        rates = counted.rate_intervals(data.classes, confidence)
        sizes.append(float(len(one.rows) if weight is None else weight.sum()))
        of_groups = {
            f"{rate}[{group}]": tuple(ends[:, code].tolist())
            for rate, ends in rates.items()
            for code, group in enumerate(one.view.names)
        }
        name = one.view.name
        lines.append((name, "count", float(len(one.rows)), np.nan, np.nan))
        lines += [(name, which, *found) for which, found in (metrics | ratios | of_groups).items()]
        for which in gaps:
            values.setdefault(which, []).append(metrics[which])
    return frame_of(lines), _over_all(cells.views.kind, values, np.array(sizes))


def means_of_views(cells: Groups, audited: Callable[[Seen], Audit]) -> Found:
    """The same in regression; ``audited`` makes the audit of a view."""
    if cells.views is None:
        return frame_of([]), {}
    lines, values, sizes = list[Line](), dict[str, list[Interval]](), []
    for one in seen(cells):
        found, name = audited(one), one.view.name
        sizes.append(float(len(one.rows)))
        lines.append((name, "count", float(len(one.rows)), np.nan, np.nan))
        for which in found.metrics.index:
            lines.append((name, str(which), *found.interval(which)))
            if str(which).endswith("difference"):
                values.setdefault(str(which), []).append(found.interval(which))
        for group, rate in found.group_intervals.index:
            ends = found.group_intervals.loc[(group, rate)].tolist()
            lines.append((name, f"{rate}[{group}]", *ends))
    return frame_of(lines), _over_all(cells.views.kind, values, np.array(sizes))


def _over_all(
    kind: Kind, values: Mapping[str, list[Interval]], sizes: NDArray[np.float64]
) -> dict[str, Interval]:
    weights = sizes if kind == "strata" else np.ones(len(sizes))
    return {
        metric_name(kind, name): together(kind, np.array(found), weights)
        for name, found in values.items()
    }


def together(
    kind: Kind, intervals: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[float, float, float]:
    """One value with an interval of all views' ``(V, 3)``: a mean of strata, or a sum.

    Strata have rows of their own, so their margins add in squares. Marginals share their rows:
    their margins add up at most.
    """
    known = ~np.isnan(intervals[:, 0])
    if not known.any():
        return (np.nan, np.nan, np.nan)
    part, weight = intervals[known], weights[known]
    if kind == "strata":
        weight = weight / weight.sum()
    elif not known.all():
        return (np.nan, np.nan, np.nan)
    value = float(weight @ part[:, 0])
    below, above = weight * (part[:, 0] - part[:, 1]), weight * (part[:, 2] - part[:, 0])
    if kind == "strata":
        return (
            value,
            max(value - float(np.sqrt((below**2).sum())), 0.0),
            value + float(np.sqrt((above**2).sum())),
        )
    return value, value - float(below.sum()), value + float(above.sum())


def frame_of(lines: list[tuple[str, str, float, float, float]]) -> pd.DataFrame:
    """One line for each view and metric."""
    return _frame_of(lines) if lines else _no_lines().copy()


def _frame_of(lines: list[tuple[str, str, float, float, float]]) -> pd.DataFrame:
    names = ["view", "metric", "value", "low", "high"]
    return pd.DataFrame(lines, columns=names).set_index(names[:2]).astype(float)


@cache
def _no_lines() -> pd.DataFrame:
    return _frame_of([])
