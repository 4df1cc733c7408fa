"""Every solver, search and rule keeps its contract; broken ones are found out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from fairij import SOLVERS, AccuracyBudget, Budget, Constrained, LowestGap, TargetGap
from fairij.language import BalancedAccuracyBudget
from fairij.method.contract import check_search, check_selection, check_solver
from fairij.method.rules import RULES
from fairij.method.search import SEARCHES, Proposal, SearchContext, SearchDefaults
from fairij.method.selection import Measures, SelectionDefaults
from fairij.solvers import Exact, SharedConjugateGradient
from fairij.solvers.base import Solution


@pytest.mark.parametrize("solver", [*SOLVERS, SharedConjugateGradient()], ids=str)
def test_solvers(solver: Any) -> None:
    check_solver(solver)


@pytest.mark.parametrize("search", SEARCHES)
def test_searches(search: str) -> None:
    check_search(search)


@pytest.mark.parametrize("settings", [{}, {"directions": 3}], ids=["all", "few directions"])
def test_the_form_of_trees(settings: dict[str, int]) -> None:
    check_search(Constrained(chances=True, loss_on="validation", **settings))


@pytest.mark.parametrize(
    "rule",
    [
        *RULES,
        Budget(target=0.1),
        LowestGap(0.02),
        AccuracyBudget(0.1),
        BalancedAccuracyBudget(0.1),
        TargetGap(0.05),
    ],
    ids=str,
)
def test_rules(rule: Any) -> None:
    check_selection(rule)


@dataclass(frozen=True)
class Broken(Exact):
    """An exact solver with its solutions changed."""

    change: Callable[[Solution, Tensor], Solution] = lambda solution, b: solution

    def prepare(self, curvature: Any, damping: float) -> Any:
        inverse = super().prepare(curvature, damping)
        solve = inverse.solve
        inverse.solve = lambda b, **given: self.change(solve(b, **given), b)  # type: ignore
        return inverse


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s, b: replace(s, x=s.x.T), "x has shape"),
        (lambda s, b: replace(s, measure=lambda: torch.zeros(3) + 0.5), "but it reports"),
        (lambda s, b: replace(s, x=s.x + 1, measure=s.measure), "error in energy is"),
        (lambda s, b: replace(s, x=s.x + torch.rand(1).double() * 1e-9), "differ|not 0"),
    ],
)
def test_a_broken_solver(change: Any, says: str) -> None:
    check_solver(Broken())
    with pytest.raises(AssertionError, match=says):
        check_solver(Broken(change=change))


class Odd(SearchDefaults):
    name: ClassVar[str] = "odd"

    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    def count(self, context: SearchContext) -> int:
        return 1

    def propose(self, context: SearchContext) -> Iterator[Proposal]:
        if len(context.order) or self.changes.get("always"):
            changes = {n: v for n, v in self.changes.items() if n != "always"}
            yield replace(Proposal(1, torch.ones(5).double(), (1.0,)), **changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"k": 10**6}, "rows may be dropped"),
        ({"direction": torch.ones(4)}, "direction has shape"),
        ({"direction": torch.full((5,), torch.nan)}, "not finite"),
        ({"scales": (0.0,)}, "scales are"),
        ({"scales": (1.0, 2.0), "label": 1.0}, "proposals of one scale"),
        ({"always": True}, "no row is harmful"),
    ],
)
def test_a_broken_search(changes: dict[str, Any], says: str) -> None:
    check_search(Odd())
    with pytest.raises(AssertionError, match=says):
        check_search(Odd(**changes))


class Fixed(SelectionDefaults):
    def __init__(self, place: int) -> None:
        self.place = place

    def choose(self, candidates: Measures) -> int:
        return self.place


@pytest.mark.parametrize(("place", "says"), [(99, "not an index"), (3, "diverged"), (5, "order")])
def test_a_broken_rule(place: int, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_selection(Fixed(place))
