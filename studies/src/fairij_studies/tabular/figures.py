"""The paper's figures 1 and 2, error bars, and a figure of real refits."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from fairij_studies.palette import BLACK, BLUE, ORANGE, look_of, spread_out
from fairij_studies.tabular.methods import EDITED
from fairij_studies.tabular.summary import GAP_NAMES, ON_EDIT, curves
from fairij_studies.tabular.trial import CONSTRAINTS

WIDTH, HEIGHT, LINE = 300, 330, 13
MOST_LOST, WIDEST = (
    0.04,
    1.1,
)  # limits of the picture: accuracy lost, and the gap relative to the base model's
PLAIN_PANEL = (
    "ERM", "GapReg", "FairMixup", "HGR", "ExponentiatedGradient", "FST", "LinearPost", "HPS",
    "RelaxedThresholds", "Fair-IJ", "Fair-IJ path", "Fair-IJ cheapest first",
)  # fmt: skip
FORMS_PANEL = ("ERM", "LinearPost", *EDITED)
ON_EDIT_PANEL = ("ERM", "Fair-IJ", *(name for pair in ON_EDIT.items() for name in pair))


def trade_off_figure(records: pd.DataFrame, *, error_bars: bool) -> Any:
    """Draw figure 2: all methods, our forms, and methods on the edited model."""
    rows = [
        alt.hconcat(
            *(_panel(records, constraint, methods, error_bars) for constraint in CONSTRAINTS),
            title=alt.Title(title, anchor="start", fontSize=14, offset=8),
            spacing=4,
        )
        for title, methods in (
            (
                "On the base model (hollow and dashed: needs the group at test)",
                PLAIN_PANEL,
            ),
            ("Forms of Fair-IJ, and one post-processing method", FORMS_PANEL),
            ("On the edited model (strong) and in the plain form (pale)", ON_EDIT_PANEL),
        )
    ]
    return (
        alt.vconcat(*rows, spacing=24)
        .configure_view(stroke="#cccccc")
        .configure_axis(gridColor="#eeeeee", labelFontSize=11, titleFontSize=12)
    )


def _panel(
    records: pd.DataFrame, constraint: str, methods: tuple[str, ...], error_bars: bool
) -> Any:
    frame = curves(records, constraint)
    frame = frame[frame["method"].isin(methods)]
    frame = frame[frame["gap"] <= max(WIDEST * float(_base(frame)["gap"]), 0.05)]
    frame = frame.assign(on_front=_on_front(frame))
    lowest, highest = _accuracy_range(frame[frame["on_front"]])
    frame = frame[frame["accuracy"] >= lowest]
    widest = 1.04 * float(frame["gap"].max())
    frame = _with_looks(frame, {plain for plain in ON_EDIT if ON_EDIT[plain] in methods})
    # fairer to the right, where the curves separate and the labels are
    x = alt.X(
        "gap:Q",
        title=f"gap on test rows, {GAP_NAMES[constraint]} (fairer →)",
        scale=alt.Scale(domain=[widest, 0.0], nice=False),
        axis=alt.Axis(tickCount=6, labelFlush=False),
    )
    y = alt.Y(
        "accuracy:Q",
        title="accuracy on test rows",
        scale=alt.Scale(domain=[lowest, highest], nice=False, zero=False),
    )
    layers = [*(_bars(frame, x, y) if error_bars else []), *_curves(frame, x, y)]
    layers += _labels(frame[~frame["pale"]], x, y, (lowest, highest))
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, title=GAP_NAMES[constraint])


def _with_looks(frame: pd.DataFrame, pale: set[str]) -> pd.DataFrame:
    """Add columns that say how each point is drawn."""
    looks = [look_of(str(name)) for name in frame["method"]]
    heavy = pd.Series([look.heavy for look in looks], index=frame.index)
    colour = pd.Series([look.colour for look in looks], index=frame.index)
    faint = frame["method"].isin(pale)
    aware = frame["needs_group"].astype(bool)
    return frame.assign(
        colour=colour,
        shape=[look.shape for look in looks],
        heavy=heavy,
        aware=aware,
        pale=faint,
        fill=colour.where(~aware, "white"),
        width=heavy.map({True: 3.0, False: 1.5}),
        size=(heavy | (frame["method"] == "ERM")).map({True: 60, False: 34}),
        opacity=(faint | ~frame["on_front"]).map({True: 0.35, False: 1.0}),
    )


def _curves(frame: pd.DataFrame, x: Any, y: Any) -> list[Any]:
    look: dict[str, Any] = {
        "detail": "method:N",
        "opacity": alt.Opacity("opacity:Q", scale=None),
        "x": x,
        "y": y,
    }
    front = frame[frame["on_front"]]
    lines = [
        alt.Chart(part)
        .mark_line(strokeDash=[5, 3] if dashed else [1, 0], clip=True)
        .encode(
            stroke=alt.Stroke("colour:N", scale=None),
            strokeWidth=alt.StrokeWidth("width:Q", scale=None),
            order="gap:Q",
            **look,
        )
        for dashed, part in ((False, front[~front["aware"]]), (True, front[front["aware"]]))
        if len(part)
    ]
    points = (
        alt.Chart(frame)
        .mark_point(clip=True)
        .encode(
            stroke=alt.Stroke("colour:N", scale=None),
            fill=alt.Fill("fill:N", scale=None),
            shape=alt.Shape("shape:N", scale=None),
            size=alt.Size("size:Q", scale=None),
            **look,
        )
    )
    return [*lines, points]


def _bars(frame: pd.DataFrame, x: Any, y: Any) -> list[Any]:
    """Draw one deviation over seeds to either side, in both directions."""
    bars = frame.assign(
        left=frame["gap"] - frame["gap_deviation"],
        right=frame["gap"] + frame["gap_deviation"],
        below=frame["accuracy"] - frame["accuracy_deviation"],
        above=frame["accuracy"] + frame["accuracy_deviation"],
        opacity=frame["opacity"] / 2,
    )
    rules = (
        alt.Chart(bars)
        .mark_rule(clip=True)
        .encode(
            stroke=alt.Stroke("colour:N", scale=None), opacity=alt.Opacity("opacity:Q", scale=None)
        )
    )
    wide = rules.encode(x=alt.X("left:Q", scale=x["scale"]), x2="right:Q", y=y)
    tall = rules.encode(x=x, y=alt.Y("below:Q", scale=y["scale"]), y2="above:Q")
    return [wide, tall]


def _labels(frame: pd.DataFrame, x: Any, y: Any, span: tuple[float, float]) -> list[Any]:
    """Write each curve's name right of the panel, with a thin line to its fairest point."""
    low, high = span
    scale = HEIGHT / (high - low)
    ends = frame.sort_values("gap").groupby("method", as_index=False).first()
    base, ends = ends[ends["method"] == "ERM"], ends[ends["method"] != "ERM"]
    pixels = [(high - value) * scale for value in ends["accuracy"]]
    places = [high - p / scale for p in spread_out(pixels, LINE, 0, HEIGHT)]
    bends = pd.concat([ends, ends.assign(gap=0.0, accuracy=places)])
    layers = [
        alt.Chart(bends)
        .mark_line(strokeWidth=0.6, opacity=0.7)
        .encode(x=x, y=y, detail="method:N", stroke=alt.Stroke("colour:N", scale=None))
    ]
    ends = ends.assign(accuracy=places)
    for heavy, aware in ((True, False), (False, False), (False, True)):
        part = ends[(ends["heavy"] == heavy) & (ends["aware"] == aware)]
        if len(part):
            layers.append(
                alt.Chart(part)
                .mark_text(
                    align="left",
                    dx=5,
                    fontSize=11,
                    fontWeight="bold" if heavy else "normal",
                    fontStyle="italic" if aware else "normal",
                )
                .encode(
                    x=alt.value(WIDTH),
                    y=y,
                    text="method:N",
                    color=alt.Color("colour:N", scale=None),
                )
            )
    above = alt.Chart(base).mark_text(dy=-12, dx=4, fontWeight="bold", color=BLACK)
    return [*layers, above.encode(x=x, y=y, text="method:N")]


