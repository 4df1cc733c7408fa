"""Which edits to try; a new search is one file and one line here."""

from __future__ import annotations

from fairij.errors import InvalidInputError
from fairij.method.search.base import Proposal, Search, SearchContext, SearchDefaults
from fairij.method.search.dropping import AllPositive, Grid, Sequential
from fairij.method.search.path import Path
from fairij.method.search.reweighting import Reweight

SEARCHES: dict[str, type[Search]] = {
    search.name: search for search in (Grid, AllPositive, Sequential, Reweight, Path)
}


def get_search(search: str | Search) -> Search:
    """Look up a search by name, with its default settings; an object is returned as it is."""
    if isinstance(search, str) and search in SEARCHES:
        return SEARCHES[search]()
    if isinstance(search, (str, type)) or not callable(getattr(search, "propose", None)):
        raise InvalidInputError(
            f"`search` must be one of {sorted(SEARCHES)} or a search object, as in "
            f"Grid(max_k=500); got {search!r}."
        )
    return search


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
