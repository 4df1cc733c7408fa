"""Which candidate to take: rules of choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairij.data.checks import number_between

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

    @property
    def budgets(self) -> Mapping[str, float]:
        """How much of each measure may be lost, by name; empty if the rule has no budget."""
        return {}

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

    @property
    def budgets(self) -> Mapping[str, float]:
        return {self.performance or "accuracy": self.budget}


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