def _base(frame: pd.DataFrame) -> Any:
    return frame[frame["method"] == "ERM"].iloc[0]


def _accuracy_range(frame: pd.DataFrame) -> tuple[float, float]:
    """Return the range of accuracy to draw.

    Settings that lose more accuracy are not in the figure. The tables have them.
    """
    top = float(frame["accuracy"].max())
    least = float(_base(frame)["accuracy"]) - MOST_LOST
    bottom = float(frame["accuracy"][frame["accuracy"] >= least].min())
    return bottom - 0.002, top + 0.003


def _on_front(frame: pd.DataFrame) -> pd.Series:
    """Say whether no other setting of the method has a smaller gap and a higher accuracy."""
    ordered = frame.sort_values(["gap", "accuracy"], ascending=[True, False])
    best = ordered.groupby("method")["accuracy"].cummax()
    return (ordered["accuracy"] >= best).reindex(frame.index)


def influence_figure(records: pd.DataFrame) -> Any:
    """Draw figure 1: positive influences of the first seed, and the gap before and after."""
    first = records[records["kind"] == "influence"].sort_values("seed").iloc[0]
    curve = pd.DataFrame({"rank": first["ranks"], "influence": first["scores"]})
    area = (
        alt.Chart(curve)
        .mark_area(line={"color": BLUE}, color=BLUE, opacity=0.25)
        .encode(
            x=alt.X("rank:Q", title="training rows of positive influence, sorted"),
            y=alt.Y("influence:Q", title="influence on the gap", axis=alt.Axis(format=".0e")),
        )
    )
    marked = int(first["marked"])
    at = pd.DataFrame(
        {
            "rank": [first["n_positive"] - marked],
            "text": [f"{marked} most harmful →"],
            "top": [max(first["scores"])],
        }
    )
    line = alt.Chart(at).mark_rule(color=BLACK, strokeWidth=2).encode(x="rank:Q")
    text = (
        alt.Chart(at)
        .mark_text(align="right", dx=-6, dy=8, fontWeight="bold")
        .encode(x="rank:Q", y=alt.Y("top:Q", title="influence on the gap"), text="text:N")
    )
    return alt.hconcat(
        (area + line + text).properties(
            width=430, height=260, title=f"Influence, seed {first['seed']}"
        ),
        _before_and_after(records),
        spacing=40,
    ).configure_view(stroke="#cccccc")


