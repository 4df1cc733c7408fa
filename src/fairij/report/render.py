"""Templates to text. Everything is escaped, except what is made safe here for a known place."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

# characters that could end a script element, start a comment in it, or end a line
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fairij.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["script_json"] = script_json
    return environment


def script_json(value: Any) -> Markup:
    """JSON that cannot end the ``<script type="application/json">`` element around it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character, code in UNSAFE.items():
        text = text.replace(character, code)
    return Markup(text)


def assets() -> dict[str, Any]:
    """Style and scripts, and the policy: only these scripts run, nothing is fetched or sent."""
    scripts = [_charting_library(), _asset("report.js")]  # neither holds any data
    digests = (hashlib.sha256(text.encode()).digest() for text in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    style = Markup(_asset("report.css"))
    return {"style": style, "scripts": list(map(Markup, scripts)), "policy": policy}


def _asset(name: str) -> str:
    return files("fairij.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _charting_library() -> str:
    """Vega-Embed and all that it needs, as one script that defines ``vegaEmbed``."""
    import altair
    import vl_convert

    major, minor, *_ = altair.SCHEMA_VERSION.removeprefix("v").split(".")
    # the stub requires a snippet, the code does not
    bundle: str = vl_convert.javascript_bundle(vl_version=f"{major}.{minor}")  # type: ignore[call-arg]
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
