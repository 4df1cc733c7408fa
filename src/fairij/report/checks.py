"""Questions that an auditor would ask of a result, each answered by green, amber or red."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fairij.fairness.sizes import SMALL_CELL
from fairij.mitigator import FairIJ
from fairij.report.comparisons import Comparison, gap_metric, other_gaps, performance
from fairij.report.wording import (
    LABELS,
    account,
    interval,
    is_edited,
    measured,
    on_other_rows,
)

Verdict = Literal["green", "amber", "red"]
ORDER: tuple[Verdict, ...] = ("green", "amber", "red")
MEANING = {"green": "sound", "amber": "read with care", "red": "serious concern"}


@dataclass(frozen=True)
class Check:
    """One question, its verdict, and the reason in words."""

    name: str
    verdict: Verdict
    text: str

    @property
    def meaning(self) -> str:
        return MEANING[self.verdict]


def checks(fitted: FairIJ, validation: Comparison, unseen: Comparison | None) -> list[Check]:
    """All checks; ``unseen`` are rows that the edit never used, if there are any."""
    found = [_solver(fitted), _trained(fitted)]
    if is_edited(fitted):
        if not fitted.search_.recomputes_gradient:
            found.append(_predicted(fitted))
        found.append(_distance(fitted))
        if fitted.diagnostics_["caveats"]:
            found.append(_caveats(fitted))
    shown = unseen or validation
    return [
        *found,
        _sizes(validation, unseen),
        _unseen(fitted, validation, unseen),
        _cost(fitted, shown),
        _others(fitted, shown),
    ]


def worst(found: list[Check]) -> Verdict:
    return max((check.verdict for check in found), key=ORDER.index)


def _level(value: float, amber: float, red: float) -> Verdict:
    return "green" if value <= amber else "amber" if value <= red else "red"


def _solver(fitted: FairIJ) -> Check:
    found = fitted.diagnostics_
    ranking = float(found["influence_residual"])
    edit = float(found.get("edit_residual", ranking))
    residual = max(ranking, edit)
    verdict: Verdict = "red" if math.isnan(residual) else _level(residual, 0.02, 0.2)
    of_edit = f" and {edit:.2g} of those for the edit" if "edit_residual" in found else ""
    ending = {
        "green": "The scores are exact enough.",
        "amber": "The order of the worst rows may differ a little from the exact order.",
        "red": "The scores may differ much from the exact ones. Judge the edit by its measured "
        "rates alone.",
    }
    return Check(
        "Were the equations solved?",
        verdict,
        f"The scores and the edit are solutions of equations. The {found['solver']} solver left "
        f"{ranking:.2g} of the equations for the scores unsolved{of_edit} (0 is exact). The "
        f"damping is {found['damping']:g}. {ending[verdict]}",
    )


def _trained(fitted: FairIJ) -> Check:
    found = fitted.diagnostics_
    drift, level = abs(float(found["drift"])), abs(float(found["surrogate_weighted"]))
    share = drift / level if level else math.inf if drift else 0.0
    verdict = _level(share, 0.1, 0.5)
    ending = {
        "green": "So “as if these rows had been left out” can be taken literally.",
        "amber": "So “as if these rows had been left out” is only roughly true.",
        "red": "So “as if these rows had been left out” is not true of this model. The measured "
        "rates are still right.",
    }
    return Check(
        "Was the model trained to the end?",
        verdict,
        f"More training alone would change the smooth gap by about {drift:.2g}. The smooth gap is "
        f"{level:.2g} (gradient norm {found['gradient_norm']:.2g}). {ending[verdict]}",
    )


def _caveats(fitted: FairIJ) -> Check:
    """What fairij says about this kind of model."""
    said = " ".join(fitted.diagnostics_["caveats"])
    return Check("Is there something that the edit cannot keep, or know?", "amber", said)


def _predicted(fitted: FairIJ) -> Check:
    found = fitted.diagnostics_
    foreseen = found["surrogate_predicted"] - found["surrogate_before"]
    actual = found["surrogate_after"] - found["surrogate_before"]
    ratio = actual / foreseen if foreseen else math.nan
    verdict: Verdict = (
        "green" if 0.5 <= ratio <= 1.5 else "amber" if 0 < ratio < math.inf else "red"
    )
    ending = {
        "green": "The estimate holds for an edit of this size.",
        "amber": "The edit is too large for the estimate to hold.",
        "red": "The model moved the other way, or no change was predicted. The estimate does not "
        "describe this model.",
    }
    return Check(
        "Did the model move as predicted?",
        verdict,
        f"The estimate predicted that the smooth gap changes by {measured(foreseen)}. It changed "
        f"by {measured(actual)}. {ending[verdict]}",
    )


def _distance(fitted: FairIJ) -> Check:
    said = account(fitted)
    tried = fitted.candidates_[fitted.candidates_["k"] > 0]
    chosen = fitted.candidates_.iloc[fitted.chosen_]
    edges = [
        name
        for name in ("k", "scale")
        if tried[name].nunique() > 1 and chosen[name] >= tried[name].max()
    ]
    if edges:
        place = (
            f"It has the largest {' and '.join(edges)} that was tried. A wider search might find "
            "a smaller gap."
        )
    else:
        place = "" if said.beyond else "It lies inside the range that was searched."
    return Check(
        "How far was the model moved?",
        "amber" if said.beyond or edges else "green",
        " ".join(filter(None, (said.distance, said.beyond, place))),
    )


def _sizes(validation: Comparison, unseen: Comparison | None) -> Check:
    parts = [part for part in (validation, unseen) if part is not None]
    size, group, rows = min(
        (int(size), str(group), part.rows)
        for part in parts
        for group, size in part.before.by_group["count"].items()
    )
    verdict = _level(-size, -10 * SMALL_CELL, -SMALL_CELL)
    ending = {
        "green": "That is enough to measure its rates.",
        "amber": "Its rates are uncertain by several percentage points: see the intervals.",
        "red": "Its rates say almost nothing.",
    }
    return Check(
        "Are the groups large enough?",
        verdict,
        f"The smallest group, {group}, has {size:,} {rows}. {ending[verdict]}",
    )


def _unseen(fitted: FairIJ, validation: Comparison, unseen: Comparison | None) -> Check:
    question, metric = "Does it hold on rows that played no part?", gap_metric(fitted)
    if unseen is None or metric is None:
        why = (
            "No test rows were given. "
            if unseen is None
            else "The gap of this constraint is measured on validation rows only. "
        )
        return Check(question, "amber", why + on_other_rows(fitted))
    before, after = unseen.before[metric], unseen.after[metric]
    kept = validation.before[metric] - validation.after[metric]
    share = (before - after) / kept if kept > 0 else 1.0
    verdict: Verdict = (
        "red" if is_edited(fitted) and after >= before else "green" if share >= 0.75 else "amber"
    )
    ending = {
        "green": "So the improvement holds.",
        "amber": "So part of the improvement exists on the validation rows only.",
        "red": "So the improvement does not hold.",
    }
    return Check(
        question,
        verdict,
        f"On the {unseen.rows} the {LABELS[metric]} went from {measured(before)} to "
        f"{measured(after)} ({interval(*unseen.after_interval(metric))}). On the validation rows "
        f"it went from {measured(validation.before[metric])} to "
        f"{measured(validation.after[metric])}. {ending[verdict]}",
    )


def _cost(fitted: FairIJ, shown: Comparison) -> Check:
    question, level = "What did it cost in performance?", performance(fitted)
    before, after = shown.before[level], shown.after[level]
    text = f"The {LABELS[level]} on the {shown.rows} went from {measured(before)} to "
    if not fitted.loss_.is_classification:
        grown = after / before - 1 if before else 0.0
        return Check(
            question, _level(grown, 0.05, 0.25), f"{text}{measured(after)} ({grown:+.1%})."
        )
    lost = _level(before - after, 0.01, 0.05)
    first, last = shown.before["balanced_accuracy"], shown.after["balanced_accuracy"]
    return Check(
        question,
        max(lost, _level(first - last, 0.02, 0.1), key=ORDER.index),
        f"{text}{measured(after)}, the balanced accuracy from {measured(first)} to "
        f"{measured(last)}.",
    )


def _others(fitted: FairIJ, shown: Comparison) -> Check:
    worse = [
        f"{LABELS[name]} {measured(shown.before[name])} → {measured(shown.after[name])}"
        for name in other_gaps(fitted, shown)
        if shown.after_interval(name)[0] > shown.before[name]
    ]
    return Check(
        "Did other gaps grow?",
        "amber" if worse else "green",
        f"Yes, clearly, on the {shown.rows}: {'; '.join(worse)}. Different gaps can seldom be "
        "closed together. Decide which one matters here."
        if worse
        else f"No measured gap grew beyond its interval on the {shown.rows}.",
    )
