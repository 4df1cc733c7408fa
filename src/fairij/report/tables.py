"""Rows of the page's tables, as text. The templates escape it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.mitigator import FairIJ
from fairij.report.comparisons import Comparison, gap_metric
from fairij.report.training_table import LABEL, TrainingTable
from fairij.report.wording import interval, measured, plain, shortened

MOST_SHOWN_COLUMNS = 16


@dataclass(frozen=True)
class Row:
    """A figure before and after the edit, with intervals."""

    name: str
    group: str
    asked: bool
    before: str
    before_interval: str
    after: str
    after_interval: str
    size: str = ""


@dataclass(frozen=True)
class Cell:
    """A value as it is shown; ``sort`` is the number to sort by, if it is one."""

    text: str
    sort: str = ""


def metric_rows(fitted: FairIJ, shown: Comparison) -> list[Row]:
    asked = gap_metric(fitted)
    return [
        _row(str(name), "", name == asked, values) for name, values in shown.metrics().iterrows()
    ]


def rate_rows(shown: Comparison, most: int = 240) -> list[Row]:
    """Every group's rates, group by group."""
    sizes = shown.before.by_group["count"]
    some = shown.group_rates().head(most)
    return [
        _row(str(rate), str(group), False, some.loc[(group, rate)], f"{int(sizes[group]):,}")
        for group, rate in some.index
    ]


def _row(name: str, group: str, asked: bool, values: pd.Series, size: str = "") -> Row:
    return Row(
        plain(name),
        group,
        asked,
        measured(values["value_before"]),
        interval(values["low_before"], values["high_before"]),
        measured(values["value_after"]),
        interval(values["low_after"], values["high_after"]),
        size,
    )


@dataclass(frozen=True)
class HarmfulTable:
    """The most harmful rows, and the number of columns that are not shown."""

    columns: list[str]
    rows: list[list[Cell]]
    left_out: int


def harmful_table(
    fitted: FairIJ, table: TrainingTable, rows: NDArray[np.int64], notable: list[str]
) -> HarmfulTable:
    """Rank, row number, influence, then columns; those in ``notable`` come first."""
    frame = table.take(rows)
    names = list(frame.columns)
    if len(names) > MOST_SHOWN_COLUMNS:
        groups = () if table.sensitive is None else table.sensitive.columns
        leading = [name for name in (LABEL, *groups, *notable) if name in names]
        names = list(dict.fromkeys([*leading, *names]))[:MOST_SHOWN_COLUMNS]
    dropped = set(fitted.dropped_.tolist())
    measures = {"influence": fitted.influence_}
    if fitted.loss_influence_ is not None:
        measures["influence on the loss"] = fitted.loss_influence_
    body = [
        [
            Cell(f"{rank}", f"{rank}"),
            Cell(f"{row}", f"{row}"),
            *(_score(scores[row]) for scores in measures.values()),
            *([Cell("yes" if int(row) in dropped else "no")] if dropped else []),
            *(_cell(value) for value in values),
        ]
        for rank, row, values in zip(
            range(1, len(rows) + 1), rows, frame[names].itertuples(index=False), strict=True
        )
    ]
    first = ["rank", "row", *measures, *(["left out"] if dropped else [])]
    return HarmfulTable([*first, *names], body, frame.shape[1] - len(names))


def _score(value: float) -> Cell:
    return Cell(f"{value:.3e}", repr(float(value)))


def _cell(value: Any) -> Cell:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        return Cell("missing" if value is None or value is pd.NA else shortened(value))
    size = float(value)
    if np.isnan(size):
        return Cell("missing")
    whole = size.is_integer() and abs(size) < 1e15
    return Cell(f"{int(size)}" if whole else f"{size:.5g}", repr(size))
