"""Plots of a result, as Altair charts for notebooks, pages and files.

Values from data are put only into fields with fixed names, so that none is read as code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.report.wording import LABELS, PERFORMANCE, SCORES, plain

# Okabe and Ito's colours, which colour-blind readers can tell apart
BLUE, ORANGE, GREEN, GREY, BLACK = "#0072B2", "#D55E00", "#009E73", "#767676", "#000000"
MOST_POINTS = 600
WIDTH, HEIGHT = 460, 280
# formats with digits of their own: the library's choice can be one too few for the last label
PLAIN, POWER = ".6~g", ".3~e"
NOT_DRAWN = {"accuracy", "precision", "negative_predictive_value", *SCORES}
FRONT, OTHERS = "none is better in both", "other candidates"
# one above its point and one below, so that they stay apart if the points are close
LABELLED: tuple[dict[str, Any], ...] = (
    {"text": "before", "dx": -10, "dy": -14, "align": "right"},
    {"text": "chosen", "dx": 10, "dy": 14, "align": "left"},
)


def influence_curve(scores: NDArray[Any], *, marked: int = 500, title: str = "") -> alt.LayerChart:
    """The positive influence scores, largest first; the first ``marked`` are shaded.

    Examples
    --------
    >>> from fairij.report import influence_curve
    >>> type(influence_curve(fair.influence_, marked=50)).__name__
    'LayerChart'
    """
    positive = -np.sort(-scores[scores > 0])  # NaN is not positive
    place = _thinned(len(positive), marked)
    frame = pd.DataFrame({"rank": place + 1, "influence": positive[place]})
    scale, axis = alt.Scale(nice=False, domainMin=0), alt.Axis(tickCount=6)
    x = alt.X("rank:Q", title="training rows, most harmful first", scale=scale, axis=axis)
    power = alt.Axis(format=POWER, labelExpr="datum.value === 0 ? '0' : datum.label", tickCount=5)
    y = alt.Y("influence:Q", title="influence on the gap", axis=power)
    base = alt.Chart(frame).encode(x=x, y=y, tooltip=tooltips(rank=",", influence=".3e"))
    layers = [base.mark_area(line={"color": BLUE}, color=BLUE, opacity=0.2)]
    if marked:
        worst = base.transform_filter(alt.datum.rank <= marked)
        layers.append(worst.mark_area(line={"color": ORANGE}, color=ORANGE, opacity=0.5))
    shaded = f"Shaded: the {marked:,} most harmful rows" if marked else "Influence of the rows"
    return layered(*layers, title=title or shaded)


def tooltips(**formats: str) -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{name}:Q", format=form) for name, form in formats.items()]


def layered(*charts: Any, **properties: Any) -> alt.LayerChart:
    chart: Any = alt.layer(*charts, **({"width": WIDTH, "height": HEIGHT} | properties))
    return cast(alt.LayerChart, chart)


def _thinned(length: int, marked: int) -> NDArray[np.int64]:
    """Points of a curve to draw: more at its steep start, and the end of the shaded part."""
    if length == 0:
        return np.empty(0, np.int64)
    even = np.linspace(0, length - 1, MOST_POINTS // 2)
    steep = np.geomspace(1, length, MOST_POINTS // 2) - 1
    ends = [place for place in (marked - 1, marked) if 0 <= place < length]
    return np.unique(np.concatenate([even, steep, ends]).round().astype(np.int64))


def frontier(
    candidates: pd.DataFrame,
    chosen: int,
    *,
    performance: str | None = None,
    title: str = "",
    floor: tuple[float, str] | None = None,
) -> alt.LayerChart:
    """The gap and the performance of every edit that was tried, on validation rows.

    ``candidates`` is ``candidates_`` or rows of it; ``chosen`` and 0 are labels of its index.
    ``floor`` is what a useless model reaches, and its name: the axis then begins there, so that
    a collapse looks like one.

    Examples
    --------
    >>> from fairij.report import frontier
    >>> type(frontier(fair.candidates_, fair.chosen_)).__name__
    'LayerChart'
    """
    level = performance or next(name for name in PERFORMANCE if name in candidates.columns)
    frame = candidates[["k", "scale", "damping", "gap"]].assign(
        candidate=np.arange(len(candidates)),
        performance=candidates[level],
        kind=np.where(candidates["pareto"], FRONT, OTHERS),
    )
    drawn = frame[np.isfinite(frame["gap"]) & np.isfinite(frame["performance"])]
    x = alt.X("gap:Q", title="gap on validation rows", axis=alt.Axis(format=PLAIN, tickCount=6))
    scale, line = alt.Scale(zero=False), []
    if floor is not None and np.isfinite(floor[0]) and len(drawn):
        scale = alt.Scale(zero=False, domainMin=float(min(floor[0], drawn["performance"].min())))
        line = _floor_line(*floor)
    y = alt.Y("performance:Q", title=LABELS[level], scale=scale)
    points = _candidate_points(drawn, LABELS[level]).encode(x=x, y=y)
    named = [
        alt.Chart(drawn.loc[drawn.index == place]).encode(x=x, y=y)
        for place in dict.fromkeys((0, chosen))
    ]
    rings = [one.mark_point(size=190, strokeWidth=2.5, color=ORANGE) for one in named]
    text = [
        one.mark_text(fontWeight="bold", **label, **halo)
        for one, label in zip(named, LABELLED, strict=False)
        for halo in ({"stroke": "white", "strokeWidth": 4}, {"color": BLACK})
    ]
    return layered(points, *line, *rings, *text, title=title or "All candidate edits")


def _floor_line(height: float, name: str) -> list[alt.Chart]:
    """A dashed line with a name at its right end."""
    base = alt.Chart(pd.DataFrame({"floor": [height], "name": [name]}))
    y = alt.Y("floor:Q")
    text = base.mark_text(align="right", dy=-7, color=BLACK, fontSize=11).encode(
        x=alt.value("width"), y=y, text="name:N"
    )
    return [base.mark_rule(strokeDash=[5, 4], color=GREY, strokeWidth=1.5).encode(y=y), text]


def _candidate_points(frame: pd.DataFrame, level: str) -> alt.Chart:
    kinds = [FRONT, OTHERS]
    color = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=kinds, range=[GREEN, GREY]),
        legend=alt.Legend(title=None, orient="bottom", direction="vertical"),
    )
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=["diamond", "circle"]))
    tooltip = tooltips(k=",", scale=PLAIN, damping=".2~g", gap=".4f")
    tooltip.append(alt.Tooltip("performance:Q", title=level, format=".4f"))
    points = alt.Chart(frame).mark_point(filled=True, size=46, opacity=0.8)
    return points.encode(color=color, shape=shape, tooltip=tooltip)


def picked_mark(chart: alt.LayerChart, first: int, height: int = 300) -> alt.LayerChart:
    """The frontier, with a mark on the candidate that the parameter ``picked`` names."""
    points = chart.layer[0]
    picked = alt.param(name="picked", value=first)
    mark = (
        alt.Chart(points.data)
        .mark_point(shape="cross", size=150, color=BLACK, filled=True, opacity=1, angle=45)
        .encode(x=points.encoding.x, y=points.encoding.y)
        .transform_filter("datum.candidate == picked")
    )
    return layered(*chart.layer, mark, height=height).add_params(picked)


def rate_chart(before: pd.DataFrame, after: pd.DataFrame, rate: str) -> alt.LayerChart:
    """One rate of every group in ``group_intervals`` of two audits, with its interval."""
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
    axis = alt.Axis(labelLimit=120, labelPadding=8, ticks=False, domain=False)
    y = alt.Y("group:N", title=None, axis=axis, sort=list(frame["group"].unique()))
    scale = alt.Scale(zero=not rate.startswith("mean"))  # a share of rows starts at 0
    axis = alt.Axis(format=PLAIN, tickCount=5, labelFlush=True)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title=plain(rate), scale=scale, axis=axis)

    offset = alt.YOffset("when:N", sort=order)
    names = [alt.Tooltip("group:N"), alt.Tooltip("when:N")]
    tooltip = names + tooltips(value=".4f", low=".4f", high=".4f")
    base = alt.Chart(frame).encode(y=y, yOffset=offset, color=color, tooltip=tooltip)
    lines = base.mark_rule(strokeWidth=2.5).encode(x=x("low"), x2="high:Q")
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=x("value"),
        shape=alt.Shape("when:N", scale=alt.Scale(domain=order, range=["circle", "square"])),
    )
    return layered(lines, points, width=220, height=44 * frame["group"].nunique())


def group_rates(before: pd.DataFrame, after: pd.DataFrame, *, title: str = "") -> alt.HConcatChart:
    """The rates of each group in ``group_intervals`` of two audits, side by side.

    Examples
    --------
    >>> from fairij.report import group_rates
    >>> rates = [audit.group_intervals for audit in (fair.before_, fair.after_)]
    >>> type(group_rates(*rates)).__name__
    'HConcatChart'
    """
    charts = [rate_chart(before, after, rate) for rate in chart_rates(before)]
    return alt.hconcat(*charts, title=title or "Rates by group").configure_view(stroke=None)


def chart_rates(intervals: pd.DataFrame, most: int = 6) -> list[str]:
    """The rates to draw; of many classes only the first few."""
    names = list(dict.fromkeys(intervals.index.get_level_values("rate")))
    drawn = [str(name) for name in names if str(name).partition("[")[0] not in NOT_DRAWN]
    return drawn[:most]


def save_chart(chart: Any, stem: Path) -> None:
    """Write a chart as SVG and PNG, without a browser."""
    chart.save(f"{stem}.svg")
    chart.save(f"{stem}.png", scale_factor=2)
