"""What each section of the page shows: numbers, sentences and charts, ready for its template."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.mitigator import FairIJ
from fairij.report.candidates import shown_candidates
from fairij.report.comparisons import Comparison, gap_metric
from fairij.report.edit_wording import how_much, search_name
from fairij.report.plots import chart_rates, frontier, influence_curve, picked_mark, rate_chart
from fairij.report.slices import concentration
from fairij.report.tables import metric_rows, rate_rows
from fairij.report.training_table import TrainingTable, harmful_rows
from fairij.report.wording import LABELS, UNKNOWN, interval, measured, plain

INK, LINE = "#3b4249", "#e3e7eb"
CONFIG = {
    "font": 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "gridColor": LINE,
        "domainColor": LINE,
        "tickColor": LINE,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
    "legend": {"labelFontSize": 12, "labelColor": INK},
}
MOST_GROUPS = 30  # in a chart; the table has them all
FRONT_ROWS = 60


def spec(chart: Any) -> dict[str, Any]:
    """A chart for the page: as wide as its place there, in the page's letters."""
    found = chart.properties(width="container").to_dict()
    found.pop("title", None)  # the page has a caption
    return {**found, "config": CONFIG}


def tiles(fitted: FairIJ, shown: Comparison) -> list[tuple[str, str, str, str]]:
    """The figures at the top: name, before, after, a note."""
    metric = gap_metric(fitted)
    level = "accuracy" if fitted.loss_.is_classification else "mean_squared_error"
    rows = [name for name in (metric, level) if name is not None]
    found = [
        (
            LABELS[name],
            measured(shown.before[name]),
            measured(shown.after[name]),
            f"{shown.rows}, {100 * shown.confidence:g} %: {_interval(shown, name)}",
        )
        for name in rows
    ]
    if metric is None:
        first, last = (float(fitted.candidates_["gap"].iloc[at]) for at in (0, fitted.chosen_))
        name = f"{plain(fitted.edit_.settings['constraint'])} gap"
        found.insert(0, (name, measured(first), measured(last), "validation rows"))
    name, figure, note = how_much(fitted)
    return [*found, (name, "", figure, note)]


def _interval(shown: Comparison, metric: str) -> str:
    found = shown.after.metrics
    return interval(float(found["low"][metric]), float(found["high"][metric]))


def rates_section(
    fitted: FairIJ, validation: Comparison, unseen: Comparison | None
) -> list[dict[str, Any]]:
    notes = {
        "test rows": "played no part in the edit",
        "held-out rows": "validation rows kept away from the gradient and the choice",
        "validation rows": "the edit was chosen on them, so they flatter",
    }
    return [
        {
            "name": part.rows,
            "note": notes[part.rows],
            "charts": _rate_charts(part),
            "metrics": metric_rows(fitted, part),
            "rates": rate_rows(part),
        }
        for part in (unseen, validation)
        if part is not None
    ]


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
    return {
        "candidates": values,
        "frontier_spec": spec(picked_mark(frontier(shown.table, fitted.chosen_), values["chosen"])),
        "performance": LABELS[shown.performance],
        "front": [_figures(row, values["gap"]) for row in _evenly(front, FRONT_ROWS)],
        "left_out": shown.left_out,
    }


def _figures(row: list[float | None], first: int) -> list[str]:
    """Settings as short as they are, measures (from place ``first`` on) with all their digits."""
    known = [float("nan") if value is None else value for value in row]
    return [f"{v:,g}" for v in known[:first]] + [measured(v) for v in known[first:]]


def _evenly(rows: list[Any], most: int) -> list[Any]:
    places = np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int)
    return [rows[place] for place in places]


def influence_section(fitted: FairIJ) -> dict[str, Any]:
    scores = fitted.influence_
    scored, positive = int((~np.isnan(scores)).sum()), int((scores > 0).sum())
    total = float(scores[scores > 0].sum())
    worst = np.sort(scores[scores > 0])[::-1][: max(1, scored // 100)]
    text = (
        f"Of {scored:,} scored training rows {positive:,} push the gap up: leaving one out would "
        "lower it. "
    )
    if not positive:
        return {"text": text, "spec": None}
    text += (
        f"The worst {len(worst):,} of them, {len(worst) / scored:.1%} of all rows, carry "
        f"{worst.sum() / total:.0%} of that push."
    )
    in_order = fitted.edit_.settings["drop"] == "fairness"
    marked = len(fitted.dropped_) if in_order else 0
    caption = "Positive influence scores, the most harmful row first."
    if marked:
        caption += f" Shaded: the {marked:,} rows left out in effect."
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
    what = "the rows left out in effect"
    if not len(dropped):
        dropped, what = harmful_rows(fitted, max(1, len(scored) // 20)), "the most harmful rows"
    found = concentration(table, dropped, scored)
    if not found.tested:
        text = "The training rows have no columns to compare, or too few of them are harmful."
    elif not found.slices:
        text = (
            f"No value stands out: of {found.tested:,} slices looked at, none is clearly more "
            f"frequent among {what} ({found.harmful:,}) than among all {found.rows:,} rows."
        )
    else:
        top = found.slices[0]
        text = (
            f"Among {what} ({found.harmful:,} of {found.rows:,}) {top.text} makes up "
            f"{top.share_harmful:.0%}, against {top.share_all:.0%} of all rows. Lift is the first "
            f"share over the second; {found.tested:,} slices were looked at, and only those are "
            "listed that chance would hardly give (hypergeometric test, Bonferroni-corrected "
            "p < 0.01). What is frequent among them need not be the cause."
        )
    return {"text": text, "slices": found.slices}


def prediction_section(fitted: FairIJ) -> dict[str, Any]:
    found = fitted.diagnostics_
    before, predicted, actual = (
        float(found[f"surrogate_{when}"]) for when in ("before", "predicted", "after")
    )
    gap, edited = (float(fitted.candidates_["gap"].iloc[at]) for at in (0, fitted.chosen_))
    rows = [
        ("smooth gap (what the gradient sees)", before, predicted, actual),
        ("gap of hard predictions (what counts)", gap, None, edited),
    ]
    foreseen, moved = predicted - before, actual - before
    share = f", {moved / foreseen:.0%} of it" if foreseen else ""
    return {
        "text": f"To first order the edit should change the smooth gap by {measured(foreseen)}; it "
        f"did change it by {measured(moved)}{share}. The estimate is a straight line, so large "
        "edits may fall short of it or overshoot. No estimate is made of the gap of hard "
        "predictions: it is measured."
        + (
            " A path makes its gradient anew at each step, so it does not rest on this estimate."
            if search_name(fitted) == "path"
            else ""
        ),
        "rows": [
            (
                name,
                measured(first),
                UNKNOWN if middle is None else measured(middle),
                measured(last),
                UNKNOWN if middle is None else measured(middle - first),
                measured(last - first),
            )
            for name, first, middle, last in rows
        ],
    }
