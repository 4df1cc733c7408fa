"""Which candidate to take: rules over the gap and the performance measured on validation rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairij.data.checks import complete
from fairij.errors import InvalidInputError

Array = NDArray[np.float64]
ROUNDING = 1e-9  # 0.8 - 0.1 is a little more than 0.7


class Selection(Protocol):
    """A rule that picks one candidate."""

    def choose(self, gap: Array, performance: Array, *, before: float) -> int:
        """The index of the chosen candidate; ``before`` is the unedited model's performance."""
        ...

    @property
    def performance(self) -> str | None:
        """The column of the candidates that is given as performance; None for the usual one."""
        ...

    @property
    def target(self) -> float | None:
        """The gap that is asked for; None if the rule names none."""
        ...

    def shortfall(self, gap: float) -> str | None:
        """What to say if the chosen candidate's gap misses the rule's aim; else None."""
        ...


class SelectionDefaults:
    """A rule that looks at the usual performance and names no target."""

    performance: str | None = None
    target: float | None = None

    def shortfall(self, gap: float) -> str | None:
        return None


@dataclass(frozen=True)
class LowestGap(SelectionDefaults):
    """The paper's rule: the smallest gap; among equals, the best performance.

    Gaps are measured on a sample, so the very smallest is partly luck. With ``slack`` the best
    performance among all gaps within that distance of the smallest is taken.
    """

    slack: float = 0.0

    def __post_init__(self) -> None:
        if not self.slack >= 0:
            raise InvalidInputError(
                f"`slack` must be a distance between gaps, at least 0; got {self.slack}."
            )

    def choose(self, gap: Array, performance: Array, *, before: float) -> int:
        if self.slack == 0:
            return _best(gap, performance, np.ones(len(gap), dtype=bool))
        return _best(-performance, -gap, gap <= gap.min() + self.slack + ROUNDING)


@dataclass(frozen=True)
class AccuracyBudget(SelectionDefaults):
    """The smallest gap among candidates that lose at most ``budget`` of performance."""

    budget: float

    def __post_init__(self) -> None:
        if not self.budget >= 0:
            raise InvalidInputError(
                "`budget` must be the performance that may be lost, at least 0 (0.01 is one point "
                f"of accuracy); got {self.budget}."
            )

    def choose(self, gap: Array, performance: Array, *, before: float) -> int:
        return _best(gap, performance, performance >= before - self.budget - ROUNDING)


@dataclass(frozen=True)
class TargetGap(SelectionDefaults):
    """The best performance among candidates whose gap is at most ``gap``."""

    gap: float

    def __post_init__(self) -> None:
        if not self.gap >= 0:
            raise InvalidInputError(
                f"`gap` must be the largest gap allowed, at least 0; got {self.gap}."
            )

    def choose(self, gap: Array, performance: Array, *, before: float) -> int:
        allowed = gap <= self.gap + ROUNDING
        if not allowed.any():
            return _best(gap, performance, np.ones(len(gap), dtype=bool))
        return _best(-performance, -gap, allowed)

    @property
    def target(self) -> float | None:  # type: ignore[override]
        return self.gap

    def shortfall(self, gap: float) -> str | None:
        if gap <= self.gap + ROUNDING:
            return None
        return (
            f"No candidate reaches a validation gap of {self.gap:g}; the lowest, {gap:.4f}, is "
            "taken. A wider search (larger k or scales, smaller damping) may reach it."
        )


def pareto_front(gap: Array, performance: Array) -> NDArray[np.bool_]:
    """Which candidates no other one matches in both gap and performance; of equals, the first."""
    order = np.lexsort((gap, -performance))
    best = np.minimum.accumulate(np.concatenate([[np.inf], gap[order][:-1]]))
    front = np.zeros(len(gap), dtype=bool)
    front[order] = gap[order] < best
    return front


RULES: dict[str, Selection] = {"lowest_gap": LowestGap()}


def get_selection(rule: str | Selection) -> Selection:
    """Look a rule up by name; a rule object is returned as it is."""
    found = RULES[rule] if isinstance(rule, str) and rule in RULES else rule
    allowed = (
        f"one of {sorted(RULES)}, LowestGap(slack=...), AccuracyBudget(...), TargetGap(...) or an "
        "object with a `choose` method"
    )
    checked: Selection = complete("selection", found, Selection, SelectionDefaults, allowed)
    return checked


def _best(key: Array, tie_break_high: Array, allowed: NDArray[np.bool_]) -> int:
    """The allowed index with the smallest key; among equals the highest second value."""
    index = np.flatnonzero(allowed)
    order = np.lexsort((-tie_break_high[index], key[index]))
    return int(index[order[0]])
