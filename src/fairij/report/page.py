"""One self-contained page: what was asked, the answer, and the pictures behind it."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#111}
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
td,th{white-space:nowrap}caption{text-align:left;font-weight:600}
td,th{padding:.3rem .8rem;border-bottom:1px solid #ccc;text-align:right}
td:first-child,th:first-child{text-align:left}figure{margin:1.5rem 0;overflow-x:auto}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}.answer{font-size:1.1rem}
@media print{figure{break-inside:avoid}}
"""


def page(
    *,
    title: str,
    answer: str,
    tables: list[tuple[str, pd.DataFrame]],
    charts: list[tuple[str, Any]],
    settings: dict[str, Any],
) -> str:
    """Lay out a report as one HTML file that needs no network; all text is escaped."""
    figures = "".join(
        f'<h2>{html.escape(caption)}</h2><figure id="chart{i}" role="img" '
        f'aria-label="{html.escape(caption, quote=True)}"></figure>'
        for i, (caption, _) in enumerate(charts)
    )
    specs = [_script_safe(chart.to_dict()) for _, chart in charts]
    calls = "".join(
        f"vegaEmbed('#chart{i}',{spec},{{actions:false,renderer:'svg'}});"
        for i, spec in enumerate(specs)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f'<h1>{html.escape(title)}</h1><p class="answer">{html.escape(answer)}</p>'
        + "".join(_table(caption, frame) for caption, frame in tables)
        + figures
        + "<h2>Settings</h2>"
        + _table("", pd.DataFrame({"value": pd.Series(settings, dtype=object)}))
        + f"<script>{_library()}</script><script>{calls}</script></body></html>"
    )


def _library() -> str:
    """Vega-Embed and all it needs, as one script that defines ``vegaEmbed``."""
    major, minor, *_ = alt.SCHEMA_VERSION.removeprefix("v").split(".")
    # its stub wants a snippet, its code does not
    bundle: str = vl_convert.javascript_bundle(vl_version=f"{major}.{minor}")  # type: ignore[call-arg]
    return bundle.replace("</script", "<\\/script")


def _script_safe(spec: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(spec).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _table(caption: str, frame: pd.DataFrame) -> str:
    def shown(value: Any) -> str:
        return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))

    head = "".join(f"<th>{html.escape(str(c))}</th>" for c in frame.columns)
    body = "".join(
        f"<tr><td>{html.escape(str(name))}</td>"
        + "".join(f"<td>{shown(v)}</td>" for v in row)
        + "</tr>"
        for name, row in zip(frame.index, frame.itertuples(index=False), strict=True)
    )
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"


def save_chart(chart: Any, stem: Path) -> None:
    """Write a chart as SVG and PNG, without a browser."""
    chart.save(f"{stem}.svg")
    chart.save(f"{stem}.png", scale_factor=2)
