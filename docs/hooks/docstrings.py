"""Docstrings here say ``name : what it is``; types stand in the signature.

numpy's style would take what follows the colon for the type. Moved to a line of its own it is the
description that it is meant to be.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ENTRY = re.compile(r"^(?P<names>[\w, ]+?) : (?P<text>.+)$")
SECTIONS = ("Parameters", "Attributes")


class PlainEntries(Extension):
    """Put the description of each parameter and attribute where griffe looks for it."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_plain_entries(obj.docstring.value)


def with_plain_entries(text: str) -> str:
    lines, inside, out = text.splitlines(), False, []
    while lines:
        line = lines.pop(0)
        if lines and lines[0].startswith("---"):
            inside = line in SECTIONS
        entry = ENTRY.match(line) if inside else None
        if entry is None:
            out.append(line)
            continue
        about = [f"    {entry['text']}"]
        while lines and lines[0].startswith("    "):
            about.append(lines.pop(0))
        for name in entry["names"].split(", "):  # apart, so that each gets its own type
            out += [name, *about]
    return "\n".join(out)
