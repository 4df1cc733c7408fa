"""The candidate edits that a reader of the page can choose from, with rates by group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.mitigator import FairIJ
from fairij.report.wording import LABELS, PERFORMANCE, SCORES, plain

MOST_POINTS = 500
MOST_NUMBERS = 60_000
SETTINGS = ("k", "scale", "damping")


@dataclass(frozen=True)
class Shown:
    """Candidates, smallest gap first."""

    table: pd.DataFrame  # rows of candidates_; the index is their place there
    performance: str  # the column on the vertical axis
    groups: list[str]
    rates: list[str]  # as in the audit
    of_group: NDArray[np.float64]  # (rows, groups, rates)
    left_out: int

    def for_script(self, chosen: int) -> dict[str, Any]:
        """The values that the page's script shows: numbers, and text that it sets as text."""
        names = [
            name for name in (*SETTINGS, "gap", *PERFORMANCE, *SCORES) if name in self.table.columns
        ]
        return {
            "names": [LABELS.get(name, name) for name in names],
            "figures": [[_short(v) for v in row] for row in self.table[names].to_numpy()],
            "pareto": [int(flag) for flag in self.table["pareto"]],
            "gap": names.index("gap"),
            "performance": names.index(self.performance),
            "auc": names.index("auc") if "auc" in names else None,
            "before": self.place(0),
            "chosen": self.place(chosen),
            "groups": self.groups,
            "rates": [plain(name) for name in self.rates],
            "of_group": [[[_short(v) for v in g] for g in row] for row in self.of_group],
        }

    def place(self, candidate: int) -> int:
        """The place here of a row of ``candidates_``."""
        return int(np.flatnonzero(self.table.index == candidate)[0])


def shown_candidates(fitted: FairIJ) -> Shown:
    """The frontier, the unedited model, the chosen edit, and an even sample of the rest."""
    table = fitted.candidates_.reset_index(drop=True)
    performance = "accuracy" if fitted.loss_.is_classification else "r2"
    drawable = np.isfinite(table["gap"]) & np.isfinite(table[performance])
    groups = [str(name) for name in fitted.before_.by_group.index]
    rates = _rates(table, groups)
    most = int(np.clip(MOST_NUMBERS // max(1, len(groups) * len(rates)), 20, MOST_POINTS))
    keep = _thinned(table[drawable], [0, fitted.chosen_], most)
    some = table.loc[keep].sort_values(["gap", performance], kind="stable")
    columns = [f"{rate}[{group}]" for group in groups for rate in rates]
    shape = len(some), len(groups), len(rates)
    of_group = some[columns].to_numpy(np.float64).reshape(shape)
    names = [_named(rate, fitted) for rate in rates]
    return Shown(some, performance, groups, names, of_group, len(table) - len(some))


def _rates(table: pd.DataFrame, groups: list[str]) -> list[str]:
    """The rates that the table of candidates has for every group."""
    first = f"[{groups[0]}]"
    kinds = [str(name).removesuffix(first) for name in table if str(name).endswith(first)]
    return [kind for kind in kinds if all(f"{kind}[{group}]" in table for group in groups)]


def _named(rate: str, fitted: FairIJ) -> str:
    """Put the name of a class in place of its number."""
    kind, bracket, place = rate.partition("[")
    return f"{kind}[{fitted.classes_[int(place[:-1])]}]" if bracket else kind


def _thinned(table: pd.DataFrame, always: list[int], most: int) -> list[int]:
    front = list(dict.fromkeys([*always, *table.index[table["pareto"]]]))
    if len(front) > most:  # a long frontier is thinned too, evenly along the gap
        along = table.loc[table.index.isin(front)].sort_values("gap").index
        front = [*always, *along[np.linspace(0, len(along) - 1, most - 2).round().astype(int)]]
    rest = table.index.difference(front)
    room = min(most - len(front), len(rest))
    if room > 0:
        front += list(rest[np.linspace(0, len(rest) - 1, room).round().astype(int)])
    return [int(place) for place in dict.fromkeys(front)]


def _short(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None
