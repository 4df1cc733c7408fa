"""Which edits to try; a new search is one file and one line here."""

from __future__ import annotations

from fairij.method.search.base import Proposal, Search, SearchContext, SearchDefaults
from fairij.method.search.dropping import AllPositive, Grid, Sequential
from fairij.method.search.path import Path
from fairij.method.search.reweighting import Reweight

SEARCHES: dict[str, type[Search]] = {
    search.name: search for search in (Grid, AllPositive, Sequential, Reweight, Path)
}


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
]
