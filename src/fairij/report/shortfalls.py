"""What people must read first: a gap that grew, a model that just says less, missed aims."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairij.method.preparation import get_selection
from fairij.method.rules import RULES
from fairij.method.selection import BUDGETED, ROUNDING
from fairij.mitigator import FairIJ
from fairij.report.about import About
from fairij.report.comparisons import Comparison, gap_metric, gap_words
from fairij.report.everyday import per_hundred, quoted
from fairij.report.wording import LABELS, interval, is_edited, measured

SLIGHT = 0.005  # a rate that rose by less did not rise
LOST, MUCH = 0.1, 0.25  # of the cases that were found before


@dataclass(frozen=True)
class Shortfall:
    """A sentence, and how sure it is."""

    text: str
    is_clear: bool  # the whole interval lies on the wrong side
    is_promise: bool = True  # of a target or a budget; else of what the edit did
    is_one_sided: bool = False
    is_default: bool = False  # of a limit that nobody asked for

    @property
    def comes_first(self) -> bool:
        """Whether it stands above all else; else it is one check among others."""
        return self.is_clear or not self.is_default


def shortfalls(fitted: FairIJ, shown: Comparison, about: About | None = None) -> list[Shortfall]:
    """All that is missed on these rows, worst first."""
    return [
        *_grown(fitted, shown),
        *_one_sided(fitted, shown, about or About()),
        *_target(fitted, shown),
        *_budgets(fitted, shown),
    ]


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
    _, low, _ = shown.change(metric)
    is_clear = (shown.after_interval(metric)[0] > before) if math.isnan(low) else low > 0
    text = (
        f"The edit {'did' if is_clear else 'may have done'} harm: the {LABELS[metric]}, which it "
        f"was to lower, GREW on the {shown.rows}, from {measured(before)} to {measured(after)}. "
        f"{'' if is_clear else 'This may be chance. '}Do not use it."
    )
    return [Shortfall(text, is_clear, is_promise=False)]


def _one_sided(fitted: FairIJ, shown: Comparison, about: About) -> list[Shortfall]:
    """A gap that shrinks because the model says a label less (or more) often in all groups."""
    changes, metric = shown.changes, gap_metric(fitted)
    if not is_edited(fitted) or changes is None or "true_positive_rate" not in changes:
        return []
    rates = "selection_rate"
    moves = (shown.after.by_group[rates] - shown.before.by_group[rates]).dropna()
    label = quoted(shown.after.positive_label, about)
    is_less = bool((moves <= SLIGHT).all())
    if not is_less and not bool((moves >= -SLIGHT).all()):
        return []
    rate = "true_positive_rate" if is_less else "false_positive_rate"
    before, after = changes.values(rate)
    _, low, high = changes.change(rate)
    found = (before, after) if is_less else (1 - before, 1 - after)  # cases that are found
    lost = 1 - found[1] / found[0] if found[0] else 0.0
    if not lost >= LOST:
        return []
    a0, a = per_hundred(before, after)
    way, where, says = (
        ("less", f"Where {label} is true", "says so")
        if is_less
        else ("more", f"Where {label} is not true", "says it all the same")
    )
    text = (
        f"The edit mostly makes the model say {label} {way} often, in every group. {where}, it now "
        f"{says} for {a} of 100, instead of {a0}."
    )
    if metric is not None:
        gain = shown.before[metric] - shown.after[metric]
        text += f" The {LABELS[metric]} fell by {measured(gain)} for that."
    is_sure = high < 0 if is_less else low > 0
    return [Shortfall(text, lost >= MUCH and is_sure, is_promise=False, is_one_sided=True)]


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
        values = shown.values(name)
        if values is None:
            continue
        before, after = values
        sign = 1 if BUDGETED[name] else -1  # of what is lost if the measure falls
        lost = sign * (before - after)
        if not lost > allowed + ROUNDING:
            continue
        aim = "The budget is missed" if is_asked else "The edit costs more than the default allows"
        what = f"at most {allowed:g} of {LABELS[name]} was to be lost"
        if sign < 0:
            what = f"the {LABELS[name]} was to grow by at most {allowed:g}"
        text = (
            f"{aim}: {what}, and on the {shown.rows} it went from {measured(before)} to "
            f"{measured(after)}, a {'loss' if sign > 0 else 'growth'} of {measured(lost)}."
        )
        is_clear = _is_sure(shown, name, sign, allowed)
        found.append(Shortfall(text, is_clear, is_promise=is_asked, is_default=not is_asked))
    return found


def first_lines(fitted: FairIJ, shown: Comparison, about: About | None = None) -> list[str]:
    """The sentences that stand above all else."""
    return [part.text for part in shortfalls(fitted, shown, about) if part.comes_first]


def _is_sure(shown: Comparison, name: str, sign: int, allowed: float) -> bool:
    """Whether the whole interval of the change is worse than the budget allows."""
    _, low, high = shown.change(name)
    if math.isnan(low) or math.isnan(high):
        if name not in shown.after:
            return False
        low, high = (end - shown.before[name] for end in shown.after_interval(name))
    return (-high if sign > 0 else low) > allowed
