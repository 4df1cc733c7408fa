"""The README as a package index can show it.

An index has no files of the repository, so relative links and images lead nowhere there. When the
package is built, a relative image is left out, and a relative link becomes its words and the path
of the file in the source.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

IMAGE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]+\)\n+", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


def for_an_index(text: str) -> str:
    """The text without relative images and links."""
    return LINK.sub(r"\1 (`\2`)", IMAGE.sub("", text))


class Readme(MetadataHookInterface):
    """Gives the project's metadata the README of `for_an_index`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_an_index(text)}
