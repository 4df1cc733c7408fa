"""Charts of an audit: rates of groups with their intervals, and calibration curves."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from fairij.report.audit_words import of_measure
from fairij.report.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PLAIN, layered, tooltips
from fairij.report.wording import plain

PURPLE, SKY = "#AA4499", "#56B4E9"
COLOURS = [BLUE, ORANGE, GREEN, BLACK, PURPLE, SKY]
SHAPES = ["circle", "square", "diamond", "triangle-up", "cross", "triangle-down"]
MOST_CURVES = len(COLOURS)
MOST_ROWS = 16  # of a chart: the lowest and the highest groups
ROW_HEIGHT = 24


def rate_of_groups(intervals: pd.DataFrame, rate: str) -> alt.LayerChart:
    """One rate of every group in ``group_intervals``, lowest first, with its interval."""
    of_rate = of_measure(intervals, rate).dropna(subset=["value"]).sort_values("value")
    frame = ends_of(of_rate).rename_axis("group").reset_index()
    frame["group"] = frame["group"].astype(str)
    axis = alt.Axis(labelLimit=150, labelPadding=8, ticks=False, domain=False)
    y = alt.Y("group:N", title=None, axis=axis, sort=list(frame["group"]))
    scale = alt.Scale(zero=not rate.startswith("mean"))
    ticks = alt.Axis(format=PLAIN, tickCount=5, labelFlush=True)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title=plain(rate), scale=scale, axis=ticks)

    tooltip = [alt.Tooltip("group:N"), *tooltips(value=".4f", low=".4f", high=".4f")]
    base = alt.Chart(frame).encode(y=y, tooltip=tooltip)
    lines = base.mark_rule(strokeWidth=2.5, color=BLUE).encode(x=x("low"), x2="high:Q")
    points = base.mark_point(filled=True, size=70, opacity=1, color=BLUE).encode(x=x("value"))
    return layered(lines, points, width=220, height=ROW_HEIGHT * max(len(frame), 2))


def ends_of(ordered: pd.DataFrame) -> pd.DataFrame:
    """All lines, or the first and the last ones of many."""
    if len(ordered) <= MOST_ROWS:
        return ordered
    half = MOST_ROWS // 2
    return pd.concat([ordered.head(half), ordered.tail(half)])


def calibration_chart(curves: pd.DataFrame, groups: list[str]) -> alt.LayerChart:
    """The share of positive rows at each level of the score, for at most six groups."""
    frame = curves[curves["group"].isin(groups)].assign(group=lambda f: f["group"].astype(str))
    domain = groups
    legend = alt.Legend(title=None, orient="bottom", columns=2, labelLimit=180)
    color = alt.Color(
        "group:N", scale=alt.Scale(domain=domain, range=COLOURS[: len(domain)]), legend=legend
    )
    shape = alt.Shape("group:N", scale=alt.Scale(domain=domain, range=SHAPES[: len(domain)]))
    unit = alt.Scale(domain=[0, 1])
    axis = alt.Axis(format=PLAIN, tickCount=5)
    x = alt.X("score:Q", title="mean score", scale=unit, axis=axis)
    y = alt.Y("share:Q", title="share with the positive label", scale=unit, axis=axis)
    tooltip = [
        alt.Tooltip("group:N"),
        *tooltips(score=".3f", share=".3f", low=".3f", high=".3f", rows=",.0f"),
    ]
    base = alt.Chart(frame).encode(x=x, color=color, tooltip=tooltip)
    ends: Any = alt.Chart(pd.DataFrame({"score": [0, 1], "share": [0, 1]}))
    ideal = ends.mark_line(strokeDash=[5, 4], color=GREY).encode(x=x, y=y)
    lines = base.mark_line(strokeWidth=1.5).encode(y=y)
    bars = base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(
        y=alt.Y("low:Q", title="share with the positive label"), y2="high:Q"
    )
    points = base.mark_point(filled=True, size=60, opacity=1).encode(y=y, shape=shape)
    return layered(ideal, bars, lines, points, height=320)
