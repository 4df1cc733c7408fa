"""The paper's claims, each tested in so many words on the records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np
import pandas as pd
from scipy import stats

from fairij.studies.tabular.config import Story
from fairij.studies.tabular.methods import EDITED, FAIR_IJ
from fairij.studies.tabular.summary import (
    GAP_NAMES,
    ON_EDIT,
    WIDER,
    accuracy_at_equal_gap,
    chosen,
    methods_in,
    stand_ins,
    trade_offs,
)
from fairij.studies.tabular.trial import CONSTRAINTS

POINTS = 100  # of accuracy
ALLOWED_SHORTFALL = 0.5  # points, against GapReg
ROUNDING = 0.005  # of the paper's gaps
OWN = (*EDITED, "ERM", *ON_EDIT.values())


@dataclass(frozen=True)
class Verdict:
    """A claim, whether the records agree, and what they show."""

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
    """Lowest gap chosen on validation, on test rows, seed by seed against every baseline."""
    picks = chosen(records, constraint, WIDER)
    aware = set(picks.loc[picks["needs_group"].astype(bool), "method"])
    table = picks.pivot_table(index="seed", columns="method", values=["gap", "accuracy"])
    gaps, accuracy = table["gap"], table["accuracy"]
    rivals = [name for name in gaps.columns if name not in OWN]
    parts: dict[str, list[str]] = {"lower": [], "higher": [], "no clear difference": []}
    for name in rivals:
        difference = gaps[FAIR_IJ] - gaps[name]
        kind = _direction(difference)
        cost = POINTS * float((accuracy[FAIR_IJ] - accuracy[name]).mean())
        said = f"*{name}*" if name in aware else name
        parts[kind].append(f"{said} {gaps[name].mean():.4f} ({cost:+.1f})")
    agrees = (
        "agrees"
        if not parts["higher"] and not parts["no clear difference"]
        else "agrees in part"
        if parts["lower"]
        else "does not agree"
    )
    said = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in parts.items() if names)
    return Verdict(
        f"Fair-IJ gives lower disparity than the baselines ({GAP_NAMES[constraint]})",
        agrees,
        f"At the lowest validation gap within {WIDER:g} of accuracy Fair-IJ's test gap is "
        f"{gaps[FAIR_IJ].mean():.4f} at accuracy {accuracy[FAIR_IJ].mean():.4f}. Against the "
        f"baselines its gap is — {said}. (In brackets: Fair-IJ's accuracy less the baseline's, in "
        "points; 'clear' is a paired 95 % interval over seeds that leaves out zero; *in italics*: "
        "needs the group.)",
    )


def better_on_the_edit(records: pd.DataFrame, constraint: str) -> Verdict:
    """Each baseline on the edited model against its plain form, within an accuracy budget."""
    picks = chosen(records, constraint, WIDER)
    table = picks.pivot_table(index="seed", columns="method", values=["gap", "accuracy"])
    gaps, accuracy = table["gap"], table["accuracy"]
    kinds, said = [], []
    for plain, edited in ON_EDIT.items():
        if plain not in gaps or edited not in gaps:
            continue
        kind = _direction(gaps[edited] - gaps[plain])
        kinds.append(kind)
        at_equal = accuracy_at_equal_gap(records, edited, plain, constraint)["difference"]
        level = (
            "never reaches its gaps"
            if at_equal.isna().all()
            else f"{POINTS * float(np.nanmean(at_equal)):+.2f} points of accuracy at equal gaps"
        )
        instead = [
            f"; in {stand_ins(picks, name)} seeds the base model in place of {name}"
            for name in (edited, plain)
            if stand_ins(picks, name)
        ]
        said.append(
            f"{edited} {gaps[edited].mean():.4f} against {gaps[plain].mean():.4f} ({kind}; "
            f"accuracy {accuracy[edited].mean():.4f} against {accuracy[plain].mean():.4f}; "
            f"{level}{''.join(instead)})"
        )
    better = kinds.count("lower")
    agrees = (
        "does not agree" if not better else "agrees" if better == len(kinds) else "agrees in part"
    )
    return Verdict(
        f"Baselines on the edited model beat their plain form ({GAP_NAMES[constraint]})",
        agrees,
        f"Gap on test rows, the lowest on validation within {WIDER:g} of accuracy: clearly lower "
        f"in {better} of {len(kinds)}. " + "; ".join(said) + ".",
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
    """Mean accuracy of Fair-IJ's front less that of GapReg's at GapReg's own gaps."""
    frame = accuracy_at_equal_gap(records, form, "GapReg", constraint)
    beyond = frame[frame["difference"].isna()]
    frame = frame.dropna()
    points = POINTS * frame["difference"]
    worst = int(points.argmin()) if len(frame) else None
    shortfall = -float(points.min()) if worst is not None else float("nan")
    where = (
        "no gap is reached by both"
        if worst is None
        else f"at its worst {-shortfall:+.2f} points (at a gap of {frame['gap'].iloc[worst]:.3f}), "
        f"in the mean {points.mean():+.2f} over {len(frame)} of GapReg's settings"
    )
    left = (
        f"; {len(beyond)} of GapReg's settings, with gaps down to {beyond['gap'].min():.4f}, lie "
        f"below the smallest mean gap of {form}"
        if len(beyond)
        else ""
    )
    return Verdict(
        f"The front of {form} is not below GapReg's by more than {ALLOWED_SHORTFALL:g} points "
        f"({GAP_NAMES[constraint]})",
        "does not agree"
        if worst is None or shortfall > ALLOWED_SHORTFALL
        else "agrees in part"
        if len(beyond)
        else "agrees",
        f"Accuracy of {form} less GapReg's at equal gap: {where}{left}.",
    )


def _direction(difference: pd.Series) -> str:
    """Whether paired differences over seeds are clearly below or above zero (95 %)."""
    values = difference.dropna().to_numpy(dtype=float)
    if len(values) < 3:
        return "no clear difference"
    half = float(stats.t.ppf(0.975, len(values) - 1)) * values.std(ddof=1) / sqrt(len(values))
    mean = float(values.mean())
    return "lower" if mean + half < 0 else "higher" if mean - half > 0 else "no clear difference"
