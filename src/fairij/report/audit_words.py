"""What an audit found, in a paragraph that can be read aloud."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from fairij.fairness import Audit
from fairij.fairness.missing import SMALL_CELL
from fairij.report.about import About
from fairij.report.everyday import group_said, quoted
from fairij.report.wording import NOT_DEFINED, listed, measured

FOUR_FIFTHS = 0.8
LABEL_COLUMN = "column of true labels"  # the facts that name them
GROUP_COLUMNS = "columns of groups"
SURE = 0.35  # rates with a wider interval, as of thirty rows, are not spoken of


def of_measure(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """One measure of every group, of a table with an index of groups and measures."""
    return frame[frame.index.get_level_values(1) == name].droplevel(1)


def of_hundred(rate: float) -> str:
    """A share that can be read aloud: "8 of 100", or of 1,000 where that says too little."""
    if math.isnan(rate):
        return NOT_DEFINED
    if rate in (0, 1) or 0.015 <= rate <= 0.985:
        return f"{100 * rate:.0f} of 100"
    if 0.0005 <= rate <= 0.9995:
        return f"{1000 * rate:.0f} of 1,000"
    return "fewer than 1 of 1,000" if rate < 0.5 else "more than 999 of 1,000"


def first_words(audit: Audit, column: str = "", columns: Sequence[str] = ()) -> list[str]:
    """A paragraph or two that can be read aloud to somebody who knows no statistics.

    ``column`` is the name of the labels, for those that say little alone, such as "yes" or 1.
    ``columns`` are those of the groups.
    """
    about = About(label=column, groups=tuple(columns))
    if audit.positive_label is None:
        return [_of_several(audit, about)]
    label = quoted(audit.positive_label, about)
    rates = audit.by_group["selection_rate"]
    told = [
        _ends_said(audit, rates, f"The model gives the label {label} to", about),
        _difference_said(audit),
    ]
    found = audit.by_group["true_positive_rate"]
    if found.notna().sum() > 1:
        among = f"Among rows whose true label is {label}, it gives that label to"
        told.append(_ends_said(audit, found, among, about))
    right = f"Over all groups, it is right for {of_hundred(audit['accuracy'])} rows."
    return [" ".join(filter(None, told)), right]


def _of_several(audit: Audit, about: About) -> str:
    """The same for several classes, and for predictions of numbers."""
    groups = [group_said(str(name), about.groups) for name in audit.by_group.index]
    if "mean_prediction" in audit.by_group:
        means = audit.by_group["mean_prediction"].sort_values()
        low, *_, high = [f"{measured(mean)} for {group}" for group, mean in means.items()] * 2
        return f"The model's mean prediction is {low} and {high}. Compared are {listed(groups)}."
    told = [_ends_said(audit, audit.by_group["accuracy"], "The model is right for", about)]
    rates = audit.by_group.filter(regex=r"^selection_rate\[")
    if rates.shape[1]:
        apart = rates[(rates.max() - rates.min()).idxmax()]
        label = quoted(str(apart.name).partition("[")[2].removesuffix("]"), about)
        start = f"It differs most in how often it says {label}: for"
        told.append(_ends_said(audit, apart, start, about))
    return " ".join(filter(None, told))


def _spoken(audit: Audit, rates: pd.Series[Any]) -> pd.Series[Any]:
    """The rates that are sure enough to be spoken of, the lowest first."""
    known = rates.dropna().sort_values()
    ends = of_measure(audit.group_intervals, str(rates.name)).loc[known.index]
    enough = audit.by_group["count"].loc[known.index] >= SMALL_CELL
    sure = known[(ends["high"] - ends["low"] <= SURE) & enough]
    return sure if len(sure) > 1 else known


def _ends_said(audit: Audit, rates: pd.Series[Any], start: str, about: About) -> str:
    """The highest and the lowest share, of those that are sure enough to be spoken of."""
    spoken, known = _spoken(audit, rates), rates.dropna()
    shown = [(group_said(str(g), about.groups), float(rate)) for g, rate in spoken.items()]
    if not shown:
        return ""
    (low, lowest), (high, highest) = shown[0], shown[-1]
    if of_hundred(lowest) == of_hundred(highest):
        some = " that has enough such rows" if len(shown) < len(known) else ""
        return f"{start} {of_hundred(lowest)} rows in every group{some}."
    word = start.rpartition(" ")[2]
    text = f"{start} {_where(highest, high)} and {word} {_where(lowest, low)}."
    if len(known) == 2:
        return text
    without = len(known) - len(shown)
    some = "1 group" if without == 1 else f"{without:,} groups"
    left_out = f", without {some} with too few such rows" if without else ""
    return f"{text} These are the highest and the lowest share of {len(known):,} groups{left_out}."


def _where(rate: float, group: str) -> str:
    return f"{of_hundred(rate)} rows in the group {group}"


def _difference_said(audit: Audit) -> str:
    """The ratio next to four fifths, and whether chance alone could make the difference."""
    gap, low, _ = audit.interval("demographic_parity_difference")
    ratio, _, most = audit.interval("demographic_parity_ratio")
    if math.isnan(gap):
        return "For some groups this could not be measured."
    if low <= 0:
        return "On this many rows, chance alone could make this difference."
    told = "This difference is larger than chance would make it."
    if math.isnan(ratio):
        return told
    spoken = _spoken(audit, audit.by_group["selection_rate"])
    highest = float(spoken.iloc[-1])
    if highest and len(spoken) < audit.by_group["selection_rate"].notna().sum():
        ratio = float(spoken.iloc[0]) / highest  # else small groups decide
    found = f"The lowest share is {100 * ratio:.0f} % of the highest"
    rule = "the four-fifths rule, a common first test, asks for 80 %"
    if ratio >= FOUR_FIFTHS:
        return f"{told} {found}, which is enough: {rule}."
    other = (1 - highest) / (1 - float(spoken.iloc[0]))
    bad = f"If this label is bad for people, the other one counts: there it is {100 * other:.0f} %."
    if most >= FOUR_FIFTHS:
        return f"{told} {found}, but it may be up to {100 * most:.0f} %: {rule}. {bad}"
    return f"{told} {found}, which is too little: {rule}. {bad}"
