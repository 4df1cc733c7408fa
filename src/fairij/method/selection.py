"""Which candidate to take: rules of choice, and a choice that is judged as it is returned."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.checks import number_between
from fairij.method.candidates import Judge
from fairij.method.types import Trial
from fairij.models.losses import Loss
from fairij.solvers.base import Inverse, Solution

Array = NDArray[np.float64]
ROUNDING = 1e-9  # 0.8 - 0.1 is a little more than 0.7


class SelectionDefaults(Protocol):
    """What a rule of choice need not offer: to be inherited by every rule."""

    @property
    def performance(self) -> str | None:
        """The column of the candidates that is given as performance; None for the usual one."""
        return None

    @property
    def target(self) -> float | None:
        """The gap that is asked for; None if the rule names none."""
        return None

    def shortfall(self, gap: float) -> str | None:
        """What to say if the chosen candidate's gap misses the rule's aim; else None."""
        return None


class Selection(SelectionDefaults, Protocol):
    """A rule that picks one candidate."""

    def choose(self, gap: Array, performance: Array, *, before: float) -> int:
        """The index of the chosen candidate; ``before`` is the unedited model's performance."""
        ...


@dataclass(frozen=True)
class LowestGap(SelectionDefaults):
    """The paper's rule: the smallest gap; among equals, the best performance.

    Parameters
    ----------
    slack : float, default=0.0
        Gaps are measured on a sample, so the smallest is partly chance. With ``slack`` the best
        performance among all gaps within that distance of the smallest is taken.
    """

    slack: float = 0.0

    def __post_init__(self) -> None:
        number_between("slack", self.slack, 0, including_low=True)

    def choose(self, gap: Array, performance: Array, *, before: float) -> int:
        if self.slack == 0:
            return _best(gap, performance, np.ones(len(gap), dtype=bool))
        return _best(-performance, -gap, gap <= gap.min() + self.slack + ROUNDING)


@dataclass(frozen=True)
class AccuracyBudget(SelectionDefaults):
    """The smallest gap among candidates that lose little performance.

    Parameters
    ----------
    budget : float
        The loss of performance that is allowed: 0.01 is one point of accuracy.
    """

    budget: float

    def __post_init__(self) -> None:
        number_between("budget", self.budget, 0, including_low=True)

    def choose(self, gap: Array, performance: Array, *, before: float) -> int:
        return _best(gap, performance, performance >= before - self.budget - ROUNDING)


@dataclass(frozen=True)
class TargetGap(SelectionDefaults):
    """The best performance among candidates with a small enough gap.

    Parameters
    ----------
    gap : float
        The largest gap that is allowed.
    """

    gap: float

    def __post_init__(self) -> None:
        number_between("gap", self.gap, 0, including_low=True)

    def choose(self, gap: Array, performance: Array, *, before: float) -> int:
        allowed = gap <= self.gap + ROUNDING
        if not allowed.any():
            return _best(gap, performance, np.ones(len(gap), dtype=bool))
        return _best(-performance, -gap, allowed)

    @property
    def target(self) -> float | None:
        return self.gap

    def shortfall(self, gap: float) -> str | None:
        if gap <= self.gap + ROUNDING:
            return None
        return (
            f"No candidate reaches a validation gap of {self.gap:g}; the lowest, {gap:.4f}, is "
            "taken. A wider search (larger k or scales, smaller damping) may reach it."
        )


def pareto_front(gap: Array, performance: Array) -> NDArray[np.bool_]:
    """Which candidates no other matches in both gap and performance; of equals, the first."""
    order = np.lexsort((gap, -performance))
    best = np.minimum.accumulate(np.concatenate([[np.inf], gap[order][:-1]]))
    front = np.zeros(len(gap), dtype=bool)
    front[order] = gap[order] < best
    return front


RULES: dict[str, Selection] = {"lowest_gap": LowestGap()}


def _best(key: Array, tie_break_high: Array, allowed: NDArray[np.bool_]) -> int:
    """The allowed index with the smallest key; among equals the highest second value."""
    index = np.flatnonzero(allowed)
    order = np.lexsort((-tie_break_high[index], key[index]))
    return int(index[order[0]])


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
        level = self.performance(table)
        return self.rule.choose(table["gap"].to_numpy(), level, before=float(level[0]))

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
