"""The content of each section of the page: numbers, sentences and charts."""

from __future__ import annotations

import math
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.mitigator import FairIJ
from fairij.report.candidates import Shown, shown_candidates
from fairij.report.comparisons import Comparison, metric_rows, rate_rows, view_rows
from fairij.report.facts import calibration_section, four_fifths
from fairij.report.plots import chart_rates, frontier, influence_curve, picked_mark, rate_chart
from fairij.report.slices import concentration
from fairij.report.training_table import TrainingTable, harmful_rows
from fairij.report.wording import LABELS, UNKNOWN, measured, plain, shortened

PACKAGES = (
    *("fairij", "torch", "numpy", "scipy", "pandas", "scikit-learn"),
    *("lightgbm", "xgboost", "xgboost-cpu", "transformers", "altair"),
)
MOST_RATES = 1200  # lines of the table of every group's rates
MOST_GROUPS = 30  # in a chart; the table has all groups
SMOOTH = (
    "Predicted labels jump from no to yes. So the method works with a smooth gap, the gap of "
    "average scores. "
)
NOTES = {
    "test rows": "The edit never used these rows.",
    "held-out rows": "These validation rows were used neither to compute nor to choose the edit.",
    "validation rows": "The edit was chosen on these rows, so their figures look too good.",
}
FRONT_ROWS = 60


def spec(chart: Any) -> dict[str, Any]:
    """A chart as wide as its container. The page has its caption, the page's script its style."""
    parts: dict[str, Any] = chart.to_dict(validate=False)  # tests check that charts are valid
    parts["width"] = "container"
    return {name: part for name, part in parts.items() if name not in ("title", "config")}


def rates_section(
    fitted: FairIJ, validation: Comparison, unseen: Comparison | None
) -> list[dict[str, Any]]:
    return [_part(fitted, part) for part in (unseen, validation) if part is not None]


def _part(fitted: FairIJ, part: Comparison) -> dict[str, Any]:
    rates, left_out = rate_rows(part, MOST_RATES)
    return {
        "name": part.rows,
        "note": NOTES[part.rows],
        "charts": _rate_charts(part),
        "metrics": metric_rows(fitted, part),
        "rates": rates,
        "left_out": left_out,
        "said": part.said,
        "calibration": calibration_section(part),
        "ratio": four_fifths(part),
        "views": view_rows(fitted, part),
    }


def _rate_charts(part: Comparison) -> list[dict[str, Any]]:
    before, after = part.before.group_intervals, part.after.group_intervals
    if len(part.before.by_group) > MOST_GROUPS:
        return []
    return [
        {
            "name": f"{part.rows.split()[0]}-{place}",
            "spec": spec(rate_chart(before, after, rate)),
            "label": f"{plain(rate)} by group before and after, on the {part.rows}",
        }
        for place, rate in enumerate(chart_rates(before))
    ]


def frontier_section(fitted: FairIJ) -> dict[str, Any]:
    shown = shown_candidates(fitted)
    values = shown.for_script(fitted.chosen_)
    front = [row for row, flag in zip(values["figures"], values["pareto"], strict=True) if flag]
    some = np.linspace(0, len(front) - 1, min(FRONT_ROWS, len(front))).round().astype(int)
    return {
        "candidates": values,
        "frontiers": _frontiers(fitted, shown, values),
        "performance": LABELS[shown.performance],
        "front": [_figures(front[place], values["gap"]) for place in some],
        "left_out": shown.left_out,
    }


def _frontiers(fitted: FairIJ, shown: Shown, values: dict[str, Any]) -> list[dict[str, Any]]:
    """One chart of performance against the gap, and one of AUC if it is known."""
    drawn = {shown.performance: _floor(fitted)}
    if "auc" in shown.table and np.isfinite(shown.table["auc"]).all():
        drawn["auc"] = (0.5, "rows in random order")
    place = {"auc": "auc"}
    return [
        {
            "name": f"frontier-{name}",
            "y": place.get(name, "performance"),
            "words": LABELS[name],
            "floor": "" if floor is None else f"{floor[1]}: {measured(floor[0])}",
            "spec": spec(
                picked_mark(
                    frontier(shown.table, fitted.chosen_, performance=name, floor=floor),
                    values["chosen"],
                )
            ),
        }
        for name, floor in drawn.items()
    ]


def _floor(fitted: FairIJ) -> tuple[float, str] | None:
    """What the same answer for all rows would reach."""
    if not fitted.loss_.is_classification:
        return 0.0, "the mean for all"
    if fitted.changes_ is None or math.isnan(fitted.changes_.largest_class):
        return None
    return fitted.changes_.largest_class, "the same answer for all"


def _figures(row: list[float | None], first: int) -> list[str]:
    """Settings in few digits; measures, from place ``first`` on, in four decimals."""
    known = [math.nan if value is None else value for value in row]
    return [f"{v:,g}" for v in known[:first]] + [measured(v) for v in known[first:]]


