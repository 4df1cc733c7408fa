"""The figure of the study: every combination and method, by its verdict."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from fairij_studies.frontier.summary import BEST, CLOSE, COMBINATION, FEW, WORSE
from fairij_studies.palette import BLUE, GREY, ORANGE, SKY

SHORT = {"demographic_parity": "DP", "equalized_odds": "EO", "equal_opportunity": "EOpp"}
COLOURS = {BEST: BLUE, CLOSE: SKY, WORSE: ORANGE, FEW: GREY}


def verdict_figure(verdict: pd.DataFrame, methods: tuple[str, ...], title: str) -> Any:
    """A line for each combination, a column for each method; the number is the mean test gap."""
    rows = verdict[verdict["method"].isin(methods)]
    rows = rows.assign(
        combination=[_name(row) for _, row in rows[COMBINATION].iterrows()],
        shown=[f"{gap:.3f}" for gap in rows["gap"]],
    )
    order = list(dict.fromkeys(rows["combination"]))
    x = alt.X(
        "method:N",
        sort=[name for name in methods if name in set(rows["method"])],
        title=None,
        axis=alt.Axis(orient="top", labelAngle=-30, labelLimit=220),
    )
    y = alt.Y("combination:N", sort=order, title=None, axis=alt.Axis(labelLimit=320))
    known = [said for said in COLOURS if said in set(rows["verdict"])]
    colour = alt.Color(
        "verdict:N",
        scale=alt.Scale(domain=known, range=[COLOURS[said] for said in known]),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    dark = alt.condition(alt.datum.verdict == BEST, alt.value("white"), alt.value("black"))
    base = alt.Chart(rows)
    return (
        alt.layer(
            base.mark_rect(stroke="white", strokeWidth=1.5).encode(x=x, y=y, color=colour),
            base.mark_text(fontSize=10).encode(x=x, y=y, text="shown:N", color=dark),
        )
        .properties(
            width=68 * rows["method"].nunique(),
            height=17 * len(order),
            title=alt.Title(title, fontSize=14, anchor="start"),
        )
        .configure_view(stroke=None)
        .configure_axis(grid=False, domain=False, ticks=False, labelFontSize=11)
    )


def _name(row: pd.Series) -> str:
    return f"{row['data']}, {row['model']}, {SHORT[row['constraint']]}"
