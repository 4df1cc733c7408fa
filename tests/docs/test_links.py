"""Links between pages lead to files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blocks import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([\w-]+))?\)")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
# pages that exist only on the site: the gallery's are made when it is built
GALLERY = {path.with_suffix(".md") for path in (ROOT / "docs" / "gallery").glob("*.py")}


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as the site makes them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {
        re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
        for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for path, anchor in LINK.findall(text):
        target = (page.parent / path).resolve() if path else page
        assert target.exists() or target in GALLERY, path
        if anchor and target.suffix == ".md" and target not in GALLERY:
            assert anchor in anchors(target), f"{path}#{anchor}"