def influence_section(fitted: FairIJ) -> dict[str, Any]:
    scores = fitted.influence_
    scored, positive = int((~np.isnan(scores)).sum()), int((scores > 0).sum())
    total = float(scores[scores > 0].sum())
    worst = np.sort(scores[scores > 0])[::-1][: max(1, scored // 100)]
    text = (
        f"Each training row has a score: its influence on the gap. {positive:,} of {scored:,} "
        "rows have a positive score: to first order, leaving one of them out would lower the "
        "smooth gap. "
    )
    if fitted.joint_influence_ is not None:
        text += (
            "An edit closes several gaps together. So it drops rows by another score, their joint "
            "influence on all of these gaps, and not in this order. "
        )
    if not positive:
        return {"text": text, "spec": None}
    text += (
        f"The worst {len(worst):,} of them ({len(worst) / scored:.1%} of all rows) account for "
        f"{worst.sum() / total:.0%} of the sum of positive scores."
    )
    marked = fitted._dropped_in_order
    caption = "Positive scores, most harmful row first."
    if marked:
        caption += f" Shaded: the {marked:,} rows that the edit leaves out in effect."
    return {
        "text": text,
        "spec": spec(influence_curve(scores, marked=marked)),
        "label": "Sorted influence of the training rows on the gap. " + text,
        "caption": caption,
    }


def concentration_section(
    fitted: FairIJ, table: TrainingTable, scored: NDArray[np.int64]
) -> dict[str, Any]:
    dropped = fitted.dropped_.astype(np.int64)
    what = "the rows that the edit leaves out in effect"
    if not len(dropped):
        dropped, what = harmful_rows(fitted, max(1, len(scored) // 20)), "the most harmful rows"
    found = concentration(table, dropped, scored)
    if not found.tested:
        text = "The training rows have no columns to compare, or too few rows are harmful."
    elif not found.slices:
        text = (
            f"No value stands out. {found.tested:,} values and pairs of values were compared. None "
            f"is clearly more frequent among {what} ({found.harmful:,}) than among all "
            f"{found.rows:,} rows."
        )
    else:
        top = found.slices[0]
        text = (
            f"“{top.text}” makes up {top.share_harmful:.0%} of {what} ({found.harmful:,} of "
            f"{found.rows:,}), but {top.share_all:.0%} of all rows. The lift is the first share "
            f"divided by the second. {found.tested:,} values and pairs of values were compared. "
            "The table lists those that are very unlikely to be chance (hypergeometric test, "
            "p < 0.01 after Bonferroni's correction). A value that is frequent here need not be "
            "the cause."
        )
    return {"text": text, "slices": found.slices}


def prediction_section(fitted: FairIJ) -> dict[str, Any]:
    found = fitted.diagnostics_
    before, predicted, actual = (
        float(found[f"surrogate_{when}"]) for when in ("before", "predicted", "after")
    )
    gap, edited = (float(fitted.candidates_["gap"].iloc[at]) for at in (0, fitted.chosen_))
    rows = {"smooth gap": (before, predicted, actual), "gap": (gap, math.nan, edited)}
    for one in fitted.predicted_refits_:
        name = f"trained again without {one.k:,} rows"
        rows[f"smooth gap, {name}"] = (before, one.surrogate, math.nan)
        rows[f"gap, {name}"] = (gap, one.gap, math.nan)
    foreseen, moved = predicted - before, actual - before
    share = f", {moved / foreseen:.0%} of that" if foreseen else ""
    text = (
        f"{SMOOTH if fitted.loss_.is_classification else ''}A straight-line estimate predicted "
        f"that the edit changes the smooth gap by {measured(foreseen)}. It changed by "
        f"{measured(moved)}{share}. For large edits the estimate can be too high or too low. The "
        "gap itself is not estimated in advance. It is measured."
    )
    if fitted.search_.recomputes_gradient:
        text += (
            " This edit was made in steps, with a new estimate for each, so it does not depend on "
            "this one."
        )
    text += _about_refits(fitted)
    return {
        "text": text,
        "rows": [
            (name, *map(_foreseen, (first, middle, last, middle - first, last - first)))
            for name, (first, middle, last) in rows.items()
        ],
    }


def _foreseen(value: float) -> str:
    return UNKNOWN if math.isnan(value) else measured(value)


def _about_refits(fitted: FairIJ) -> str:
    """What is said of predicted refits: their accuracy, and what the prediction rests on."""
    found = fitted.predicted_refits_
    if not found:
        return ""
    level = "accuracy" if fitted.loss_.is_classification else "R²"
    start = float(fitted.candidates_["accuracy" if level == "accuracy" else "r2"].iloc[0])
    levels = ", ".join(f"{measured(one.performance)} without {one.k:,} rows" for one in found)
    text = (
        " The table also predicts what training again without the most harmful rows would do. No "
        f"model was trained for this. The {level} would go from {measured(start)} to {levels}."
    )
    short = [f"{one.k:,}" for one in found if not one.further_step]
    if short:
        text += (
            f" For {' and '.join(short)} rows a second step of the prediction would have raised "
            "the training loss, so it was not taken. That prediction is rougher."
        )
    return text


def settings_section(fitted: FairIJ) -> dict[str, list[tuple[str, str]]]:
    """Settings, data and versions: all that is needed to repeat the result."""
    edit, found, label = fitted.edit_, fitted.diagnostics_, fitted.before_.positive_label
    data = {
        "model": type(fitted.estimator).__name__,
        "why this search": found.get("search_reason"),
        "training rows": f"{found['n_train']:,}",
        "rows to judge edits on": f"{int(fitted.before_.by_group['count'].sum()):,}",
        "positive label": None if label is None else shortened(label),
        "edited parameters": f"{found['n_parameters']:,}",
        "fingerprint of the training rows (SHA-256)": edit.data,
        "fingerprint of the unedited part of the model": edit.frame,
    }
    seconds = found.get("seconds", {})
    if seconds:
        parts = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())
        data["seconds"] = f"{sum(seconds.values()):.2f} ({parts})"
    versions = {"Python": platform.python_version()} | {name: _version(name) for name in PACKAGES}
    return {
        "settings": [(plain(name), _setting(value)) for name, value in edit.settings.items()],
        "data": [(name, text) for name, text in data.items() if text is not None],
        "versions": [(name, text) for name, text in versions.items() if text is not None],
    }


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else shortened(value, 400)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
