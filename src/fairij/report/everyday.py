"""Rates and gaps in words that anyone understands: how often the model says what, of whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairij.fairness.missing import SMALL_CELL
from fairij.fairness.rates import Gap
from fairij.report.about import About
from fairij.report.comparisons import Comparison
from fairij.report.wording import brief, shortened

CLOSED = 0.02  # a difference of rates below which people say "about as often"
BARE = {"yes", "no", "true", "false", "y", "n", "pos", "neg", "positive", "negative"}


@dataclass(frozen=True)
class Phrase:
    """A rate as the beginning and the verb of a sentence; ``{}`` is the positive label."""

    among: str
    verb: str

    def sentence(self, label: str) -> tuple[str, str]:
        """``Where “yes” is true, the model`` and its verb."""
        among, verb = self.among.format(label), self.verb.format(label)
        subject = "it" if "model" in among else "the model"
        start = f"{among}{subject}"
        return start[0].upper() + start[1:], verb


PHRASES = {
    "selection_rate": Phrase("", "says {}"),
    "true_positive_rate": Phrase("Where {} is true, ", "says so"),
    "false_positive_rate": Phrase("Where {} is not true, ", "says it all the same"),
    "false_negative_rate": Phrase("Where {} is true, ", "misses it"),
    "accuracy": Phrase("", "is right"),
    "error_rate": Phrase("", "is wrong"),
    "precision": Phrase("Where the model says {}, ", "is right"),
    "negative_predictive_value": Phrase("Where the model does not say {}, ", "is right"),
}


def quoted(label: Any, about: About) -> str:
    """A label as people know it: with the name of its column where it says little alone."""
    text = shortened(label, 40)
    is_bare = not isinstance(label, str) or _says_little(text)
    return f"“{about.label} = {text}”" if is_bare and about.label else f"“{text}”"


def group_said(group: str, columns: Sequence[str]) -> str:
    """A group as people know it: with the names of its columns where values say little alone."""
    values = group.split(" & ")
    if len(values) != len(columns) or not any(map(_says_little, values)):
        return group
    return " & ".join(f"{name} {value}" for name, value in zip(columns, values, strict=True))


def _says_little(text: str) -> bool:
    return text.lower() in BARE or _is_number(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def per_hundred(*shares: float) -> list[str]:
    """Shares as "13 of 100" without the words: with decimals only where they are needed."""
    known = sorted({round(100 * share, 6) for share in shares if math.isfinite(share)})
    digits = 0
    while digits < 2 and not _told_apart(known, digits):
        digits += 1
    return ["an unknown number" if math.isnan(s) else f"{100 * s:.{digits}f}" for s in shares]


def _told_apart(values: Sequence[float], digits: int) -> bool:
    """Whether values are not rounded away: none to 0, and no two to the same far too early."""
    unit = 10.0**-digits
    if any(0 < value < 1.5 * unit for value in values):
        return False
    apart = zip(values[1:], values, strict=False)
    return all(a - b < 0.5 * unit or f"{a:.{digits}f}" != f"{b:.{digits}f}" for a, b in apart)


OPPOSITES = {"false_negative_rate": "true_positive_rate", "error_rate": "accuracy"}


def by_group(
    shown: Comparison, rate: str, columns: Sequence[str] = ()
) -> tuple[dict[str, float], dict[str, float]]:
    """A rate of every group before and after, where it is defined."""
    kind, bracket, rest = rate.partition("[")
    column = OPPOSITES.get(kind, kind) + bracket + rest
    before, after = (
        {
            group_said(str(group), columns): float(1 - value if kind in OPPOSITES else value)
            for group, value in audit.by_group[column].items()
        }
        for audit in (shown.before, shown.after)
    )
    known = [g for g in before if not (math.isnan(before[g]) or math.isnan(after[g]))]
    sizes = dict(zip(before, shown.after.by_group["count"], strict=True))
    large = [g for g in known if sizes[g] >= SMALL_CELL]
    known = large if len(large) > 2 else known  # of many groups small ones are at the ends
    return {g: before[g] for g in known}, {g: after[g] for g in known}


def rate_sentence(
    shown: Comparison,
    rate: str,
    label: str,
    *,
    edited: bool,
    now: bool = True,
    columns: Sequence[str] = (),
) -> str:
    """How often the model says or does something in each group, before and after."""
    before, after = by_group(shown, rate, columns)
    if len(after) < 2:
        return ""
    start, verb = PHRASES[rate.partition("[")[0]].sentence(label)
    if not edited:
        return f"{start} {verb} {_ends(after)}."
    word = " now" if now else ""
    if len(after) > 2:
        return f"{start}{word} {verb} {_ends(after)}. Before, it was {_ends(before, short=True)}."
    (one, other), figures = after, per_hundred(*after.values(), *before.values())
    a, b, a0, b0 = figures
    if abs(after[one] - after[other]) < CLOSED < abs(before[one] - before[other]):
        return (
            f"{start}{word} {verb} about as often for {one} as for {other}: for {a} and {b} of "
            f"100, instead of {a0} and {b0}."
        )
    return (
        f"{start}{word} {verb} for {a} of 100 {one} and for {b} of 100 {other}, instead of {a0} "
        f"and {b0}."
    )


def _ends(rates: dict[str, float], *, short: bool = False) -> str:
    """The two groups, or the highest and the lowest of more."""
    high, low = max(rates, key=lambda g: rates[g]), min(rates, key=lambda g: rates[g])
    if len(rates) == 2:
        one, other = rates
        a, b = per_hundred(rates[one], rates[other])
        return f"for {a} of 100 {one} and for {b} of 100 {other}"
    a, b = per_hundred(rates[high], rates[low])
    if short:
        return f"{a} of 100 in the group {high} and {b} of 100 in the group {low}"
    return (
        f"most often in the group {high}, for {a} of 100, and least often in the group {low}, for "
        f"{b} of 100"
    )


def gap_sentences(shown: Comparison, gap: Gap, about: About, *, edited: bool) -> list[str]:
    """What the gap of a constraint means, one sentence for each of its rates."""
    if not gap.is_classification:
        return [_numbers(shown, gap.rates[0].name, about.groups, edited=edited)]
    if gap.form == "highest":
        return [_highest(shown, gap.rates[0].name, about.groups, edited=edited)]
    told = []
    for place, rate in enumerate(gap.rates):
        name, label = _widest(shown, rate.name, about)
        settings: dict[str, Any] = {"edited": edited, "now": place == 0}
        told.append(rate_sentence(shown, name, label, **settings, columns=about.groups))
    if gap.form == "ratio":
        told.append(_ratio(shown, gap.family, edited=edited))
    return [text for text in told if text]


def _widest(shown: Comparison, rate: str, about: About) -> tuple[str, str]:
    """The column of a rate and its label: of several classes the one that differs most."""
    column = OPPOSITES.get(rate, rate)
    if column in shown.after.by_group:
        return rate, quoted(shown.after.positive_label, about)
    names = [str(name) for name in shown.after.by_group if str(name).startswith(f"{column}[")]
    rates = shown.before.by_group[names]
    label = str((rates.max() - rates.min()).idxmax()).partition("[")[2].removesuffix("]")
    return f"{rate}[{label}]", quoted(label, about)


def _ratio(shown: Comparison, family: str, *, edited: bool) -> str:
    name = f"{family}_ratio"
    if name not in shown.after or math.isnan(shown.after[name]):
        return ""
    was = f", instead of {shown.before[name]:.0%}" if edited else ""
    return f"The lower share is {shown.after[name]:.0%} of the higher one{was}."


def _highest(shown: Comparison, rate: str, columns: Sequence[str], *, edited: bool) -> str:
    before, after = by_group(shown, rate, columns)
    worst, was = max(after, key=lambda g: after[g]), max(before, key=lambda g: before[g])
    a, a0 = per_hundred(after[worst], before[was])
    if not edited:
        return f"The model is wrong most often in the group {worst}: for {a} of 100."
    return (
        f"The model is now wrong most often in the group {worst}: for {a} of 100. Before, it was "
        f"in the group {was}: for {a0} of 100."
    )


def _numbers(shown: Comparison, rate: str, columns: Sequence[str], *, edited: bool) -> str:
    """The same in regression."""
    before, after = by_group(shown, rate, columns)
    high, low = max(after, key=lambda g: after[g]), min(after, key=lambda g: after[g])
    one, other = (high, low) if len(after) > 2 else tuple(after)
    a, b, a0, b0 = (brief(v) for v in (after[one], after[other], before[one], before[other]))
    is_error = rate == "mean_error"
    verb = "is off by (prediction less true value)" if is_error else "predicts"
    was = f", instead of {a0} and {b0}" if edited else ""
    now = " now" if edited else ""
    return f"On average the model{now} {verb} {a} for {one} and {b} for {other}{was}."
