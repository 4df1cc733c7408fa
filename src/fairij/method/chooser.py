"""A choice among candidates that is judged as it is returned."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from fairij.method.candidates import Judge
from fairij.method.selection import Selection, measures_of
from fairij.method.types import Trial
from fairij.models.losses import Loss
from fairij.solvers.base import Inverse, Solution


@dataclass(frozen=True)
class Chooser:
    """A rule of choice, with a way to solve the chosen edit to the solver's tolerance."""

    rule: Selection
    loss: Loss
    solve: Callable[[Inverse, Tensor], Solution]  # of the rows that are dropped
    timed: Callable[[str], AbstractContextManager[None]]

    def performance(self, table: pd.DataFrame) -> NDArray[np.float64]:
        usual = "accuracy" if self.loss.is_classification else "r2"
        return table[self.rule.performance or usual].to_numpy()

    def choose(self, table: pd.DataFrame) -> int:
        return self.rule.choose(measures_of(table))

    def choose_solved(self, table: pd.DataFrame, trials: list[Trial], judge: Judge) -> int:
        """Choose among candidates until the chosen one was judged as it will be returned.

        Candidates are solved loosely, and some evaluators only estimate several scales at once. So
        the chosen one is solved again and judged by itself, until the same one is chosen again. An
        evaluator that estimates first runs only rows in doubt; what it saw corrects its estimates.
        """
        judged: set[int] = set()
        doubted: set[int] = set()
        while True:
            chosen = self.choose(table)
            if int(table["k"][chosen]) == 0 or chosen in judged:
                return chosen
            direction, scale = self._solved(table, chosen, trials)
            with self.timed("candidates"):
                everywhere = not judge.can_doubt or chosen in doubted
                (judged if everywhere else doubted).add(chosen)
                found = judge.confirm(direction, scale, everywhere=everywhere)
                changed = _put(table, chosen, found)
                if judge.evaluator.estimates and (changed or chosen not in judged):
                    _estimate_again(table, trials, judge, judged | doubted)

    def _solved(
        self, table: pd.DataFrame, chosen: int, trials: list[Trial]
    ) -> tuple[Tensor, float]:
        """A candidate's direction, solved to the solver's tolerance, and its scale."""
        k, scale = int(table["k"][chosen]), float(table["scale"][chosen])
        trial = trial_at(trials, float(table["damping"][chosen]))
        if (k, scale) in trial.moves:
            return trial.moves[k, scale], 1.0
        if k not in trial.solved:
            with self.timed("edit"):
                trial.solved[k] = self.solve(trial.inverse, trial.rankings[0].order[:k])
        return trial.solved[k].x, scale


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
    judge.forget_estimates()
    k_of, scale_of = table["k"].to_numpy(), table["scale"].to_numpy()
    for trial in trials:
        here = (table["damping"] == trial.inverse.damping).to_numpy()
        places = [np.flatnonzero(here & (k_of == k)) for k in trial.estimated]
        found = [
            pd.DataFrame(judge.judge(direction, tuple(scale_of[place])), index=place)
            for place, direction in zip(places, trial.estimated.values(), strict=True)
        ]
        if found:
            values = pd.concat(found).drop(index=list(confirmed), errors="ignore")
            table.loc[values.index, values.columns] = values
