"""The rules of choice that have a name: the default, and short words for common budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from fairij.data.checks import number_between
from fairij.errors import InvalidInputError
from fairij.method.selection import ROUNDING, Budget, Measures, Selection, SelectionDefaults


class _ShortName(SelectionDefaults, Protocol):
    """A rule that is a `Budget` with few settings."""

    @property
    def budget_rule(self) -> Budget:
        raise NotImplementedError

    @property
    def target(self) -> float | None:
        return self.budget_rule.target

    @property
    def budgets(self) -> Mapping[str, float]:
        return self.budget_rule.budgets

    def shortfall(self, gap: float) -> str | None:
        return self.budget_rule.shortfall(gap)

    def choose(self, candidates: Measures) -> int:
        return self.budget_rule.choose(candidates)


@dataclass(frozen=True)
class LowestGap(_ShortName):
    """The paper's rule: the smallest gap at any cost; among equals, the best performance.

    Parameters
    ----------
    slack : float, default=0.0
        Gaps are measured on a sample, so the smallest is partly chance. With ``slack`` the best
        performance among all gaps within that distance of the smallest is taken.

    Examples
    --------
    >>> FairIJ(model, selection=LowestGap(slack=0.01)).selection
    LowestGap(slack=0.01)
    """

    slack: float = 0.0

    def __post_init__(self) -> None:
        number_between("slack", self.slack, 0, including_low=True)

    @property
    def budget_rule(self) -> Budget:
        return Budget.only(slack=self.slack, prefer="accuracy")


@dataclass(frozen=True)
class AccuracyBudget(_ShortName):
    """The smallest gap among candidates that lose little accuracy (in regression: R^2).

    It looks at nothing else; `Budget` also looks at AUC and at classes that are given up.

    Parameters
    ----------
    budget : float
        The loss of performance that is allowed: 0.01 is one point of accuracy.

    Examples
    --------
    >>> FairIJ(model, selection=AccuracyBudget(0.01)).selection  # at most one point of accuracy
    AccuracyBudget(budget=0.01)
    """

    budget: float

    def __post_init__(self) -> None:
        number_between("budget", self.budget, 0, including_low=True)

    @property
    def budget_rule(self) -> Budget:
        kind = self.performance or "accuracy"
        return Budget.only(**{kind: self.budget}, r2=self.budget, prefer=kind)


@dataclass(frozen=True)
class TargetGap(_ShortName):
    """The best performance among candidates with a small enough gap.

    Parameters
    ----------
    gap : float
        The largest gap that is allowed.

    Examples
    --------
    >>> FairIJ(model, selection=TargetGap(0.05)).selection
    TargetGap(gap=0.05)
    """

    gap: float

    def __post_init__(self) -> None:
        number_between("gap", self.gap, 0, including_low=True)

    @property
    def budget_rule(self) -> Budget:
        return Budget.only(target=self.gap, prefer="accuracy")


@dataclass(frozen=True)
class TargetRatio(_ShortName):
    """The best performance among candidates whose ratio is high enough.

    The ratio is the lowest rate of a group as a share of the highest. It needs a constraint that
    compares groups by it, such as ``"demographic_parity_ratio"``.

    Parameters
    ----------
    ratio : float, default=0.8
        The least ratio that is allowed. 0.8 is the four-fifths rule.

    Examples
    --------
    >>> FairIJ(model, constraints="demographic_parity_ratio", selection=TargetRatio(0.8)).selection
    TargetRatio(ratio=0.8)
    """

    ratio: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < number_between("ratio", self.ratio, 0) <= 1:
            raise InvalidInputError(
                f"`ratio` must be above 0 and at most 1, as in 0.8; got {self.ratio!r}."
            )

    @property
    def budget_rule(self) -> Budget:
        return Budget.only(target=1 - self.ratio, prefer="accuracy")

    @property
    def of_ratio(self) -> bool:
        return True

    def shortfall(self, gap: float) -> str | None:
        if gap <= 1 - self.ratio + ROUNDING:
            return None
        return (
            f"No candidate reaches a validation ratio of {self.ratio:g}; the highest, "
            f"{1 - gap:.4f}, is taken. A wider search (larger k or scales, smaller damping) may "
            "reach it."
        )


RuleName = Literal["budget", "lowest_gap"]
RULES: dict[str, Selection] = {"budget": Budget(), "lowest_gap": LowestGap()}
