"""Templates to text. Everything is escaped, except what is made safe here for a known place."""

from __future__ import annotations

import json
from functools import cache
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
