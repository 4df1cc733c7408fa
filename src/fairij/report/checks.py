"""Questions that an auditor would ask of a result, each answered by green, amber or red."""

from __future__ import annotations

import math

from fairij.fairness.missing import SMALL_CELL
from fairij.method.results import UNSOLVED
from fairij.mitigator import FairIJ
from fairij.report.about import About
from fairij.report.comparisons import Comparison
from fairij.report.outcome_checks import (
    are_chances_true,
    did_others_grow,
    does_it_hold,
    was_reached,
    what_it_cost,
)
from fairij.report.verdicts import ORDER, Check, Verdict, level_of
from fairij.report.wording import account, is_edited, measured


def checks(
    fitted: FairIJ, validation: Comparison, unseen: Comparison | None, about: About | None = None
) -> list[Check]:
    """All checks, those that concern people first; ``unseen`` are rows that the edit never used."""
    shown, about = unseen or validation, about or About()
    found = [
        *was_reached(fitted, shown, about),
        does_it_hold(fitted, validation, unseen),
        what_it_cost(fitted, shown, about),
        *are_chances_true(fitted, shown),
        did_others_grow(fitted, shown),
        _sizes(validation, unseen),
        _solver(fitted),
        _trained(fitted),
    ]
    if is_edited(fitted):
        if not fitted.search_.recomputes_gradient:
            found.append(_predicted(fitted))
        found.append(_distance(fitted))
        caveats = " ".join(fitted.diagnostics_["caveats"])  # of this kind of model
        if caveats:
            question = "Is there something that the edit cannot keep, or know?"
            found.append(Check(question, "amber", caveats))
    return found


def _solver(fitted: FairIJ) -> Check:
    found = fitted.diagnostics_
    ranking = float(found["influence_residual"])
    edit = float(found.get("edit_residual", ranking))
    of_edit = f" and {edit:.2g} for the edit" if "edit_residual" in found else ""
    return Check(
        "Were the equations solved?",
        max(
            (level_of(error, 0.02, UNSOLVED) for error in (ranking, edit)), key=ORDER.index
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
    alone = math.isclose(level, abs(float(found["surrogate_before"])), rel_tol=0.01)
    named = "the smooth gap" if alone else "the weighted sum of the smooth gaps"
    return Check(
        "Was the model trained to the end?",
        level_of(share, 0.1, 0.5) if is_edited(fitted) else level_of(share, 0.1, math.inf),
        f"More training alone would change {named} by about {drift:.2g}. It is {level:.2g} "
        f"(gradient norm {found['gradient_norm']:.2g}).",
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
    reason = " ".join(filter(None, (said.beyond, place if edges else "")))
    return Check("How far was the model moved?", verdict, text, reason)


def _sizes(validation: Comparison, unseen: Comparison | None) -> Check:
    size, group, rows = min(
        (int(size), str(group), part.rows)
        for part in (validation, unseen)
        if part is not None
        for group, size in part.before.by_group["count"].items()
    )
    return Check(
        "Are the groups large enough?",
        level_of(-size, -10 * SMALL_CELL, -SMALL_CELL),
        f"The smallest group, {group}, has {size:,} {rows}.",
    ).ending(
        "That is enough to measure its rates.",
        f"The rates of {group} are uncertain by several percentage points: see the intervals.",
        f"The rates of {group} say almost nothing.",
    )
