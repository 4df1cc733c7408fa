"""Which edits to try; a new search is one file and one line in `NAMES`.

Names are loaded when they are first used, so that the command line can list searches quickly.
"""

from typing import Literal

from fairij import load_later

# the names, for type checkers
SearchName = Literal[
    "auto", "grid", "all_positive", "sequential", "reweight", "path", "constrained"
]  # fmt: skip

# the module and the class of each search; `SEARCHES` has the classes themselves
NAMES = {
    "auto": "auto.Auto",
    "grid": "dropping.Grid",
    "all_positive": "dropping.AllPositive",
    "sequential": "dropping.Sequential",
    "reweight": "reweighting.Reweight",
    "path": "reweighting.Path",
    "constrained": "constrained.Constrained",
}
_OTHERS = {"base": "Forms Proposal Search SearchContext SearchDefaults SignedGaps"}
__getattr__ = load_later(__name__, _OTHERS, SEARCHES=NAMES)
