"""The lists of constraints and metrics, from the code: a new one needs no edit of a page.

The page holds them too, so that it can be read without the site; a test says that they are true.
"""

from __future__ import annotations

import re
from typing import Any

from fairij.fairness import rates
from fairij.fairness.metrics import METRICS

TABLE = re.compile(r"\| constraint \| what it compares .*?(?=\n\n)", re.DOTALL)
NAMES = re.compile(r"(?<=in `fairij\.fairness\.metrics`: ).*?(?=\. Each takes)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    markdown = TABLE.sub(lambda _: rates.markdown(), markdown)
    return NAMES.sub(lambda _: ", ".join(f"`{name}`" for name in METRICS), markdown)
