"""A short summary of a result for a notebook cell."""

from __future__ import annotations

from typing import Any

from fairij.report.comparisons import on_validation_rows
from fairij.report.headline import answer, costs
from fairij.report.render import render
from fairij.report.tables import metric_rows


def summary_html(fitted: Any) -> str:
    """An HTML fragment. Every value in it is escaped."""
    shown = on_validation_rows(fitted)
    return render(
        "summary.html",
        answer=answer(fitted, shown),
        costs=costs(fitted, shown),
        metrics=metric_rows(fitted, shown),
        shown=shown,
        sizes=shown.before.by_group["count"].items(),
    )
