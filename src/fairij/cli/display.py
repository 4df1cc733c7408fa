"""Audits on the screen and in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from fairij.cli.console import say, show, table_of
from fairij.fairness import Audit
from fairij.report.wording import LABELS


def audit_dict(audit: Audit) -> dict[str, Any]:
    columns = ["group", "rate", "value", "low", "high"]
    return {
        "metrics": audit.metrics.to_dict(orient="index"),
        "by_group": audit.by_group.to_dict(orient="index"),
        "group_intervals": [
            dict(zip(columns, row, strict=True))
            for row in audit.group_intervals.reset_index().itertuples(index=False)
        ],
        "confidence": audit.confidence,
        "positive_label": audit.positive_label,
        "more": audit.more.to_dict(orient="index"),
    }


def audit_from_dict(stored: Mapping[str, Any]) -> Audit:

    def frame(metrics: Mapping[str, Any]) -> pd.DataFrame:
        columns = ["value", "low", "high"]
        rows = {name: [row[column] for column in columns] for name, row in metrics.items()}
        found = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
        return found.astype(float).rename_axis("metric")

    by_group = pd.DataFrame.from_dict(stored["by_group"], orient="index")
    intervals = pd.DataFrame(stored["group_intervals"]).set_index(["group", "rate"])
    return Audit(
        frame(stored["metrics"]),
        by_group.rename_axis("group"),
        float(stored["confidence"]),
        intervals.astype(float),
        stored["positive_label"],
        frame(stored.get("more", {})),
    )


def positive_said(audit: Audit) -> str:
    """The label that counts as 1; empty for several classes and for regression."""
    return "" if audit.positive_label is None else f"Positive label: {audit.positive_label}."


def metrics_table(title: str, audits: Mapping[str, Audit]) -> Table:
    """One line per metric, one column per model; each value has its interval."""
    name = f"{title} ({_level(audits)} intervals)"
    table = table_of(name, ["metric", *audits], numbers=audits)
    for metric in next(iter(audits.values())).metrics.index:
        rows = [audit.metrics.loc[metric] for audit in audits.values()]
        cells = [_cell(float(r["value"]), float(r["low"]), float(r["high"])) for r in rows]
        plain_name = str(metric).replace("_difference", "_gap").replace("_", " ")
        table.add_row(Text(LABELS.get(str(metric), plain_name)), *cells)
    return table


def groups_table(title: str, audit: Audit) -> Table:
    """The number of rows of each group, and its rates with their intervals."""
    name = f"{title} ({_level({title: audit})} intervals)"
    table = table_of(name, ["group", "rows", "rate", "value"], numbers={"rows", "value"})
    intervals = audit.group_intervals
    for group, count in audit.by_group["count"].items():
        shown = (Text(str(group)), f"{count:.0f}")
        of_group = intervals.xs(group, level="group")[["value", "low", "high"]]
        for rate, cells in zip(of_group.index, of_group.to_numpy().tolist(), strict=True):
            table.add_row(*shown, Text(str(rate).replace("_", " ")), _cell(*cells))
            shown = (Text(), "")
    return table


def show_audits(title: str, audits: Mapping[str, Audit]) -> None:
    """All metrics side by side, then the groups of each model, then the positive label."""
    show(metrics_table(title, audits))
    for name, audit in audits.items():
        show(groups_table(name if len(audits) > 1 else "by group", audit))
    positive = positive_said(next(iter(audits.values())))
    if positive:
        say(positive)


def _cell(value: float, low: float, high: float) -> str:
    return f"{value:.4f} ({low:.3f}, {high:.3f})"


def _level(audits: Mapping[str, Audit]) -> str:
    return f"{next(iter(audits.values())).confidence:.0%}"
