"""The style and scripts inside a page, and the policy that only they may run."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

import altair as alt
import vl_convert
from markupsafe import Markup


def style() -> Markup:
    return Markup(_asset("report.css"))


def scripts() -> list[Markup]:
    """The charting library and the page's own script. Neither holds any data."""
    return [Markup(text) for text in (_library(), _asset("report.js"))]


def content_policy(parts: list[Markup]) -> str:
    """A policy by which only these scripts may run, and nothing may be fetched or sent."""
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in parts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return files("fairij.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega-Embed and all that it needs, as one script that defines ``vegaEmbed``."""
    major, minor, *_ = alt.SCHEMA_VERSION.removeprefix("v").split(".")
    # the stub requires a snippet, the code does not
    bundle: str = vl_convert.javascript_bundle(vl_version=f"{major}.{minor}")  # type: ignore[call-arg]
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
