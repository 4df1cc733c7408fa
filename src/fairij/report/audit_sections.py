"""The tables and charts of an audit's page."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from fairij.fairness import Audit
from fairij.fairness.rates import GAPS
from fairij.report.audit_plots import (
    MOST_CURVES,
    MOST_ROWS,
    calibration_chart,
    rate_of_groups,
)
from fairij.report.audit_readings import share
from fairij.report.audit_words import of_measure
from fairij.report.plots import NOT_DRAWN
from fairij.report.sections import spec
from fairij.report.wording import MINUS, NOT_DEFINED, interval, measured, plain

MOST_CHARTS = 6
IN_TABLE = ("auc", "brier", "calibration_bias")  # of the measures of scores
MOST_FOUND = 40  # lines of the table of groups that the search found
SHORT = {
    "negative_predictive_value": "NPV",
    "precision": "precision (PPV)",
}


def rate_charts(audit: Audit) -> list[dict[str, Any]]:
    """The rates to look at first; of many groups the lowest and the highest."""
    rates = [str(name) for name in audit.by_group if name != "count"]
    drawn = [name for name in rates if name.partition("[")[0] not in NOT_DRAWN - {"precision"}]
    return [
        {
            "name": f"rate-{place}",
            "spec": spec(rate_of_groups(audit.group_intervals, rate)),
            "label": f"{plain(rate)} by group, lowest first, with intervals",
        }
        for place, rate in enumerate(drawn[:MOST_CHARTS])
        if audit.by_group[rate].notna().any()
    ]


def groups_table(audit: Audit) -> dict[str, Any]:
    """One line per group: rows, and every rate with its interval."""
    names = [str(name) for name in audit.by_group if name != "count"]
    columns = [_cells(of_measure(audit.group_intervals, name), _shown_as(name)) for name in names]
    if len(audit.scores):
        found = audit.group_scores
        measures = [name for name in IN_TABLE if name in found.index.unique("measure")]
        columns += [_cells(of_measure(found, name), few_digits) for name in measures]
        names += measures
    lines = [
        {"group": str(group), "rows": f"{count:,.0f}", "count": float(count), "cells": cells}
        for (group, count), cells in zip(
            audit.by_group["count"].items(), zip(*columns, strict=True), strict=True
        )
    ]
    heads = [SHORT.get(name, plain(name)) for name in names]
    return {"heads": heads, "lines": lines, "many": len(lines) > MOST_ROWS, "shown": MOST_ROWS}


def _shown_as(rate: str) -> Callable[[float], str]:
    return measured if rate.startswith("mean") else share


def _cells(ends: pd.DataFrame, show: Callable[[float], str]) -> list[dict[str, str]]:
    """A value with its interval, for each line of value, low and high."""
    return [
        {
            "text": show(value),
            "interval": "" if math.isnan(low) else f"{show(low)} to {show(high)}".replace(" %", ""),
            "sort": "" if math.isnan(value) else f"{value:.6g}",
        }
        for value, low, high in ends[["value", "low", "high"]].to_numpy().tolist()
    ]


def all_measures(audit: Audit) -> list[tuple[str, str, str]]:
    """Every metric, ratio and further gap with its interval."""
    frames = (audit.metrics, audit.ratios, audit.more)
    return [
        (plain(name), measured(line["value"]), interval(line["low"], line["high"]))
        for frame in frames
        for name, line in frame.iterrows()
    ]


def few_digits(value: float) -> str:
    return NOT_DEFINED if math.isnan(value) else f"{value:.3f}".replace("-", MINUS)


def scores_section(audit: Audit) -> dict[str, Any] | None:
    """The scores over all rows, and how calibrated those of each group are."""
    if not len(audit.scores):
        return None
    names = [SHORT.get(str(name), plain(name)) for name in audit.scores.index]
    sizes = audit.by_group["count"]
    groups = [str(group) for group in sizes.nlargest(MOST_CURVES).index]
    curves = audit.calibration
    return {
        "rows": list(zip(names, _cells(audit.scores, few_digits), strict=True)),
        "chart": None if curves is None else spec(calibration_chart(curves, sorted(groups))),
        "left_out": len(sizes) - len(groups),
    }


def found_groups(audit: Audit) -> dict[str, Any] | None:
    """What the search for groups found, with how much was compared to find it."""
    found = audit.subgroups
    if found is None:
        return None
    lines = [
        {
            "group": group,
            "rate": plain(rate),
            "value": share(value),
            "others": share(others),
            "difference": f"{100 * apart:+.1f}".replace("-", MINUS),
            "rows": f"{rows:,.0f}",
            "p": "below 0.0001" if p < 1e-4 else f"{p:.4f}",
        }
        for group, _, rate, value, others, apart, rows, p in found.found.head(
            MOST_FOUND
        ).itertuples(index=False)
    ]
    return {
        "lines": lines,
        "left_out": len(found.found) - len(lines),
        "groups": f"{found.groups:,}",
        "compared": f"{found.compared:,}",
        "attributes": found.attributes,
        "level": f"{100 * (1 - found.confidence):.3g}",
        "remarks": found.remarks,
    }


def views_table(audit: Audit) -> tuple[list[str], list[tuple[str, ...]]]:
    """The audited gaps of each stratum, or of each sensitive column: heads and lines."""
    views = audit.views
    if not len(views):
        return [], []
    known = views.index.get_level_values("metric")
    shown = [gap.metric_name for gap in GAPS.values() if gap.audited and gap.metric_name in known]
    lines = []
    for view in views.index.get_level_values("view").unique():
        cells = [str(view), f"{views.loc[(view, 'count'), 'value']:,.0f}"]
        for metric in shown:
            value, low, high = views.loc[(view, metric)]
            cells += [measured(value), interval(low, high)]
        lines.append(tuple(cells))
    return [plain(metric) for metric in shown], lines
