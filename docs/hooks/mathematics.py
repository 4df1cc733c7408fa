"""Formulas become MathML when the site is built. Browsers show it without any script."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def on_page_content(content: str, **_: Any) -> str:
    """Replace every formula of a page."""
    return FORMULA.sub(_as_mathml, content)


def _as_mathml(found: re.Match[str]) -> str:
    inline = found["tag"] == "span"
    drawn = convert(html.unescape(found["tex"]).strip(), display="inline" if inline else "block")
    return drawn if inline else f'<div class="formula">{drawn}</div>'
