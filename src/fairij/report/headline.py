"""What was asked, and the answer, in two sentences; and what it cost beside."""

from __future__ import annotations

from fairij.mitigator import FairIJ
from fairij.report.comparisons import Comparison, gap_metric
from fairij.report.edit_wording import what_was_done
from fairij.report.wording import LABELS, listed, measured, plain

NOTICED = 0.005  # a gap that grew by less is not mentioned


def answer(fitted: FairIJ, shown: Comparison) -> str:
    """Two sentences, on the rows that deserve most trust."""
    asked = plain(fitted.edit_.settings["constraint"])
    groups = listed([str(name) for name in shown.before.by_group.index])
    done = what_was_done(fitted)
    return (
        f"Asked to lower the {asked} gap between {groups}, the edit {done} "
        f"{_figures(fitted, shown)}"
    )


def _figures(fitted: FairIJ, shown: Comparison) -> str:
    metric = gap_metric(fitted)
    if metric is None:  # known only to the search, on validation rows
        table = fitted.candidates_
        level = "accuracy" if fitted.loss_.is_classification else "r2"
        before, after = (table.iloc[row] for row in (0, fitted.chosen_))
        return (
            f"On the validation rows the gap went from {measured(before['gap'])} to "
            f"{measured(after['gap'])} and {LABELS[level]} from {measured(before[level])} to "
            f"{measured(after[level])}."
        )
    level = "accuracy" if fitted.loss_.is_classification else "mean_squared_error"
    return (
        f"On the {shown.rows} the gap went from {measured(shown.before[metric])} to "
        f"{measured(shown.after[metric])} and the {LABELS[level]} from "
        f"{measured(shown.before[level])} to {measured(shown.after[level])}."
    )


def costs(fitted: FairIJ, shown: Comparison) -> str:
    """The gaps that were not asked for and grew; empty where there are none."""
    metric = gap_metric(fitted)
    grown = [
        f"the {LABELS[name]} from {measured(shown.before[name])} to {measured(shown.after[name])}"
        for name in shown.before.metrics.index
        if name.endswith(("difference", "sum"))
        and name != metric
        and shown.after[name] > shown.before[name] + NOTICED
    ]
    return f"Not asked for, and worse now: {', '.join(grown)}." if grown else ""
