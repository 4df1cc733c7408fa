"""What the page is about, and which decisions changed: tables of plain facts."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from fairij.fairness.decisions import TopShare
from fairij.fairness.rates import GAPS
from fairij.mitigator import FairIJ
from fairij.report.about import About
from fairij.report.comparisons import Comparison
from fairij.report.everyday import per_hundred, quoted
from fairij.report.wording import LABELS, brief, shortened, signed

WORDS = {
    "balanced_accuracy": "The accuracy if every label were equally frequent.",
    "auc": "How well the scores order the rows: the chance that a row with the label has a higher "
    "score than one without it. 1 is perfect, 0.5 is random order.",
    "log_loss": "How far the chances that the model states are from the truth. It weighs great "
    "certainty in wrong answers heavily. Lower is better.",
    "brier": "The mean squared distance of the stated chances from the truth. Lower is better.",
    "calibration_error": "How far stated chances are from how often things happen, on average.",
    "mean_squared_error": "The mean of the squared errors of the predictions.",
}
FOLDS = {"worst_case": "", "mean": ", on average", "sum": ", added up"}
MOST_GROUPS = 12  # named with their sizes; of more, only the number
MOST_LINES = 120  # groups in the table of decisions


def about_section(
    fitted: FairIJ, validation: Comparison, unseen: Comparison | None, about: About
) -> list[tuple[str, str]]:
    """Model, tables, label, what counts as favourable, and the groups."""
    kind = type(fitted.estimator).__name__
    model = f"{about.model} ({kind})" if about.model else kind
    if about.edited:
        own = " in the folder of this page" if about.edited == about.model else ""
        model += f"; the edited model is {about.edited}{own}"
    found = [("Model", model)]
    sizes = {"training": int(fitted.diagnostics_["n_train"]), "validation": validation.size}
    if unseen is not None:
        sizes[unseen.rows.split()[0]] = unseen.size
    for name, size in sizes.items():
        file = about.tables.get(name, "")
        found.append((f"{name} rows".capitalize(), f"{size:,}" + (f" in {file}" if file else "")))
    if about.label:
        found.append(("Label", f"column {about.label}"))
    positive = validation.after.positive_label
    if positive is not None:
        found.append(("Counted as positive", _favourable(positive, about)))
    if fitted.threshold is not None:
        found.append(("Decisions", _decisions(fitted)))
    shown = unseen or validation
    text = _groups(shown, about)
    if shown.of_groups:
        text = " ".join([f"{text}.", *shown.of_groups])
    return [*found, ("Groups", text)]


def _decisions(fitted: FairIJ) -> str:
    asked = fitted.threshold
    cut = f"{fitted.threshold_:.4g}"
    if isinstance(asked, TopShare):
        return f"the {asked.share:.0%} of the rows with the highest scores, a cut-off of {cut}"
    return (
        f"at a cut-off of {cut}, as was asked for (0.5 is usual). Rates, accuracy and gaps are of "
        "these."
    )


def _favourable(positive: Any, about: About) -> str:
    label = quoted(positive, about)
    if about.favourable_given:
        return f"{label}, as was asked for. Rates are about this label."
    return (
        f"{label}. All rates are about this label, whether it is good or bad for people. For the "
        "other one, name it: --pos-label, in Python pos_label."
    )


def _groups(shown: Comparison, about: About) -> str:
    sizes = shown.before.by_group["count"]
    columns = f"of {' and '.join(about.groups)}: " if about.groups else ""
    few, many = int(sizes.min()), int(sizes.max())
    if len(sizes) > MOST_GROUPS:
        return f"{columns}{len(sizes)}, each with {few:,} to {many:,} {shown.rows}"
    named = ", ".join(f"{shortened(g, 40)} ({int(n):,})" for g, n in sizes.items())
    return f"{columns}{named} {shown.rows}"


def decisions_section(shown: Comparison, about: About) -> dict[str, Any] | None:
    """Which decisions changed, by group and direction; None if that is not known."""
    if shown.changes is None:
        return None
    found = shown.changes.decisions
    if "moved" in found:
        return _moved(shown, found)
    label = quoted(shown.after.positive_label, about)
    columns = {"changed": "changed"}
    if "to_positive" in found:
        columns = {"to_positive": f"to {label}", "to_negative": f"away from {label}"} | columns
    total = found.sum()
    lines = [*found.head(MOST_LINES).iterrows(), ("all", total)]
    rows = [
        (str(group), f"{line['rows']:,.0f}", [_counted(line, name) for name in columns])
        for group, line in lines
    ]
    if not total["changed"]:
        text = f"None. The two models decide alike about all {total['rows']:,.0f} {shown.rows}."
        return {"text": text, "columns": [], "rows": [], "left_out": 0}
    (share,) = per_hundred(shown.changes.changed)
    text = (
        f"The two models decide differently about {total['changed']:,.0f} of "
        f"{total['rows']:,.0f} {shown.rows}, {share} of 100."
    )
    if "to_positive" in found:
        text += (
            f" The edited model newly says {label} of {total['to_positive']:,.0f}, and no longer "
            f"says it of {total['to_negative']:,.0f}."
        )
    left_out = max(0, len(found) - MOST_LINES)
    return {"text": text, "columns": list(columns.values()), "rows": rows, "left_out": left_out}


def _counted(line: Any, name: str) -> str:
    (share,) = per_hundred(line[name] / line["rows"] if line["rows"] else math.nan)
    return f"{line[name]:,.0f} ({share} of 100)"


def _moved(shown: Comparison, found: pd.DataFrame) -> dict[str, Any]:
    rows = [
        (str(group), f"{line['rows']:,.0f}", [brief(line["moved"]), signed(line["change"])])
        for group, line in found.head(MOST_LINES).iterrows()
    ]
    return {
        "text": f"How far the edit moves the predictions, on the {shown.rows}.",
        "columns": ["moved by, on average", "mean change"],
        "rows": rows,
        "left_out": max(0, len(found) - MOST_LINES),
    }


def calibration_section(shown: Comparison) -> list[tuple[str, str, str]]:
    """The calibration error of each group before and after, in parts of 100."""
    if shown.changes is None or not len(shown.changes.calibration):
        return []
    found = shown.changes.calibration.head(MOST_LINES)
    return [
        (str(group), f"{100 * line['before']:.1f}", f"{100 * line['after']:.1f}")
        for group, line in found.iterrows()
    ]


def four_fifths(shown: Comparison) -> str:
    """What the four-fifths rule says; empty if there is no such ratio."""
    values = shown.values("demographic_parity_ratio")
    if values is None or math.isnan(values[1]):
        return ""
    before, after = (f"{value:.2f}" for value in values)
    return (
        "A ratio is the lowest rate of a group as a share of the highest. The four-fifths rule "
        f"asks for at least 0.80 of the selection rates: it was {before} and is {after}."
    )


def words_section(shown: Comparison) -> list[tuple[str, str]]:
    """What each measure on the page means, in a sentence."""
    found = [(LABELS[name], text) for name, text in WORDS.items() if shown.values(name) is not None]
    for gap in GAPS.values():
        if gap.metric_name in shown.before.metrics.index:
            text = f"How much the groups differ in their {gap.rates_in_words}{FOLDS[gap.fold]}."
            found.append((gap.words, text))
    return list(dict(found).items())  # two constraints may have one gap
