"""The task, the answer and its costs, in a few sentences."""

from __future__ import annotations

from fairij.mitigator import FairIJ
from fairij.report.comparisons import Comparison, gap_metric, other_gaps, performance
from fairij.report.wording import LABELS, listed, measured, what_was_done

NOTICED = 0.005  # a gap that grew by less is not mentioned


def answer(fitted: FairIJ, shown: Comparison) -> str:
    """Three sentences: the task, what the edit did, and the figures."""
    asked = str(fitted.edit_.settings["constraint"]).replace("_", " ")
    groups = listed([str(name) for name in shown.before.by_group.index])
    return (
        f"The task was to lower the {asked} gap between {groups}. "
        f"The edit {what_was_done(fitted)} {_figures(fitted, shown)}"
    )


def _figures(fitted: FairIJ, shown: Comparison) -> str:
    metric = gap_metric(fitted)
    if metric is None:  # only the search measured this gap, on validation rows
        level = "accuracy" if fitted.loss_.is_classification else "r2"
        before, after = (fitted.candidates_.iloc[row] for row in (0, fitted.chosen_))
        rows, gaps = "validation rows", (before["gap"], after["gap"])
        levels = before[level], after[level]
    else:
        level, rows = performance(fitted), shown.rows
        gaps = shown.before[metric], shown.after[metric]
        levels = shown.before[level], shown.after[level]
    return (
        f"On the {rows} the gap went from {measured(gaps[0])} to {measured(gaps[1])} and the "
        f"{LABELS[level]} from {measured(levels[0])} to {measured(levels[1])}."
    )


def costs(fitted: FairIJ, shown: Comparison) -> str:
    """The other gaps that grew; empty if none did."""
    grown = [
        f"the {LABELS[name]} from {measured(shown.before[name])} to {measured(shown.after[name])}"
        for name in other_gaps(fitted, shown)
        if shown.after[name] > shown.before[name] + NOTICED
    ]
    return f"Other gaps grew: {', '.join(grown)}." if grown else ""
