"""The figures of the study of trees."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from fairij_studies.palette import BLACK, BLUE, GREEN, ORANGE, RED, look_of
from fairij_studies.tabular.trial import CONSTRAINTS
from fairij_studies.trees.refit_comparison import EDIT, LEAVES, PROXIMAL, REFIT, TRAINED_ON
from fairij_studies.trees.summary import METHODS, curves, models_in, ordered, refit_means

WIDTH, HEIGHT = 230, 190
GAPS = {
    "demographic_parity": "demographic parity gap",
    "equalized_odds": "equalized odds gap (sum)",
    "equal_opportunity": "equal opportunity gap",
}
GROUP_AWARE = "RelaxedThresholds"
ANSWERS = {EDIT: BLUE, PROXIMAL: ORANGE, TRAINED_ON: RED, LEAVES: GREEN, REFIT: BLACK}


def trade_off_figure(records: pd.DataFrame, title: str) -> Any:
    """Draw accuracy against each gap on test rows: a row per constraint, a column per model."""
    records = records[records["data"] == title]
    rows = []
    for constraint in CONSTRAINTS:
        frame = curves(records, constraint)
        rows.append(alt.hconcat(*(_panel(frame, constraint, model) for model in models_in(frame))))
    return (
        alt.vconcat(*rows)
        .properties(
            title=alt.Title(
                f"{title}: mean over seeds, bars: one deviation; dashed: needs the group",
                fontSize=15,
            )
        )
        .configure_view(stroke="#cccccc")
        .configure_axis(gridColor="#eeeeee", labelFontSize=11, titleFontSize=12)
        .configure_legend(
            orient="top", labelFontSize=12, symbolSize=90, symbolOpacity=1, title=None
        )
    )


def _panel(frame: pd.DataFrame, constraint: str, model: str) -> Any:
    own = frame[frame["model"] == model].fillna(0.0)
    methods = list(METHODS)  # the same in all panels: they share one legend
    looks = [look_of(method) for method in methods]
    own = own.assign(
        left=(own["gap"] - own["gap_deviation"]).clip(lower=0),
        right=own["gap"] + own["gap_deviation"],
        below=own["accuracy"] - own["accuracy_deviation"],
        above=own["accuracy"] + own["accuracy_deviation"],
    )
    colour = alt.Color(
        "method:N", scale=alt.Scale(domain=methods, range=[look.colour for look in looks])
    )
    shape = alt.Shape(
        "method:N", scale=alt.Scale(domain=methods, range=[look.shape for look in looks])
    )
    x = alt.X(
        "gap:Q",
        title=GAPS[constraint],
        scale=alt.Scale(zero=True),
        axis=alt.Axis(tickCount=4, labelOverlap=True),
    )
    y = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(zero=False))
    aware = alt.condition(alt.datum.method == GROUP_AWARE, alt.value([4, 3]), alt.value([1, 0]))
    base = alt.Chart(own)
    return alt.layer(
        base.mark_line(strokeWidth=1.5).encode(
            x=x, y=y, color=colour, order="gap:Q", strokeDash=aware
        ),
        base.mark_rule(opacity=0.35).encode(x="left:Q", x2="right:Q", y=y, color=colour),
        base.mark_rule(opacity=0.35).encode(x=x, y="below:Q", y2="above:Q", color=colour),
        base.mark_point(filled=True, size=55, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape
        ),
    ).properties(width=WIDTH, height=HEIGHT, title=model)


def refit_figure(records: pd.DataFrame) -> Any:
    """Draw the gap over k: as the edit predicts it, and of models that are trained again."""
    panels = []
    for column, words in (
        ("validation_surrogate", "gap of mean scores, validation rows"),
        ("test_demographic_parity", "demographic parity gap, test rows"),
    ):
        frame = refit_means(records, column).fillna(0.0)
        frame = frame.assign(low=frame["mean"] - frame["std"], high=frame["mean"] + frame["std"])
        forms = ordered(frame["method"], tuple(ANSWERS))
        colours = alt.Scale(domain=forms, range=[ANSWERS[form] for form in forms])
        colour = alt.Color("method:N", scale=colours, legend=None)
        x = alt.X("k:Q", title="rows left out, most harmful first", scale=alt.Scale(domainMin=0))
        y = alt.Y("mean:Q", title=words, scale=alt.Scale(domainMin=0))
        base = alt.Chart(frame)
        ends = frame[frame["k"] == frame["k"].max()].sort_values("mean").reset_index(drop=True)
        apart = 0.055 * float(frame["high"].max())
        place = -apart
        places = []
        for value in ends["mean"]:
            place = max(float(value), place + apart)
            places.append(place)
        labels = alt.Chart(ends.assign(place=places))
        panels.append(
            alt.layer(
                base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour),
                base.mark_rule(opacity=0.5).encode(x=x, y="low:Q", y2="high:Q", color=colour),
                base.mark_point(filled=True, size=40, opacity=1).encode(x=x, y=y, color=colour),
                labels.mark_text(align="left", dx=8, fontSize=12).encode(
                    x=x, y=alt.Y("place:Q"), text="method:N", color=colour
                ),
            ).properties(width=360, height=280)
        )
    return (
        alt.hconcat(*panels, spacing=150)
        .properties(padding={"left": 5, "top": 5, "bottom": 5, "right": 190})
        .configure_view(stroke="#cccccc")
        .configure_axis(gridColor="#eeeeee", labelFontSize=11, titleFontSize=12)
    )
