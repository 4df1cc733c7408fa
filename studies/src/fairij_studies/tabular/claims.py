"""Test the paper's claims on the records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np
import pandas as pd
from scipy import stats

from fairij_studies.tabular.config import Story
from fairij_studies.tabular.methods import EDITED, FAIR_IJ
from fairij_studies.tabular.summary import (
    GAP_NAMES,
    ON_EDIT,
    WIDER,
    accuracy_at_equal_gap,
    chosen,
    methods_in,
    stand_ins,
    trade_offs,
)
from fairij_studies.tabular.trial import CONSTRAINTS

POINTS = 100  # of accuracy
ALLOWED_SHORTFALL = 0.5  # points, against GapReg
ROUNDING = 0.005  # of the paper's gaps
CLEAR = (
    "a difference is clear if its paired 95 % interval over seeds excludes zero, with and without "
    "the seeds in which the base model stands in"
)
OWN = (*EDITED, "ERM", *ON_EDIT.values())


@dataclass(frozen=True)
class Verdict:
    """A claim, whether the records agree with it, and what they show."""

    claim: str
    agrees: str  # "agrees", "agrees in part" or "does not agree"
    found: str

    def __str__(self) -> str:
        return f"**{self.claim}** — *{self.agrees}.* {self.found}"


def verdicts(records: pd.DataFrame, story: Story) -> Iterator[Verdict]:
    for constraint in CONSTRAINTS:
        yield lower_disparity(records, constraint)
    for constraint in CONSTRAINTS:
        yield better_on_the_edit(records, constraint)
    yield parity_falls(records, story)
    for form in EDITED:
        for constraint in CONSTRAINTS:
            if form in methods_in(trade_offs(records, constraint)) and form != "Fair-IJ printed":
                yield front_against_gapreg(records, form, constraint)


def lower_disparity(records: pd.DataFrame, constraint: str) -> Verdict:
    """Compare test gaps with every baseline, seed by seed, at the lowest validation gap."""
    picks = chosen(records, constraint, WIDER)
    aware = set(picks.loc[picks["needs_group"].astype(bool), "method"])
    table = picks.pivot_table(index="seed", columns="method", values=["gap", "accuracy"])
    gaps, accuracy = table["gap"], table["accuracy"]
    rivals = [name for name in gaps.columns if name not in OWN]
    parts: dict[str, list[str]] = {"lower": [], "higher": [], "no clear difference": []}
    for name in rivals:
        kind = _difference(picks, FAIR_IJ, name)
        cost = POINTS * float((accuracy[FAIR_IJ] - accuracy[name]).mean())
        said = f"*{name}*" if name in aware else name
        instead = f"; {_instead(picks, name)}" if stand_ins(picks, name) else ""
        parts[kind].append(f"{said} {gaps[name].mean():.4f} ({_signed(cost)}{instead})")
    lower, higher = len(parts["lower"]), len(parts["higher"])
    agrees = _agrees(lower, higher, len(rivals))
    said = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in parts.items() if names)
    return Verdict(
        f"Fair-IJ gives lower disparity than the baselines ({GAP_NAMES[constraint]})",
        agrees,
        f"At the lowest validation gap within {WIDER:g} of accuracy Fair-IJ's test gap is "
        f"{gaps[FAIR_IJ].mean():.4f} at accuracy {accuracy[FAIR_IJ].mean():.4f}. Against the "
        f"baselines its gap is — {said}. (In brackets: Fair-IJ's accuracy minus the baseline's, in "
        f"points; {CLEAR}; *in italics*: needs the group.)",
    )


def better_on_the_edit(records: pd.DataFrame, constraint: str) -> Verdict:
    """Compare each baseline on the edited model with its plain form, within an accuracy budget."""
    picks = chosen(records, constraint, WIDER)
    table = picks.pivot_table(index="seed", columns="method", values=["gap", "accuracy"])
    gaps, accuracy = table["gap"], table["accuracy"]
    kinds, said = [], []
    for plain, edited in ON_EDIT.items():
        if plain not in gaps or edited not in gaps:
            continue
        kind = _difference(picks, edited, plain)
        kinds.append(kind)
        at_equal = accuracy_at_equal_gap(records, edited, plain, constraint)["difference"]
        level = (
            f"none of the gaps of {plain} is reached"
            if at_equal.isna().all()
            else f"{_signed(POINTS * float(np.nanmean(at_equal)), 2)} points of accuracy at equal "
            "gaps"
        )
        instead = [
            f"; {_instead(picks, name)}" for name in (edited, plain) if stand_ins(picks, name)
        ]
        said.append(
            f"{edited} {gaps[edited].mean():.4f} against {gaps[plain].mean():.4f} ({kind}; "
            f"accuracy {accuracy[edited].mean():.4f} against {accuracy[plain].mean():.4f}; "
            f"{level}{''.join(instead)})"
        )
    better, worse = kinds.count("lower"), kinds.count("higher")
    return Verdict(
        f"Baselines on the edited model beat their plain form ({GAP_NAMES[constraint]})",
        _agrees(better, worse, len(kinds)),
        f"Gap on test rows, the lowest on validation within {WIDER:g} of accuracy: clearly lower "
        f"in {better} of {len(kinds)}, clearly higher in {worse} ({CLEAR}). "
        + "; ".join(said)
        + ".",
    )


def parity_falls(records: pd.DataFrame, story: Story) -> Verdict:
    before_paper, after_paper = story.paper_gaps
    picks = chosen(records, "demographic_parity", WIDER)
    base = picks[picks["method"] == "ERM"]
    after = picks[picks["method"] == FAIR_IJ]
    reached = float(after["gap"].mean())
    return Verdict(
        f"Demographic parity falls from {before_paper:g} to {after_paper:g} (the paper's data)",
        "agrees" if reached <= after_paper + ROUNDING else "does not agree",
        f"Here, on {records['data'].iloc[0]}: from {base['gap'].mean():.4f} to {reached:.4f} on "
        f"test rows, accuracy from {base['accuracy'].mean():.4f} to "
        f"{after['accuracy'].mean():.4f} (the lowest validation gap within {WIDER:g} of accuracy, "
        f"which is {after['validation_gap'].mean():.4f} there; {ROUNDING:g} is allowed for the "
        "paper's rounding).",
    )


def front_against_gapreg(records: pd.DataFrame, form: str, constraint: str) -> Verdict:
    """Compare mean accuracies of Fair-IJ's and GapReg's fronts at GapReg's own gaps."""
    frame = accuracy_at_equal_gap(records, form, "GapReg", constraint)
    beyond = frame[frame["difference"].isna()]
    frame = frame.dropna()
    points = POINTS * frame["difference"]
    worst = int(points.argmin()) if len(frame) else None
    shortfall = -float(points.min()) if worst is not None else float("nan")
    where = (
        "no gap is reached by both"
        if worst is None
        else f"at worst {_signed(-shortfall, 2)} points (at a gap of "
        f"{frame['gap'].iloc[worst]:.3f}), on average {_signed(points.mean(), 2)} over "
        f"{len(frame)} of the settings on GapReg's front"
    )
    left = (
        f"; {len(beyond)} of them, with gaps down to {beyond['gap'].min():.4f}, below the smallest "
        f"mean gap of {form}"
        if len(beyond)
        else ""
    )
    agrees = (
        "does not agree"
        if worst is None or shortfall > ALLOWED_SHORTFALL
        else "agrees in part"
        if len(beyond)
        else "agrees"
    )
    return Verdict(
        f"The front of {form} is not below GapReg's by more than {ALLOWED_SHORTFALL:g} points "
        f"({GAP_NAMES[constraint]})",
        agrees,
        f"Accuracy of {form} minus GapReg's at equal gap: {where}{left}."
        + ("" if agrees == "agrees" else _why(records, form, constraint)),
    )


