"""The top of the page: the answer, its costs, the figures. A short summary for notebooks."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairij.mitigator import FairIJ
from fairij.report.comparisons import (
    Comparison,
    gap_metric,
    gap_words,
    metric_rows,
    on_validation_rows,
    other_gaps,
    performance,
)
from fairij.report.render import render
from fairij.report.wording import LABELS, SCORES, account, interval, is_edited, listed, measured

NOTICED = 0.005  # a gap that grew by less is not mentioned


def answer(fitted: FairIJ, shown: Comparison) -> str:
    """Four sentences: the task, what the edit did, the figures, and those of the scores."""
    metric, level, rows = gap_metric(fitted), performance(fitted), shown.rows
    before: Any = shown.before
    after: Any = shown.after
    if metric is None:  # only the search measured this gap, on validation rows
        before, after = (fitted.candidates_.iloc[place] for place in (0, fitted.chosen_))
        metric, rows = "gap", "validation rows"
        level = "accuracy" if fitted.loss_.is_classification else "r2"
    groups = listed([str(name) for name in shown.before.by_group.index])
    return (
        f"The task was to lower the {gap_words(fitted)} between {groups}. {_edit(fitted)} "
        f"On the {rows} the gap went from {measured(before[metric])} to {measured(after[metric])} "
        f"and the {LABELS[level]} from {measured(before[level])} to {measured(after[level])}. "
        f"{scores(fitted)}"
    ).strip()


def _edit(fitted: FairIJ) -> str:
    """What the edit did; why there is none."""
    if is_edited(fitted):
        return f"The edit {account(fitted).sentence}"
    why = " ".join(fitted.diagnostics_.get("remarks", ()))
    return why or "The edit left the model as it was, because no candidate was better."


def scores(fitted: FairIJ) -> str:
    """What became of the scores; empty if there is no edit, or in regression."""
    before, after = (fitted.candidates_.iloc[place] for place in (0, fitted.chosen_))
    known = [name for name in SCORES if name in before and np.isfinite(before[name])]
    if not is_edited(fitted) or not fitted.loss_.is_classification:
        return ""
    told = [f"{LABELS[name]} {measured(before[name])} → {measured(after[name])}" for name in known]
    return f"Of the scores, on the validation rows: {', '.join(told)}."


def costs(fitted: FairIJ, shown: Comparison) -> str:
    """The other gaps that grew; empty if none did."""
    grown = [
        f"the {LABELS[name]} from {measured(shown.before[name])} to {measured(shown.after[name])}"
        for name in other_gaps(fitted, shown)
        if shown.after[name] > shown.before[name] + NOTICED
    ]
    return f"Other gaps grew: {', '.join(grown)}." if grown else ""


def tiles(fitted: FairIJ, shown: Comparison) -> list[tuple[str, str, str, str]]:
    """The figures at the top: name, before, after, note."""
    metric, size = gap_metric(fitted), account(fitted)
    found = [
        (
            LABELS[name],
            measured(shown.before[name]),
            measured(shown.after[name]),
            f"{shown.rows}, {100 * shown.confidence:g} % interval: "
            f"{interval(*shown.after_interval(name))}",
        )
        for name in (metric, performance(fitted))
        if name is not None
    ]
    if metric is None:
        before, after = map(measured, fitted.candidates_["gap"].iloc[[0, fitted.chosen_]])
        found.insert(0, (gap_words(fitted), before, after, "validation rows"))
    return [*found, (size.name, "", size.size, size.note)]


def summary_html(fitted: FairIJ) -> str:
    """An HTML fragment for a notebook cell. Every value in it is escaped."""
    shown = on_validation_rows(fitted)
    return render(
        "summary.html",
        answer=answer(fitted, shown),
        costs=costs(fitted, shown),
        metrics=metric_rows(fitted, shown),
        shown=shown,
        sizes=shown.before.by_group["count"].items(),
    )
