"""Which edits to try; a new search is one file and one line in `NAMES`.

Names are loaded when they are first used, so that the command line can list searches quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairij import load_later

if TYPE_CHECKING:  # what `__getattr__` finds, for type checkers and editors
    from fairij.method.search.base import Proposal, Search, SearchContext, SearchDefaults
    from fairij.method.search.dropping import AllPositive, Grid, Sequential
    from fairij.method.search.reweighting import Path, Reweight

    SEARCHES: dict[str, type[Search]]

# the module and the class of each search; `SEARCHES` has the classes themselves
NAMES = {
    "grid": "dropping.Grid",
    "all_positive": "dropping.AllPositive",
    "sequential": "dropping.Sequential",
    "reweight": "reweighting.Reweight",
    "path": "reweighting.Path",
}

__all__ = [
    "NAMES",
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
__getattr__ = load_later(
    __name__, {"base": "Proposal Search SearchContext SearchDefaults"}, SEARCHES=NAMES
)