def _why(records: pd.DataFrame, form: str, constraint: str) -> str:
    """Say whether the shortfall is in validation gaps, in test gaps, or in accuracy."""
    picks = chosen(records, constraint, WIDER)
    seen, fresh = (picks.groupby("method")[name].mean() for name in ("validation_gap", "gap"))
    reason = (
        "the edits reduce the gap less, already on the validation rows"
        if seen[form] > seen["GapReg"]
        else "the edit overfits the validation rows more than training with a penalty does"
        if fresh[form] > fresh["GapReg"]
        else "edits reduce the gap as much, but lose more accuracy"
    )
    return (
        f" Why: {reason} (lowest gap within {WIDER:g} of accuracy: {form} {seen[form]:.4f} on "
        f"validation and {fresh[form]:.4f} on test rows, GapReg {seen['GapReg']:.4f} and "
        f"{fresh['GapReg']:.4f})."
    )


def _agrees(lower: int, higher: int, of: int) -> str:
    """Judge a claim of lower gaps by the numbers of clearly lower and clearly higher ones."""
    return "agrees" if lower == of else "agrees in part" if lower > higher else "does not agree"


def _difference(picks: pd.DataFrame, first: str, second: str) -> str:
    """Say whether one method's gaps are clearly lower or higher than another's.

    This must hold over all seeds, and over the seeds in which both have a model of their own.
    """
    own = picks[~picks["is_base"].astype(bool)]
    kinds = set()
    for part in (picks, own):
        gaps = part.pivot_table(index="seed", columns="method", values="gap")
        gaps = gaps.reindex(columns=[first, second])
        kinds.add(_direction(gaps[first] - gaps[second]))
    return kinds.pop() if len(kinds) == 1 else "no clear difference"


def _instead(picks: pd.DataFrame, name: str) -> str:
    n = stand_ins(picks, name)
    return f"in {n} seed{'s' * (n > 1)} the base model in place of {name}"


def _signed(value: float, digits: int = 1) -> str:
    """Return a rounded number with its sign, and zero without a minus."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def _direction(difference: pd.Series) -> str:
    """Say whether paired differences over seeds are clearly below or above zero (95 %)."""
    values = difference.dropna().to_numpy(dtype=float)
    if len(values) < 3:
        return "no clear difference"
    half = float(stats.t.ppf(0.975, len(values) - 1)) * values.std(ddof=1) / sqrt(len(values))
    mean = float(values.mean())
    return "lower" if mean + half < 0 else "higher" if mean - half > 0 else "no clear difference"
