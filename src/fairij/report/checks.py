"""Questions that an auditor would ask of a result, each answered by green, amber or red."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fairij.fairness.missing import SMALL_CELL
from fairij.method.results import UNSOLVED
from fairij.mitigator import FairIJ
from fairij.report.comparisons import Comparison, gap_metric, other_gaps, performance
from fairij.report.headline import costs
from fairij.report.shortfalls import has_aims, shortfalls
from fairij.report.wording import LABELS, account, interval, is_edited, measured, on_other_rows

Verdict = Literal["green", "amber", "red"]
ORDER: tuple[Verdict, ...] = ("green", "amber", "red")
MEANING = {"green": "sound", "amber": "read with care", "red": "serious concern"}


@dataclass(frozen=True)
class Check:
    """One question, its verdict, and the reason in words."""

    name: str
    verdict: Verdict
    text: str
    reason: str = ""  # the verdict in one sentence; empty: the whole text

    @property
    def meaning(self) -> str:
        return MEANING[self.verdict]

    def ending(self, green: str, amber: str, red: str) -> Check:
        """The check with a last sentence that depends on the verdict."""
        last = (green, amber, red)[ORDER.index(self.verdict)]
        return Check(self.name, self.verdict, f"{self.text} {last}", last)


def checks(fitted: FairIJ, validation: Comparison, unseen: Comparison | None) -> list[Check]:
    """All checks; ``unseen`` are rows that the edit never used, if there are any."""
    found = [_solver(fitted), _trained(fitted)]
    if is_edited(fitted):
        if not fitted.search_.recomputes_gradient:
            found.append(_predicted(fitted))
        found.append(_distance(fitted))
        caveats = " ".join(fitted.diagnostics_["caveats"])  # of this kind of model
        if caveats:
            question = "Is there something that the edit cannot keep, or know?"
            found.append(Check(question, "amber", caveats))
    shown = unseen or validation
    return [
        *found,
        *_asked(fitted, shown),
        _sizes(validation, unseen),
        _unseen(fitted, validation, unseen),
        _cost(fitted, shown),
        _others(fitted, shown),
    ]


def worst(found: list[Check]) -> Verdict:
    return max((check.verdict for check in found), key=ORDER.index)


def reasons(found: list[Check]) -> str:
    """Why the worst verdict was given; empty if all is green."""
    verdict = worst(found)
    bad = [check for check in found if check.verdict == verdict != "green"]
    return " ".join(f"{check.name} {check.reason or check.text}" for check in bad)


def _level(value: float, amber: float, red: float) -> Verdict:
    return "green" if value <= amber else "amber" if value <= red else "red"


def _solver(fitted: FairIJ) -> Check:
    found = fitted.diagnostics_
    ranking = float(found["influence_residual"])
    edit = float(found.get("edit_residual", ranking))
    of_edit = f" and {edit:.2g} for the edit" if "edit_residual" in found else ""
    return Check(
        "Were the equations solved?",
        max(
            (_level(error, 0.02, UNSOLVED) for error in (ranking, edit)), key=ORDER.index
        ),  # red if NaN
        f"The scores and the edit are solutions of equations. The solution of the "
        f"{found['solver']} solver is off by {ranking:.2g} for the scores{of_edit} (in energy; 0 "
        f"is exact). The damping is {found['damping']:g}.",
    ).ending(
        "The scores are exact enough.",
        "The order of the worst rows may differ a little from the exact order.",
        "The scores may differ much from the exact ones. Judge the edit by its measured rates "
        "alone.",
    )


def _trained(fitted: FairIJ) -> Check:
    found = fitted.diagnostics_
    drift, level = abs(float(found["drift"])), abs(float(found["surrogate_weighted"]))
    share = drift / level if level else math.inf if drift else 0.0
    return Check(
        "Was the model trained to the end?",
        _level(share, 0.1, 0.5) if is_edited(fitted) else _level(share, 0.1, math.inf),
        f"More training alone would change the smooth gap by about {drift:.2g}. The smooth gap is "
        f"{level:.2g} (gradient norm {found['gradient_norm']:.2g}).",
    ).ending(
        "So the edit starts where the method assumes. Training again without the rows may still "
        "end elsewhere; trees would even be grown in another way.",
        "So “as if these rows had been left out” is only roughly true.",
        "So “as if these rows had been left out” is not true of this model. The measured rates are "
        "still right.",
    )


def _predicted(fitted: FairIJ) -> Check:
    found = fitted.diagnostics_
    foreseen = found["surrogate_predicted"] - found["surrogate_before"]
    actual = found["surrogate_after"] - found["surrogate_before"]
    ratio = actual / foreseen if foreseen else math.nan
    return Check(
        "Did the model move as predicted?",
        "green" if 0.5 <= ratio <= 1.5 else "amber" if 0 < ratio < math.inf else "red",
        f"The estimate predicted that the smooth gap changes by {measured(foreseen)}. It changed "
        f"by {measured(actual)}.",
    ).ending(
        "The estimate holds for an edit of this size.",
        "The edit is too large for the estimate to hold.",
        "The model moved the other way, or no change was predicted. The estimate does not describe "
        "this model.",
    )


def _distance(fitted: FairIJ) -> Check:
    said = account(fitted)
    tried = fitted.candidates_[fitted.candidates_["k"] > 0][["k", "scale"]]
    chosen = fitted.candidates_.iloc[fitted.chosen_]
    edges = [n for n in tried if tried[n].nunique() > 1 and chosen[n] >= tried[n].max()]
    place = "" if said.beyond else "It lies inside the range that was searched."
    if edges:
        place = (
            f"It has the largest {' and '.join(edges)} that was tried. A wider search might find "
            "a smaller gap."
        )
    verdict: Verdict = "amber" if said.beyond or edges else "green"
    text = " ".join(filter(None, (said.distance, said.beyond, place)))
    return Check("How far was the model moved?", verdict, text)


def _asked(fitted: FairIJ, shown: Comparison) -> list[Check]:
    question, missed = "Was what you asked for reached?", shortfalls(fitted, shown)
    if missed:
        verdict: Verdict = "red" if any(part.is_clear for part in missed) else "amber"
        text = " ".join(part.text for part in missed)
        if verdict == "amber":
            text += " The intervals do not rule out that it is reached."
        return [Check(question, verdict, text)]
    if not has_aims(fitted):
        return []
    return [Check(question, "green", f"Yes, on the {shown.rows}.")]


def _sizes(validation: Comparison, unseen: Comparison | None) -> Check:
    size, group, rows = min(
        (int(size), str(group), part.rows)
        for part in (validation, unseen)
        if part is not None
        for group, size in part.before.by_group["count"].items()
    )
    return Check(
        "Are the groups large enough?",
        _level(-size, -10 * SMALL_CELL, -SMALL_CELL),
        f"The smallest group, {group}, has {size:,} {rows}.",
    ).ending(
        "That is enough to measure its rates.",
        "Its rates are uncertain by several percentage points: see the intervals.",
        "Its rates say almost nothing.",
    )


def _unseen(fitted: FairIJ, validation: Comparison, unseen: Comparison | None) -> Check:
    question, metric = "Does it hold on rows that played no part?", gap_metric(fitted)
    if unseen is None or metric is None:
        why = "The gap of this constraint is measured on validation rows only."
        why = "No test rows were given." if unseen is None else why
        return Check(question, "amber", f"{why} {on_other_rows(fitted)}")
    before, after = unseen.before[metric], unseen.after[metric]
    if math.isnan(after):
        return Check(question, "red", f"The {LABELS[metric]} on the {unseen.rows} is not defined.")
    first, last = validation.before[metric], validation.after[metric]
    share = (before - after) / (first - last) if first > last else 1.0
    return Check(
        question,
        "red" if is_edited(fitted) and after >= before else "green" if share >= 0.75 else "amber",
        f"On the {unseen.rows} the {LABELS[metric]} went from {measured(before)} to "
        f"{measured(after)} ({interval(*unseen.after_interval(metric))}). On the validation rows "
        f"it went from {measured(first)} to {measured(last)}.",
    ).ending(
        "So the improvement holds.",
        "So part of the improvement exists on the validation rows only.",
        "So the improvement does not hold.",
    )


def _cost(fitted: FairIJ, shown: Comparison) -> Check:
    question, level = "What did it cost in performance?", performance(fitted)
    before, after = shown.before[level], shown.after[level]
    text = (
        f"The {LABELS[level]} on the {shown.rows} went from {measured(before)} to {measured(after)}"
    )
    if not fitted.loss_.is_classification:
        grown = after / before - 1 if before else 0.0
        return Check(question, _level(grown, 0.05, 0.25), f"{text} ({grown:+.1%}).")
    first, last = shown.before["balanced_accuracy"], shown.after["balanced_accuracy"]
    lost = [_level(before - after, 0.01, 0.05), _level(first - last, 0.02, 0.1)]
    text += f", the balanced accuracy from {measured(first)} to {measured(last)}."
    auc = [math.nan, math.nan]  # folders of version 0.1.0 have none
    if "auc" in fitted.candidates_:
        auc = [float(fitted.candidates_["auc"].iloc[place]) for place in (0, fitted.chosen_)]
    if math.isfinite(auc[0]):
        lost.append(_level(auc[0] - auc[1], 0.02, 0.05))
        text += (
            f" On the validation rows the AUC went from {measured(auc[0])} to {measured(auc[1])}."
        )
    return Check(question, max(lost, key=ORDER.index), text)


def _others(fitted: FairIJ, shown: Comparison) -> Check:
    question = "Did other gaps grow?"
    worse = [
        f"{LABELS[name]} {measured(shown.before[name])} → {measured(shown.after[name])}"
        for name in other_gaps(fitted, shown)
        if shown.after_interval(name)[0] > shown.before[name]
    ]
    if not worse:
        text = f"No measured gap grew beyond its interval on the {shown.rows}."
        if grown := costs(fitted, shown):
            text += f" {grown} This may be chance."
        return Check(question, "green", text)
    return Check(
        question,
        "amber",
        f"Yes, clearly, on the {shown.rows}: {'; '.join(worse)}. Different gaps can seldom be "
        "closed together. Decide which one matters here.",
    )
