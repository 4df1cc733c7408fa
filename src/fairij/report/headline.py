"""The top of the page: what came of it, at what price, and how. A short summary for notebooks."""

from __future__ import annotations

import math
import re
from typing import Any

from fairij.fairness.rates import GAPS
from fairij.mitigator import FairIJ
from fairij.report.about import About
from fairij.report.comparisons import (
    Comparison,
    gap_metric,
    gap_words,
    metric_rows,
    on_validation_rows,
    other_gaps,
    performance,
)
from fairij.report.everyday import gap_sentences, per_hundred
from fairij.report.render import render
from fairij.report.shortfalls import first_lines
from fairij.report.wording import (
    LABELS,
    account,
    brief,
    changed_by,
    is_edited,
    measured,
)

MOST_VIEWS = 4  # named with their gaps at the top
NOTICED = 0.005  # a gap that grew by less is not mentioned
UNNOTICED = 0.0005  # a change of accuracy that people need not hear of
WHICH = {  # rows
    "test rows": "test rows, which played no part in the edit",
    "held-out rows": "rows that were held out of the edit",
    "validation rows": "validation rows that the edit was chosen on, so these figures look too "
    "good",
}


def opening(fitted: FairIJ, shown: Comparison, about: About | None = None) -> str:
    """What the edit did to people, and its price, in words that anyone understands."""
    about, edited = about or About(), is_edited(fitted)
    told = _outcome(fitted, shown, about)
    if edited:
        told += [price(shown), f"This was measured on {_rows(shown)}."]
    else:
        told += [_unedited(fitted), f"This was measured on {_rows(shown)}."]
    return " ".join(filter(None, told))


def _outcome(fitted: FairIJ, shown: Comparison, about: About) -> list[str]:
    gap = GAPS.get(str(fitted.edit_.settings["constraint"]))
    found: list[str] = []
    if gap is not None and gap_metric(fitted) is not None:
        found = gap_sentences(shown, gap, about, edited=is_edited(fitted))
    if found:
        return found
    values, rows = shown.values(gap_metric(fitted)), shown.rows
    if values is None:
        first, last = fitted.candidates_["gap"].iloc[[0, fitted.chosen_]]
        values, rows = (float(first), float(last)), "validation rows"
    before, after = map(measured, values)
    name = gap_words(fitted)
    if not is_edited(fitted):
        return [f"The {name} on the {rows} is {before}."]
    told = f"The {name} on the {rows} went from {before} to {after}"
    return [told + _of_each(shown, gap_metric(fitted)) + "."]


def _of_each(shown: Comparison, metric: str | None) -> str:
    """The gap of each stratum or sensitive column, if there are few."""
    before, after = shown.before.views, shown.after.views
    found, name = [], str(metric).removesuffix("_of_marginals").removesuffix("_within_strata")
    for view in dict.fromkeys(before.index.get_level_values("view")) if len(before) else ():
        key = (view, name)
        if key in before.index and key in after.index:
            first, last = (measured(float(one.loc[key, "value"])) for one in (before, after))
            found.append(f"{view} {first} to {last}")
    return f" ({'; '.join(found)})" if 1 < len(found) <= MOST_VIEWS else ""


def price(shown: Comparison) -> str:
    """How many decisions change, and how many more are wrong."""
    changes = shown.changes
    if "mean_squared_error" in shown.before:
        moved = ""
        if changes is not None and "moved" in changes.decisions:
            sizes, moves = (changes.decisions[name].to_numpy() for name in ("rows", "moved"))
            mean = float(moves @ sizes / sizes.sum())
            moved = f"predictions move by {brief(mean)} on average, and "
        off = [math.sqrt(audit["mean_squared_error"]) for audit in (shown.before, shown.after)]
        first, last = map(brief, off)
        return f"To get there, {moved}their typical error goes from {first} to {last}."
    lost = shown.before["accuracy"] - shown.after["accuracy"]
    wrong = "no more of them are wrong than before"
    if abs(lost) >= UNNOTICED:
        (text,) = per_hundred(abs(lost))
        kind = "more" if lost > 0 else "fewer"
        wrong = f"{text} {kind} of 100 {'is' if text == '1' else 'are'} wrong"
    if changes is None:
        return f"To get there, {wrong}."
    (changed,) = per_hundred(changes.changed)
    verb = "decision changes" if changed == "1" else "decisions change"
    return f"To get there, {changed} of 100 {verb}, and {wrong}."


def _rows(shown: Comparison) -> str:
    return f"{shown.size:,} {WHICH.get(shown.rows, shown.rows)}"


def _unedited(fitted: FairIJ) -> str:
    remarks = " ".join(fitted.diagnostics_.get("remarks", ()))
    why = [text for text in re.split(r"(?<=\.) ", remarks) if "`" not in text]  # no code up here
    return " ".join(why) or "The model was left as it was, because no candidate edit was better."


def how(fitted: FairIJ) -> str:
    """What the edit is; if there is none, what to set for one."""
    if is_edited(fitted):
        return f"The edit {account(fitted).sentence}"
    remarks = " ".join(fitted.diagnostics_.get("remarks", ()))
    told = (text for text in re.split(r"(?<=\.) ", remarks) if "`" in text)
    return " ".join(told).replace("`", "")


def answer(fitted: FairIJ, shown: Comparison, about: About | None = None) -> str:
    """The opening, what the edit is, and the figures."""
    return " ".join(
        filter(None, (opening(fitted, shown, about), how(fitted), figures(fitted, shown)))
    )


def figures(fitted: FairIJ, shown: Comparison) -> str:
    """The gap, the performance and the AUC before and after, in numbers."""
    names = [gap_metric(fitted), performance(fitted), "auc"]
    told = []
    for name in names:
        values = shown.values(name)
        if values is not None:
            told.append(f"{LABELS[str(name)]} {measured(values[0])} → {measured(values[1])}")
    return f"On the {shown.rows}: {', '.join(told)}." if told and is_edited(fitted) else ""


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
    found: list[tuple[str, str, str, str]] = []
    for name in (metric, performance(fitted), "auc"):
        values = shown.values(name)
        if name is None or values is None:
            continue
        note = f"on {shown.rows}; change {changed_by(*shown.change(name))}"
        if not is_edited(fitted):
            found.append((LABELS[name], "", measured(values[1]), f"on {shown.rows}; not changed"))
            continue
        found.append((LABELS[name], measured(values[0]), measured(values[1]), note))
    if metric is None:
        before, after = map(measured, fitted.candidates_["gap"].iloc[[0, fitted.chosen_]])
        found.insert(0, (gap_words(fitted), before, after, "on validation rows"))
    if not is_edited(fitted):
        return [*found, ("the edit", "", "none", "the model is as it was")]
    return [*found, (size.name, "", size.size, size.note)]


def summary_html(fitted: FairIJ) -> str:
    """An HTML fragment for a notebook cell. Every value in it is escaped."""
    shown: Any = on_validation_rows(fitted)
    return render(
        "summary.html",
        shortfalls=first_lines(fitted, shown),
        answer=opening(fitted, shown),
        how=how(fitted),
        costs=costs(fitted, shown),
        metrics=metric_rows(fitted, shown),
        shown=shown,
        sizes=shown.before.by_group["count"].items(),
    )
