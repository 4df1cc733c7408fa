"""Results on the screen, for people or for machines."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, TextIO

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairij.fairness import Audit
from fairij.report.wording import LABELS

# where results go: all else that is printed meanwhile, as by a library, goes to standard error
RESULTS: ContextVar[TextIO | None] = ContextVar("results", default=None)
WIDE = 200  # columns of text where there is no screen to fit, as in a file


def show(*things: Any) -> None:
    console = Console(file=RESULTS.get())
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(file=RESULTS.get(), width=WIDE)
    for thing in things:
        console.print(thing)


def table_of(title: str, columns: Sequence[str], *, numbers: Collection[str] = ()) -> Table:
    """An empty table; names from files and data are text, not markup, and never cut short."""
    table = Table(title=Text(title), title_justify="left")
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in numbers else "left"
        table.add_column(Text(name), justify=justify, overflow="fold")
    return table


def print_json(result: Mapping[str, Any]) -> None:
    text = json.dumps(plain(result), indent=2, ensure_ascii=False)
    typer.echo(text, file=RESULTS.get())


def plain(value: Any) -> Any:
    """Only what JSON has: NaN and infinity become null, arrays lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


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
    }


def audit_from_dict(stored: Mapping[str, Any]) -> Audit:
    metrics = pd.DataFrame.from_dict(stored["metrics"], orient="index").astype(float)
    by_group = pd.DataFrame.from_dict(stored["by_group"], orient="index")
    intervals = pd.DataFrame(stored["group_intervals"]).set_index(["group", "rate"])
    return Audit(
        metrics.rename_axis("metric"),
        by_group.rename_axis("group"),
        float(stored["confidence"]),
        intervals.astype(float),
        stored["positive_label"],
    )


def positive_said(audit: Audit) -> str:
    """Which of two labels counts as 1; nothing of several labels and in regression."""
    return "" if audit.positive_label is None else f"Positive label: {audit.positive_label}."


def metrics_table(title: str, audits: Mapping[str, Audit]) -> Table:
    """One line a metric, one column a model, each value with its interval."""
    name = f"{title} ({_level(audits)} intervals)"
    table = table_of(name, ["metric", *audits], numbers=audits)
    for metric in next(iter(audits.values())).metrics.index:
        rows = [audit.metrics.loc[metric] for audit in audits.values()]
        cells = [_cell(float(r["value"]), float(r["low"]), float(r["high"])) for r in rows]
        plain_name = str(metric).replace("_difference", "_gap").replace("_", " ")
        table.add_row(Text(LABELS.get(str(metric), plain_name)), *cells)
    return table


def groups_table(title: str, audit: Audit) -> Table:
    """For each group its number of rows, and each rate with its interval."""
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
    """All metrics side by side, then each model's groups, and which label is the positive one."""
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


def say(text: str) -> None:
    console = Console(file=RESULTS.get())
    console.print(text, highlight=False, markup=False, soft_wrap=True)
