"""Questions about what the edit did to people: what it reached, whether it holds, its costs."""

from __future__ import annotations

import math

from fairij.mitigator import FairIJ
from fairij.report.about import About
from fairij.report.comparisons import Comparison, gap_metric, other_gaps, performance
from fairij.report.everyday import per_hundred, quoted
from fairij.report.headline import NOTICED
from fairij.report.shortfalls import has_aims, shortfalls
from fairij.report.verdicts import ORDER, Check, Verdict, level_of
from fairij.report.wording import (
    LABELS,
    changed_by,
    interval,
    is_edited,
    measured,
    on_other_rows,
)


def was_reached(fitted: FairIJ, shown: Comparison, about: About) -> list[Check]:
    question, missed = "Was what you asked for reached?", shortfalls(fitted, shown, about)
    found = []
    for part in missed:
        if part.is_one_sided or part.is_default:
            name = "Does the model just say less, or more?"
            if part.is_default:
                name = "Did it cost more than the default allows?"
            found.append(Check(name, "red" if part.is_clear else "amber", part.text))
    missed = [part for part in missed if not (part.is_one_sided or part.is_default)]
    if missed:
        verdict: Verdict = "red" if any(part.is_clear for part in missed) else "amber"
        text = " ".join(part.text for part in missed)
        if verdict == "amber":
            text += " The intervals do not rule out that it is reached."
        return [Check(question, verdict, text), *found]
    if not has_aims(fitted):
        return found
    return [Check(question, "green", f"Yes, on the {shown.rows}."), *found]


def does_it_hold(fitted: FairIJ, validation: Comparison, unseen: Comparison | None) -> Check:
    question, metric = "Does it hold on rows that played no part?", gap_metric(fitted)
    if unseen is None or metric is None:
        why = "The gap of this constraint is measured on validation rows only."
        why = "No test rows were given." if unseen is None else why
        return Check(question, "amber", f"{why} {on_other_rows(fitted)}")
    before, after = unseen.before[metric], unseen.after[metric]
    if math.isnan(after):
        return Check(question, "red", f"The {LABELS[metric]} on the {unseen.rows} is not defined.")
    first, last = validation.before[metric], validation.after[metric]
    share = (before - after) / (first - last) if first > last else 1.0
    moved, low, high = unseen.change(metric)
    text = (
        f"On the {unseen.rows} the {LABELS[metric]} went from {measured(before)} to "
        f"{measured(after)} ({interval(*unseen.after_interval(metric))}). On the validation rows "
        f"it went from {measured(first)} to {measured(last)}."
    )
    if not is_edited(fitted):
        return Check(question, "green", text)
    text += f" The change on the {unseen.rows} is {changed_by(moved, low, high)}."
    if after >= before:
        last_words = "So the improvement does not hold."
        return Check(question, "red", f"{text} {last_words}", last_words)
    if high >= 0:
        last_words = f"The change of the gap on the {unseen.rows} may be chance."
        return Check(question, "amber", f"{text} {last_words}", last_words)
    verdict: Verdict = "green" if share >= 0.75 else "amber"
    return Check(question, verdict, text).ending(
        "So the improvement holds.",
        "So part of the improvement exists on the validation rows only.",
        "",
    )


def what_it_cost(fitted: FairIJ, shown: Comparison, about: About) -> Check:
    question, level = "What did it cost in performance?", performance(fitted)
    before, after = shown.before[level], shown.after[level]
    if not fitted.loss_.is_classification:
        grown = after / before - 1 if before else 0.0
        text = (
            f"The {LABELS[level]} on the {shown.rows} went from {measured(before)} to "
            f"{measured(after)} ({grown:+.1%})."
        )
        return Check(question, level_of(grown, 0.05, 0.25), text)
    told, bad, verdicts = [], [], []
    for name, amber, red in ((level, 0.01, 0.05), ("balanced_accuracy", 0.02, 0.1),
                             ("auc", 0.02, 0.05)):  # fmt: skip
        values = shown.values(name)
        if values is None:
            continue
        verdicts.append(level_of(values[0] - values[1], amber, red))
        said = f"{LABELS[name]} {measured(values[0])} → {measured(values[1])}"
        told.append(f"{said} (change {changed_by(*shown.change(name))})")
        bad += [said] if verdicts[-1] != "green" else []
    text = f"On the {shown.rows}: {'; '.join(told)}."
    if found := _found_less(shown, about):
        verdicts.append("amber")
        text, bad = f"{text} {found}", [*bad, found[0].lower() + found[1:]]
    return Check(question, max(verdicts, key=ORDER.index), text, _sentence(bad))


def _sentence(parts: list[str]) -> str:
    text = "; ".join(parts).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _found_less(shown: Comparison, about: About) -> str:
    """A sentence if many cases of the positive label are not found any more."""
    if shown.changes is None or "true_positive_rate" not in shown.changes:
        return ""
    before, after = shown.changes.values("true_positive_rate")
    if not before - after > 0.1 * before:
        return ""
    a0, a = per_hundred(before, after)
    label = quoted(shown.after.positive_label, about)
    return f"Where {label} is true, the model now says so for {a} of 100, instead of {a0}."


def are_chances_true(fitted: FairIJ, shown: Comparison) -> list[Check]:
    """Whether the chances that the model states still come true, in every group."""
    if shown.changes is None or not len(shown.changes.calibration):
        return []
    found = shown.changes.calibration.dropna()
    if not len(found):
        return []
    grown = found["low"] - found["before"]
    worst = int(grown.to_numpy().argmax())
    group = str(found.index[worst])
    before, after = (float(found[name].iloc[worst]) for name in ("before", "after"))
    text = (
        f"The chances that the model states are off by {measured(after)} on average for {group}, "
        f"{measured(before)} before (calibration error on the {shown.rows}). No other group is "
        "further from before."
    )
    verdict = level_of(float(grown.max()), 0.02, 0.1) if is_edited(fitted) else "green"
    return [
        Check("Do its chances still come true?", verdict, text).ending(
            "So its scores can be read as before.",
            f"Calibrate again before you read the scores of the group {group} as chances.",
            f"Do not read the scores of {group} as chances.",
        )
    ]


def did_others_grow(fitted: FairIJ, shown: Comparison) -> Check:
    question = "Did other gaps grow?"
    worse, maybe = [], []
    for name in other_gaps(fitted, shown):
        change, low, _ = shown.change(name)
        if math.isnan(low):
            low = shown.after_interval(name)[0] - shown.before[name]
        said = f"{LABELS[name]} {measured(shown.before[name])} → {measured(shown.after[name])}"
        if low > 0:
            worse.append(said)
        elif change > NOTICED:
            maybe.append(said)
    if worse:
        text = (
            f"Yes, clearly, on the {shown.rows}: {'; '.join(worse)}. Different gaps can seldom be "
            "closed together. Decide which one matters here."
        )
        return Check(question, "amber", text, f"Yes: {'; '.join(worse)}.")
    text = f"No measured gap grew beyond doubt on the {shown.rows}."
    if maybe:
        text += f" These are larger, which may be chance: {'; '.join(maybe)}."
    return Check(question, "green", text)
