"""Which edits to try; a new search is one file and one line here."""

from __future__ import annotations

from fairij.data.checks import complete
from fairij.method.search.base import Proposal, Search, SearchContext, SearchDefaults
from fairij.method.search.dropping import AllPositive, Grid, Sequential
from fairij.method.search.path import Path
from fairij.method.search.reweighting import Reweight

SEARCHES: dict[str, type[Search]] = {
    search.name: search for search in (Grid, AllPositive, Sequential, Reweight, Path)
}


def get_search(search: str | Search) -> Search:
    """Look up a search by name, with its default settings; an object is returned as it is."""
    found = SEARCHES[search]() if isinstance(search, str) and search in SEARCHES else search
    allowed = f"one of {sorted(SEARCHES)} or a search object, as in Grid(max_k=500)"
    checked: Search = complete("search", found, Search, SearchDefaults, allowed)
    return checked


__all__ = [
    "SEARCHES",
    "AllPositive",
    "Grid",
    "Path",
    "Proposal",
    "Reweight",
    "Search",
    "SearchContext",
    "SearchDefaults",
    "Sequential",
    "get_search",
]
