"""A choice among candidates that is judged as it is returned."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.method.candidates import Judge, keys_of
from fairij.method.selection import Selection, measures_of
from fairij.method.types import Trial
from fairij.models.losses import Loss


@dataclass(frozen=True)
class Chooser:
    """A rule of choice, on candidates that are judged as they will be returned."""

    rule: Selection
    loss: Loss
    timed: Callable[[str], AbstractContextManager[None]]

    def performance(self, table: pd.DataFrame) -> NDArray[np.float64]:
        usual = "accuracy" if self.loss.is_classification else "r2"
        return table[self.rule.performance or usual].to_numpy()

    def choose(self, table: pd.DataFrame) -> int:
        return self.rule.choose(measures_of(table))

    def choose_confirmed(self, table: pd.DataFrame, trials: list[Trial], judge: Judge) -> int:
        """Choose among candidates until the chosen one was judged by itself.

        Several scales are judged together, which may round otherwise, and some evaluators only
        estimate them. Such an evaluator first runs only rows in doubt; what it saw corrects its
        estimates.
        """
        judged: set[int] = set()
        doubted: set[int] = set()
        while True:
            chosen = self.choose(table)
            if int(table["k"][chosen]) == 0 or chosen in judged:
                return chosen
            damping, k, scale = key = keys_of(table)[chosen]
            move = trial_at(trials, damping).moves[k, scale]
            with self.timed("candidates"):
                everywhere = not judge.can_doubt or chosen in doubted
                (judged if everywhere else doubted).add(chosen)
                changed = _put(table, chosen, judge.confirm(move, key, everywhere=everywhere))
                if judge.evaluator.estimates and (changed or chosen not in judged):
                    _estimate_again(table, trials, judge, judged | doubted)


def trial_at(trials: list[Trial], damping: float) -> Trial:
    return next(trial for trial in trials if trial.inverse.damping == damping)


def _put(table: pd.DataFrame, place: int, found: dict[str, NDArray[Any]]) -> bool:
    """Write what was found of one candidate into its row; whether it differs from before."""
    columns, values = list(found), np.array([value[0] for value in found.values()])
    before = table.loc[place, columns].to_numpy(dtype=np.float64)
    table.loc[place, columns] = values
    return not np.array_equal(before, values, equal_nan=True)


def _estimate_again(
    table: pd.DataFrame, trials: list[Trial], judge: Judge, confirmed: set[int]
) -> None:
    """Correct all estimates; rows that were confirmed stay."""
    keys, k_of = keys_of(table), table["k"].to_numpy()
    estimated = ~np.isin(np.arange(len(table)), list(confirmed))
    for trial in trials:
        here = estimated & (table["damping"] == trial.inverse.damping).to_numpy()
        for k, direction in trial.estimated.items():
            place = np.flatnonzero(here & (k_of == k))
            if len(place) == 0:
                continue
            named = [keys[row] for row in place]
            found = judge.judge(direction, tuple(scale for *_, scale in named), named)
            table.loc[place, list(found)] = pd.DataFrame(found, index=place)