def _before_and_after(records: pd.DataFrame) -> Any:
    gap = "test_demographic_parity"
    before = records[records["method"] == "ERM"][["seed", gap]].assign(when="before")
    after = records[records["kind"] == "influence"][["seed", gap]].assign(when="after")
    frame = pd.concat([before, after]).rename(columns={gap: "gap"})
    means = frame.groupby("when", as_index=False)["gap"].mean()
    means["text"] = [f"{value:.3f}" for value in means["gap"]]
    order = ["before", "after"]
    x = alt.X("when:N", sort=order, title=None, axis=alt.Axis(labelAngle=0, labelFontSize=12))
    y = alt.Y("gap:Q", title="demographic parity gap, test rows")
    colour = alt.Color("when:N", scale=alt.Scale(domain=order, range=[ORANGE, BLUE]), legend=None)
    bars = alt.Chart(means).mark_bar(size=60, opacity=0.55).encode(x=x, y=y, color=colour)
    dots = alt.Chart(frame).mark_point(size=28, color=BLACK, opacity=0.7).encode(x=x, y=y)
    text = alt.Chart(means).mark_text(dx=46, fontWeight="bold").encode(x=x, y=y, text="text:N")
    return (bars + dots + text).properties(width=220, height=260, title="Mean, and each seed")


def refit_figure(records: pd.DataFrame) -> Any:
    """Draw what the edit predicts, and what training without the rows gives, over k."""
    frame = records[records["kind"] == "refit"]
    panels = []
    for name, title in (
        ("test_demographic_parity", "demographic parity gap, test rows"),
        ("test_accuracy", "accuracy, test rows"),
    ):
        own = frame[["seed", "method", "value", name]].rename(columns={name: "measure"})
        own = own[~((own["method"] == "refit") & (own["value"] == 0))]
        start = own[own["value"] == 0].assign(method="refit")  # both start at the base model
        rows = pd.concat([own, start])
        mean = rows.groupby(["method", "value"])[["measure"]].mean().reset_index()
        panels.append(_two_lines(rows, mean, title))
    return alt.hconcat(*panels, spacing=30).configure_view(stroke="#cccccc")


def _two_lines(rows: pd.DataFrame, mean: pd.DataFrame, title: str) -> Any:
    colour = alt.Color(
        "method:N", scale=alt.Scale(domain=["edit", "refit"], range=[BLUE, ORANGE]), legend=None
    )
    x = alt.X("value:Q", title="rows dropped, k")
    y = alt.Y("measure:Q", title=title, scale=alt.Scale(zero=False))
    lines = alt.Chart(mean).mark_line(strokeWidth=3).encode(x=x, y=y, color=colour)
    dots = alt.Chart(rows).mark_point(size=28).encode(x=x, y=y, color=colour, shape="method:N")
    last = mean[mean["value"] == mean["value"].max()]
    names = (
        alt.Chart(last)
        .mark_text(align="left", dx=8, fontWeight="bold", fontSize=12)
        .encode(x=x, y=y, color=colour, text="method:N")
    )
    return (lines + dots.encode(shape=alt.Shape("method:N", legend=None)) + names).properties(
        width=360, height=260
    )
