"""One line for each rate that an audit compares: its ends, gap and ratio, and what they mean."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairij.fairness import Audit
from fairij.fairness.rates import GAPS, Gap
from fairij.report.audit_words import FOUR_FIFTHS
from fairij.report.verdicts import ORDER, Verdict
from fairij.report.wording import NOT_DEFINED, UNKNOWN, interval, measured, plain

SMALL_GAP = 0.05  # a clear difference below this is called small
WIDE = 0.1  # an interval from 0 to more than this says little
SAID = {
    "red": "clear difference",
    "amber": "look closer",
    "green": "no clear difference",
}
# gaps that say the same the other way round
MIRRORS = {"false_negative_rate_parity", "error_rate_parity"}


@dataclass(frozen=True)
class Reading:
    """One rate over all groups: its ends, gap and ratio, and what that means."""

    constraint: str
    rate: str
    lowest: str
    highest: str
    gap: str
    gap_interval: str
    ratio: str
    ratio_interval: str
    verdict: Verdict
    text: str

    @property
    def meaning(self) -> str:
        return SAID[self.verdict]


def readings(audit: Audit) -> list[Reading]:
    """One line for each rate that is compared between groups."""
    return [_reading(audit, gap) for gap in _single_gaps(audit)]


def worst(found: list[Reading]) -> Verdict:
    return max((reading.verdict for reading in found), key=ORDER.index)


def _single_gaps(audit: Audit) -> Iterator[Gap]:
    for gap in GAPS.values():
        is_single = len(gap.rates) == 1 and gap.fold == "worst_case" and gap.form == "difference"
        if is_single and gap.name not in MIRRORS and gap.metric_name in audit:
            yield gap


def _reading(audit: Audit, gap: Gap) -> Reading:
    rate = gap.rates[0].name
    value, low, high = audit.interval(gap.metric_name)
    name = f"{gap.name}_ratio"
    ratio, least, most = audit.interval(name) if name in audit else (math.nan,) * 3
    column = _widest(audit, rate)
    verdict, text = _judged(value, low, high)
    if gap.name == "demographic_parity" and ratio < FOUR_FIFTHS:
        text += f" The ratio is below four fifths ({FOUR_FIFTHS})."
    return Reading(
        gap.name,
        plain(column),
        *_ends(audit.by_group[column]),
        measured(value),
        interval(low, high),
        measured(ratio) if gap.is_classification else UNKNOWN,
        interval(least, most) if gap.is_classification else "",
        verdict,
        text,
    )


def _widest(audit: Audit, rate: str) -> str:
    """The column of the rate; with several classes, the one where groups are farthest apart."""
    names = [name for name in map(str, audit.by_group) if name.partition("[")[0] == rate]
    apart = [audit.by_group[name].max() - audit.by_group[name].min() for name in names]
    return max(zip(np.nan_to_num(apart, nan=-1), names, strict=True))[1]


def _ends(values: pd.Series[Any]) -> tuple[str, str]:
    """The groups with the lowest and with the highest value."""
    known = values.dropna().sort_values()
    if known.empty:
        return NOT_DEFINED, NOT_DEFINED
    show = measured if str(values.name).startswith("mean") else share
    first, *_, last = [f"{group}: {show(value)}" for group, value in known.items()] * 2
    return first, last


def share(rate: float) -> str:
    return NOT_DEFINED if math.isnan(rate) else f"{100 * rate:.1f} %"


def _judged(value: float, low: float, high: float) -> tuple[Verdict, str]:
    if math.isnan(value):
        return "amber", "It could not be measured, because a group lacks the rows that it needs."
    if low > 0 and value >= SMALL_GAP:
        return "red", "The groups differ by more than chance explains."
    if low > 0:
        return "amber", f"A small difference (below {SMALL_GAP}), but more than chance explains."
    if high > WIDE:
        return (
            "amber",
            "Chance could explain it, but there are too few rows to rule out a gap of "
            f"{measured(high)}.",
        )
    return "green", "Chance could explain it, and a large gap is ruled out."
