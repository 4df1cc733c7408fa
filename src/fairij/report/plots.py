"""Plots of a result, as Altair charts: they draw in notebooks, on pages and to files."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

# Okabe and Ito's colours, distinct to colour-blind readers
BLUE, ORANGE, GREEN, GREY, BLACK = "#0072B2", "#D55E00", "#009E73", "#999999", "#000000"
MOST_POINTS = 1000


def influence_curve(scores: NDArray[Any], *, marked: int = 500, title: str = "") -> alt.LayerChart:
    """The positive influence scores in ascending order; right of the line are the worst ones."""
    positive = np.sort(scores[scores > 0])
    place = np.unique(np.linspace(0, max(len(positive) - 1, 0), MOST_POINTS).round().astype(int))
    place = place[place < len(positive)]
    frame = pd.DataFrame({"rank": place + 1, "influence": positive[place]})
    curve = (
        alt.Chart(frame)
        .mark_area(line={"color": BLUE}, color=BLUE, opacity=0.25)
        .encode(
            x=alt.X("rank:Q", title="training rows of positive influence, sorted"),
            y=alt.Y("influence:Q", title="influence on the gap", axis=alt.Axis(format=".1e")),
            tooltip=["rank:Q", alt.Tooltip("influence:Q", format=".3e")],
        )
    )
    line_at = pd.DataFrame({"rank": [max(len(positive) - marked, 0)]})
    line = alt.Chart(line_at).mark_rule(color=BLACK, strokeWidth=2).encode(x="rank:Q")
    return (curve + line).properties(
        title=title or f"Right of the line: the {marked} most harmful rows", width=420, height=260
    )


def frontier(
    candidates: pd.DataFrame, chosen: int, *, performance: str = "accuracy", title: str = ""
) -> alt.LayerChart:
    """Every edit that was tried: its gap against its performance on validation rows."""
    kind = np.where(candidates["pareto"], "no candidate is better in both", "other candidates")
    frame = candidates.assign(kind=kind)
    frame = frame[np.isfinite(frame["gap"]) & np.isfinite(frame[performance])]
    x = alt.X("gap:Q", title="gap on validation rows")
    y = alt.Y(f"{performance}:Q", title=performance, scale=alt.Scale(zero=False))
    points = (
        alt.Chart(frame)
        .mark_circle(size=36, opacity=0.7)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "kind:N",
                scale=alt.Scale(
                    domain=["no candidate is better in both", "other candidates"],
                    range=[GREEN, GREY],
                ),
                legend=alt.Legend(title=None, orient="bottom"),
            ),
            tooltip=[
                alt.Tooltip("k:Q"),
                alt.Tooltip("scale:Q"),
                alt.Tooltip("damping:Q"),
                alt.Tooltip("gap:Q", format=".4f"),
                alt.Tooltip(f"{performance}:Q", format=".4f"),
            ],
        )
    )
    marks = candidates.iloc[[0, chosen]].assign(label=["before", "chosen"])
    named = alt.Chart(marks).encode(x=x, y=y)
    rings = named.mark_point(size=160, strokeWidth=2.5, color=ORANGE)
    text = named.mark_text(dx=8, dy=18, align="left", fontWeight="bold").encode(text="label:N")
    return (points + rings + text).properties(
        title=title or "All candidate edits", width=420, height=260
    )


def group_rates(before: pd.DataFrame, after: pd.DataFrame, *, title: str = "") -> alt.Chart:
    """Each group's rates before and after the edit."""
    names = [c for c in before.columns if c.endswith("rate")]
    parts = [
        frame[names].reset_index().melt("group", var_name="rate").assign(when=when)
        for when, frame in (("before", before), ("after", after))
    ]
    data = pd.concat(parts).assign(rate=lambda f: f["rate"].str.replace("_", " "))
    return (
        alt.Chart(data)
        .mark_bar()
        .encode(
            x=alt.X("group:N", title=None, axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("when:N", sort=["before", "after"]),
            y=alt.Y("value:Q", title="rate", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color(
                "when:N",
                sort=["before", "after"],
                scale=alt.Scale(domain=["before", "after"], range=[ORANGE, BLUE]),
                legend=alt.Legend(title=None, orient="bottom"),
            ),
            column=alt.Column("rate:N", title=None),
            tooltip=["group:N", "when:N", "rate:N", alt.Tooltip("value:Q", format=".3f")],
        )
        .properties(width=140, height=220, title=title or "Rates by group")
    )
