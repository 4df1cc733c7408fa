"""How far the result can be trusted, in plain words, each with a green, amber or red verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fairij.data.labels import SMALL_CELL
from fairij.mitigator import FairIJ
from fairij.report.comparisons import Comparison, gap_metric
from fairij.report.edit_wording import is_edited, search_name
from fairij.report.wording import LABELS, interval, measured, number

Verdict = Literal["green", "amber", "red"]
ORDER: tuple[Verdict, ...] = ("green", "amber", "red")
MEANING = {"green": "sound", "amber": "read with care", "red": "serious concern"}


@dataclass(frozen=True)
class Check:
    """One question that an auditor would ask."""

    name: str
    verdict: Verdict
    text: str

    @property
    def meaning(self) -> str:
        return MEANING[self.verdict]


def checks(fitted: FairIJ, validation: Comparison, unseen: Comparison | None) -> list[Check]:
    """``unseen``: rows that played no part, where there are any."""
    found = [_solver(fitted), _stationary(fitted)]
    if is_edited(fitted) and search_name(fitted) != "path":  # which makes its gradient anew
        found.append(_linear(fitted))
    if is_edited(fitted):
        found.append(_distance(fitted))
    if is_edited(fitted) and fitted.diagnostics_["caveats"]:
        found.append(_caveats(fitted))
    found += [_sizes(validation, unseen), _unseen(fitted, validation, unseen)]
    found += [_cost(fitted, unseen or validation), _others(fitted, unseen or validation)]
    return found


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
    text = (
        f"The {found['solver']} solver left {ranking:.2g} of the ranking's equation unsolved"
        + (f" and {edit:.2g} of the edit's" if "edit_residual" in found else "")
        + f" (0 is exact), at damping {number(found['damping'])}. "
    )
    return Check(
        "Was the linear system solved?",
        verdict,
        text
        + {
            "green": "The scores are those that the formula means.",
            "amber": "The order of the worst rows may differ a little from the exact one.",
            "red": "This is an approximation whose scores may differ much from the exact ones; "
            "judge the edit by its measured rates alone.",
        }[verdict],
    )


def _stationary(fitted: FairIJ) -> Check:
    found = fitted.diagnostics_
    drift, level = abs(float(found["drift"])), abs(float(found["surrogate_weighted"]))
    share = drift / level if level else math.inf if drift else 0.0
    verdict = _level(share, 0.1, 0.5)
    return Check(
        "Was the model trained to the end?",
        verdict,
        f"Training on to the minimum would by itself move the smooth gap by about {drift:.2g}, "
        f"beside {level:.2g} in all (gradient norm {found['gradient_norm']:.2g}). "
        + {
            "green": "So “as if these rows had been left out” may be taken at its word.",
            "amber": "“As if these rows had been left out” holds only roughly.",
            "red": "The model is not at a minimum of its training loss: “as if these rows had "
            "been left out” does not hold, though the measured rates do.",
        }[verdict],
    )


def _caveats(fitted: FairIJ) -> Check:
    """Of what the library itself says of such a model."""
    said = " ".join(fitted.diagnostics_["caveats"])
    return Check("Is there something that the edit cannot keep, or know?", "amber", said)


def _linear(fitted: FairIJ) -> Check:
    found = fitted.diagnostics_
    foreseen = found["surrogate_predicted"] - found["surrogate_before"]
    actual = found["surrogate_after"] - found["surrogate_before"]
    ratio = actual / foreseen if foreseen else math.nan
    verdict: Verdict = (
        "green" if 0.5 <= ratio <= 1.5 else "amber" if 0 < ratio < math.inf else "red"
    )
    return Check(
        "Did the model move as predicted?",
        verdict,
        f"The straight-line estimate foresaw a change of {measured(foreseen)} in the smooth gap; "
        f"it was {measured(actual)}. "
        + {
            "green": "The estimate holds at this distance.",
            "amber": "The edit goes beyond where a straight line describes the model.",
            "red": "The model moved the other way, or nothing was foreseen: the estimate does "
            "not describe this model.",
        }[verdict],
    )


def _distance(fitted: FairIJ) -> Check:
    scale = float(fitted.edit_.settings["scale"])
    tried = fitted.candidates_[fitted.candidates_["k"] > 0]
    chosen = fitted.candidates_.iloc[fitted.chosen_]
    edges = [
        name
        for name in ("k", "scale")
        if tried[name].nunique() > 1 and chosen[name] >= tried[name].max()
    ]
    if len(fitted.dropped_):
        text = f"The edit is {scale:g} times the estimate of leaving those rows out. "
        beyond = "Beyond 1 it goes farther than any refit without them would. "
    else:
        text = f"The edit goes {scale:.0%} of the way to where the gap should be closed. "
        beyond = "Beyond the whole way it makes up for what a straight line misses. "
    if scale > 1:
        text += beyond
    if edges:
        text += (
            f"It is the largest {' and '.join(edges)} that was tried; a wider search might find "
            "a lower gap."
        )
    elif scale <= 1:
        text += "It lies inside the range that was searched."
    verdict: Verdict = "green" if scale <= 1 and not edges else "amber"
    return Check("How far was the model moved?", verdict, text.strip())


def _sizes(validation: Comparison, unseen: Comparison | None) -> Check:
    parts = [part for part in (validation, unseen) if part is not None]
    size, group, rows = min(
        (int(size), str(group), part.rows)
        for part in parts
        for group, size in part.before.by_group["count"].items()
    )
    verdict = _level(-size, -10 * SMALL_CELL, -SMALL_CELL)
    return Check(
        "Are the groups large enough?",
        verdict,
        f"The smallest group is {group} with {size:,} {rows}. "
        + {
            "green": "Its rates can be told from one another.",
            "amber": "Its rates are uncertain by several points: see the intervals.",
            "red": "Its rates say next to nothing.",
        }[verdict],
    )


def _unseen(fitted: FairIJ, validation: Comparison, unseen: Comparison | None) -> Check:
    name, metric = "Does it hold on rows that played no part?", gap_metric(fitted)
    if unseen is None or metric is None:
        why = (
            "No test rows were given. "
            if unseen is None
            else "This constraint is measured on validation rows only. "
        )
        seen = (
            "The edit was chosen on the very rows that its gradient saw, so the gap shown is "
            "flattering."
            if fitted.edit_.settings["validation"] == "reuse"
            else "The edit was chosen among many on these rows, so the gap shown is somewhat "
            "flattering."
        )
        return Check(name, "amber", why + seen + _resampled(fitted))
    before, after = unseen.before[metric], unseen.after[metric]
    low, high = (float(unseen.after.metrics[end][metric]) for end in ("low", "high"))
    kept = validation.before[metric] - validation.after[metric]
    share = (before - after) / kept if kept > 0 else 1.0
    verdict: Verdict = (
        "red" if is_edited(fitted) and after >= before else "green" if share >= 0.75 else "amber"
    )
    return Check(
        name,
        verdict,
        f"On the {unseen.rows} the {LABELS[metric]} is {measured(after)} ({interval(low, high)}) "
        f"after {measured(before)}; on the validation rows it is "
        f"{measured(validation.after[metric])} after {measured(validation.before[metric])}. "
        + {
            "green": "The improvement carries over.",
            "amber": "Part of the improvement belongs to the validation rows alone.",
            "red": "The improvement does not carry over.",
        }[verdict],
    )


def _resampled(fitted: FairIJ) -> str:
    """What repeating the choice on resamples says, where that was done."""
    found = fitted.honest_gap_
    if found is None:
        return ""
    unknown = (
        ", not counting what the gradient fitted of these rows: only rows held out show that."
        if fitted.edit_.settings["validation"] == "reuse"
        else "."
    )
    return (
        f" Repeating the choice on resamples gives {measured(found.expected)} "
        f"({interval(found.low, found.high)}) as the gap to expect on fresh rows{unknown}"
    )


def _cost(fitted: FairIJ, shown: Comparison) -> Check:
    name = "What did it cost in performance?"
    if fitted.loss_.is_classification:
        before, after = shown.before["accuracy"], shown.after["accuracy"]
        verdict = _level(before - after, 0.01, 0.05)
        text = f"Accuracy on the {shown.rows} went from {measured(before)} to {measured(after)}"
        before, after = shown.before["balanced_accuracy"], shown.after["balanced_accuracy"]
        text += f", balanced accuracy from {measured(before)} to {measured(after)}."
        return Check(name, max(verdict, _level(before - after, 0.02, 0.1), key=ORDER.index), text)
    before, after = shown.before["mean_squared_error"], shown.after["mean_squared_error"]
    grown = after / before - 1 if before else 0.0
    return Check(
        name,
        _level(grown, 0.05, 0.25),
        f"The mean squared error on the {shown.rows} went from {measured(before)} to "
        f"{measured(after)} ({grown:+.1%}).",
    )


def _others(fitted: FairIJ, shown: Comparison) -> Check:
    metric = gap_metric(fitted)
    worse = [
        f"{LABELS[name]} {measured(shown.before[name])} → {measured(shown.after[name])}"
        for name in shown.before.metrics.index
        if name.endswith(("difference", "sum"))
        and name != metric
        and shown.after.metrics.loc[name, "low"] > shown.before[name]
    ]
    return Check(
        "Did other gaps grow?",
        "amber" if worse else "green",
        f"Clearly, on the {shown.rows}: {'; '.join(worse)}. Gaps of different kinds can seldom be "
        "closed together: decide which one matters here."
        if worse
        else f"None that audits measure grew beyond its interval on the {shown.rows}.",
    )
