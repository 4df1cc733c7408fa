"""What was asked for and is not so: a gap that grew, a target or a budget that is missed."""

from __future__ import annotations

from dataclasses import dataclass

from fairij.method.preparation import get_selection
from fairij.method.selection import ROUNDING, RULES
from fairij.mitigator import FairIJ
from fairij.report.comparisons import Comparison, gap_metric, gap_words
from fairij.report.wording import LABELS, interval, is_edited, measured


@dataclass(frozen=True)
class Shortfall:
    """A sentence, and how sure it is."""

    text: str
    is_clear: bool  # the whole interval lies on the wrong side
    is_promise: bool = True  # of a target or a budget; else the gap grew


def shortfalls(fitted: FairIJ, shown: Comparison) -> list[Shortfall]:
    """All that is missed on these rows, worst first."""
    return [*_grown(fitted, shown), *_target(fitted, shown), *_budgets(fitted, shown)]


def has_aims(fitted: FairIJ) -> bool:
    """Whether the rule of choice names a target or a budget."""
    rule = get_selection(fitted.selection)
    return rule.target is not None or (bool(rule.budgets) and rule != RULES["budget"])


def _grown(fitted: FairIJ, shown: Comparison) -> list[Shortfall]:
    metric = gap_metric(fitted)
    if metric is None or not is_edited(fitted):
        return []
    before, after = shown.before[metric], shown.after[metric]
    if not after > before:
        return []
    is_clear = shown.after_interval(metric)[0] > before
    text = (
        f"The edit {'did' if is_clear else 'may have done'} harm: the {LABELS[metric]}, which it "
        f"was to lower, GREW on the {shown.rows}, from {measured(before)} to {measured(after)}. "
        f"{'' if is_clear else 'This may be chance. '}Do not use it."
    )
    return [Shortfall(text, is_clear, is_promise=False)]


def _target(fitted: FairIJ, shown: Comparison) -> list[Shortfall]:
    target, metric = get_selection(fitted.selection).target, gap_metric(fitted)
    if target is None:
        return []
    chosen = float(fitted.candidates_["gap"].iloc[fitted.chosen_])
    measures = {"validation rows": (chosen, chosen, "")}
    if metric is not None:
        low, high = shown.after_interval(metric)
        measures[shown.rows] = (shown.after[metric], low, f" ({interval(low, high)})")
    return [
        Shortfall(
            f"The target is missed: a {gap_words(fitted)} of at most {target:g} was asked for, and "
            f"on the {rows} it is {measured(gap)}{ends}.",
            low > target + ROUNDING,
        )
        for rows, (gap, low, ends) in reversed(measures.items())  # test rows first
        if gap > target + ROUNDING
    ]


def _budgets(fitted: FairIJ, shown: Comparison) -> list[Shortfall]:
    rule, found = get_selection(fitted.selection), []
    is_asked = rule != RULES["budget"]
    for name, allowed in rule.budgets.items():
        if name not in shown.before or name not in shown.after:
            continue  # measured on validation rows only
        before, after, (_, high) = shown.before[name], shown.after[name], shown.after_interval(name)
        if before - after <= allowed + ROUNDING:
            continue
        aim = "The budget is missed" if is_asked else "The edit costs more than the default allows"
        text = (
            f"{aim}: at most {allowed:g} of {LABELS[name]} was to be lost, and on "
            f"the {shown.rows} it went from {measured(before)} to {measured(after)}, a loss of "
            f"{measured(before - after)}."
        )
        found.append(Shortfall(text, high < before - allowed, is_promise=is_asked))
    return found
