"""Plots of a result, as Altair charts: they draw in notebooks, on pages and to files.

Data values only ever stand in fields of fixed names, so that no name from data is read as code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.report.wording import LABELS, plain

# Okabe and Ito's colours, distinct to colour-blind readers
BLUE, ORANGE, GREEN, GREY, BLACK = "#0072B2", "#D55E00", "#009E73", "#767676", "#000000"
MOST_POINTS = 600
WIDTH, HEIGHT = 460, 280
# with digits of their own: those that the library counts out can be one too few for the last label
PLAIN, POWER = ".6~g", ".3~e"
FRONT, OTHERS = "none is better in both", "other candidates"
LABELLED: tuple[tuple[int, Literal["left", "right"], str], ...] = (
    (-10, "right", "before"),
    (10, "left", "chosen"),
)
PERFORMANCE = ("accuracy", "balanced_accuracy", "r2")


def influence_curve(scores: NDArray[Any], *, marked: int = 500, title: str = "") -> alt.LayerChart:
    """The positive influence scores from the most harmful row on; shaded: the first ``marked``."""
    positive = -np.sort(-scores[scores > 0])  # NaN is not positive
    place = _thinned(len(positive), marked)
    frame = pd.DataFrame({"rank": place + 1, "influence": positive[place]})
    x = alt.X(
        "rank:Q",
        title="training rows, most harmful first",
        scale=alt.Scale(nice=False, domainMin=0),
        axis=alt.Axis(tickCount=6),
    )
    power = alt.Axis(format=POWER, labelExpr="datum.value === 0 ? '0' : datum.label", tickCount=5)
    y = alt.Y("influence:Q", title="influence on the gap", axis=power)
    tooltip = [
        alt.Tooltip("rank:Q", title="rank", format=","),
        alt.Tooltip("influence:Q", format=".3e"),
    ]
    base = alt.Chart(frame).encode(x=x, y=y, tooltip=tooltip)
    curve = base.mark_area(line={"color": BLUE}, color=BLUE, opacity=0.2)
    layers = [curve]
    if marked:
        worst = base.transform_filter(alt.datum.rank <= marked)
        layers.append(worst.mark_area(line={"color": ORANGE}, color=ORANGE, opacity=0.5))
    shaded = f"Shaded: the {marked:,} most harmful rows" if marked else "Influence of the rows"
    name = title or shaded
    return _layered(*layers, title=name)


def _layered(*charts: Any, **properties: Any) -> alt.LayerChart:
    given = {"width": WIDTH, "height": HEIGHT} | properties
    chart: Any = alt.layer(*charts).properties(**given)
    return chart


def _thinned(length: int, marked: int) -> NDArray[np.int64]:
    """Places along a curve: dense at its steep start, and always where the shade ends."""
    if length == 0:
        return np.empty(0, np.int64)
    even = np.linspace(0, length - 1, MOST_POINTS // 2)
    steep = np.geomspace(1, length, MOST_POINTS // 2) - 1
    ends = [place for place in (marked - 1, marked) if 0 <= place < length]
    return np.unique(np.concatenate([even, steep, ends]).round().astype(np.int64))


def frontier(
    candidates: pd.DataFrame, chosen: int, *, performance: str | None = None, title: str = ""
) -> alt.LayerChart:
    """Every edit that was tried: its gap against its performance on validation rows.

    ``candidates`` is ``candidates_`` or rows of it; ``chosen`` and 0 are labels of its index.
    """
    level = performance or next(name for name in PERFORMANCE if name in candidates.columns)
    frame = pd.DataFrame(
        {
            "candidate": np.arange(len(candidates)),
            "k": candidates["k"],
            "scale": candidates["scale"],
            "damping": candidates["damping"],
            "gap": candidates["gap"],
            "performance": candidates[level],
            "kind": np.where(candidates["pareto"], FRONT, OTHERS),
        }
    )
    drawn = frame[np.isfinite(frame["gap"]) & np.isfinite(frame["performance"])]
    x = alt.X("gap:Q", title="gap on validation rows")
    y = alt.Y("performance:Q", title=LABELS[level], scale=alt.Scale(zero=False))
    points = (
        alt.Chart(drawn)
        .mark_point(filled=True, size=46, opacity=0.8)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "kind:N",
                scale=alt.Scale(domain=[FRONT, OTHERS], range=[GREEN, GREY]),
                legend=alt.Legend(title=None, orient="bottom", direction="vertical"),
            ),
            shape=alt.Shape(
                "kind:N", scale=alt.Scale(domain=[FRONT, OTHERS], range=["diamond", "circle"])
            ),
            tooltip=[
                alt.Tooltip("k:Q", format=","),
                alt.Tooltip("scale:Q"),
                alt.Tooltip("damping:Q", format=".2~g"),
                alt.Tooltip("gap:Q", format=".4f"),
                alt.Tooltip("performance:Q", title=LABELS[level], format=".4f"),
            ],
        )
    )
    named = [
        alt.Chart(drawn.loc[drawn.index == place]).encode(x=x, y=y)
        for place in dict.fromkeys((0, chosen))
    ]
    rings = [one.mark_point(size=190, strokeWidth=2.5, color=ORANGE) for one in named]
    text = [  # the unedited model mostly stands at the right, the chosen edit at the left
        one.mark_text(dx=dx, dy=14, align=side, fontWeight="bold", text=word, **halo)
        for one, (dx, side, word) in zip(named, LABELLED, strict=False)
        for halo in ({"stroke": "white", "strokeWidth": 4}, {"color": BLACK})
    ]
    return _layered(points, *rings, *text, title=title or "All candidate edits")


def picked_mark(chart: alt.LayerChart, first: int) -> alt.LayerChart:
    """The frontier with a mark on the candidate whose number is in the parameter ``picked``."""
    points = chart.layer[0]
    picked = alt.param(name="picked", value=first)
    mark = (
        alt.Chart(points.data)
        .mark_point(shape="cross", size=150, color=BLACK, filled=True, opacity=1, angle=45)
        .encode(x=points.encoding.x, y=points.encoding.y)
        .transform_filter("datum.candidate == picked")
    )
    return _layered(*chart.layer, mark, height=340).add_params(picked)


def rate_chart(before: pd.DataFrame, after: pd.DataFrame, rate: str) -> alt.LayerChart:
    """One rate of every group before and after, with its interval.

    ``before`` and ``after`` are an audit's ``group_intervals``.
    """
    parts = [
        frame.xs(rate, level="rate").rename_axis("group").reset_index().assign(when=when)
        for when, frame in (("before", before), ("after", after))
        if rate in frame.index.get_level_values("rate")
    ]
    frame = pd.concat(parts, ignore_index=True).assign(group=lambda f: f["group"].astype(str))
    order = ["before", "after"]
    color = alt.Color(
        "when:N",
        sort=order,
        scale=alt.Scale(domain=order, range=[ORANGE, BLUE]),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    y = alt.Y(
        "group:N",
        title=None,
        axis=alt.Axis(labelLimit=120, labelPadding=8, ticks=False, domain=False),
        sort=list(dict.fromkeys(frame["group"])),
    )
    bounded = rate.startswith(("accuracy", "selection", "true", "false"))
    scale = alt.Scale(zero=bounded)
    axis = alt.Axis(format=PLAIN, tickCount=5, labelFlush=True)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title=plain(rate), scale=scale, axis=axis)

    offset = alt.YOffset("when:N", sort=order)
    tooltip = [
        alt.Tooltip("group:N"),
        alt.Tooltip("when:N"),
        *(alt.Tooltip(f"{name}:Q", format=".4f") for name in ("value", "low", "high")),
    ]
    base = alt.Chart(frame).encode(y=y, yOffset=offset, color=color, tooltip=tooltip)
    lines = base.mark_rule(strokeWidth=2.5).encode(x=x("low"), x2="high:Q")
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=x("value"),
        shape=alt.Shape("when:N", scale=alt.Scale(domain=order, range=["circle", "square"])),
    )
    return _layered(lines, points, width=220, height=44 * frame["group"].nunique())


def group_rates(before: pd.DataFrame, after: pd.DataFrame, *, title: str = "") -> alt.HConcatChart:
    """Each group's rates before and after the edit, with intervals, beside each other.

    ``before`` and ``after`` are an audit's ``group_intervals``.
    """
    charts = [rate_chart(before, after, rate) for rate in chart_rates(before)]
    return alt.hconcat(*charts, title=title or "Rates by group").configure_view(stroke=None)


def chart_rates(intervals: pd.DataFrame, most: int = 6) -> list[str]:
    """The rates worth a chart; with many classes only the first few."""
    names = list(dict.fromkeys(intervals.index.get_level_values("rate")))
    return [str(name) for name in names if name not in ("accuracy", "mean_squared_error")][:most]


def save_chart(chart: Any, stem: Path) -> None:
    """Write a chart as SVG and PNG, without a browser."""
    chart.save(f"{stem}.svg")
    chart.save(f"{stem}.png", scale_factor=2)
