"""Rules of choice against loops over all candidates."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairij import AccuracyBudget, LowestGap, TargetGap, pareto_front
from fairij.errors import InvalidInputError
from fairij.method.preparation import get_selection
from fairij.method.selection import RULES

# few distinct values, so that ties are common
values = st.sampled_from([0.0, 0.1, 0.2, 0.30000000000000004, 0.3, 0.5, 0.75, 1.0])
candidates = st.lists(
    st.tuples(st.one_of(values, st.just(np.inf)), values), min_size=1, max_size=12
)


def columns(rows: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    gap, performance = np.array(rows, dtype=float).T
    return gap, performance


@given(candidates)
def test_pareto_front_equals_brute_force(rows: list[tuple[float, float]]) -> None:
    def beaten(i: int) -> bool:
        gap, performance = rows[i]
        return gap == np.inf or any(
            g <= gap and p >= performance and ((g, p) != (gap, performance) or j < i)
            for j, (g, p) in enumerate(rows)
            if j != i
        )

    expected = [not beaten(i) for i in range(len(rows))]
    assert pareto_front(*columns(rows)).tolist() == expected


@given(candidates)
def test_pareto_front_is_a_staircase(rows: list[tuple[float, float]]) -> None:
    gap, performance = columns(rows)
    front = pareto_front(gap, performance)
    order = np.argsort(gap[front])
    assert (np.diff(gap[front][order]) > 0).all()
    assert (np.diff(performance[front][order]) > 0).all()


def test_pareto_front_by_hand() -> None:
    gap = np.array([0.5, 0.1, 0.3, 0.1, 0.2, 0.5])
    performance = np.array([0.9, 0.6, 0.8, 0.7, 0.65, 0.9])
    assert pareto_front(gap, performance).tolist() == [True, False, True, True, False, False]


@given(candidates)
def test_lowest_gap(rows: list[tuple[float, float]]) -> None:
    chosen = LowestGap().choose(*columns(rows), before=rows[0][1])
    best = min(gap for gap, _ in rows)
    assert rows[chosen] == (best, max(p for gap, p in rows if gap == best))
    assert chosen == rows.index(rows[chosen])  # the first of equals: the fewest rows dropped


@given(candidates, st.sampled_from([0.0, 0.1, 0.2, 0.25, 2.0]))
def test_accuracy_budget(rows: list[tuple[float, float]], budget: float) -> None:
    before = rows[0][1]
    chosen = AccuracyBudget(budget).choose(*columns(rows), before=before)
    allowed = [row for row in rows if row[1] >= before - budget - 1e-9]
    assert rows[chosen] in allowed
    best = min(gap for gap, _ in allowed)
    assert rows[chosen] == (best, max(p for gap, p in allowed if gap == best))


@given(candidates, values)
def test_target_gap(rows: list[tuple[float, float]], target: float) -> None:
    reached = [row for row in rows if row[0] <= target + 1e-9]
    rule = TargetGap(target)
    if not reached:
        chosen = rule.choose(*columns(rows), before=rows[0][1])
        assert "No candidate reaches" in str(rule.shortfall(rows[chosen][0]))
        assert chosen == LowestGap().choose(*columns(rows), before=rows[0][1])
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = rule.choose(*columns(rows), before=rows[0][1])
    best = max(p for _, p in reached)
    assert rows[chosen] == (min(gap for gap, p in reached if p == best), best)


def test_a_budget_met_exactly_is_met() -> None:
    # 0.8 - 0.1 is 0.7000000000000001
    gap, accuracy = np.array([0.4, 0.1]), np.array([0.8, 0.7])
    assert AccuracyBudget(0.1).choose(gap, accuracy, before=0.8) == 1
    # 0.8 - 0.7 is 0.10000000000000009
    assert TargetGap(0.1).choose(np.array([0.4, 0.8 - 0.7]), accuracy, before=0.8) == 1


def test_target_out_of_reach_says_how_near_it_came() -> None:
    assert TargetGap(0.05).choose(np.array([0.4, 0.1]), np.array([0.8, 0.7]), before=0.8) == 1
    message = TargetGap(0.05).shortfall(0.1)
    assert message is not None
    assert "gap of 0.05; the lowest, 0.1000, is taken. A wider search" in message
    assert TargetGap(0.05).shortfall(0.05) is None


@pytest.mark.parametrize("rule", [LowestGap(), AccuracyBudget(0.5), TargetGap(0.5)])
def test_broken_candidates_are_never_taken(rule: Any) -> None:
    # an edit that blew up has an infinite gap and no performance
    gap, performance = np.array([0.4, np.inf, 0.3]), np.array([0.8, 0.0, 0.7])
    assert rule.choose(gap, performance, before=0.8) != 1


@pytest.mark.parametrize("value", [-0.1, float("nan")])
def test_settings_are_checked_at_once(value: float) -> None:
    with pytest.raises(InvalidInputError, match=f"`budget` must be .* at least 0 .*got {value}"):
        AccuracyBudget(value)
    with pytest.raises(InvalidInputError, match=f"`gap` must be .* at least 0 .*got {value}"):
        TargetGap(value)


def test_rules_by_name() -> None:
    assert get_selection("lowest_gap") == LowestGap()
    rule = TargetGap(0.1)
    assert get_selection(rule) is rule


@pytest.mark.parametrize("rule", ["best", None, 3, TargetGap, LowestGap])
def test_unknown_rules(rule: Any) -> None:
    with pytest.raises(InvalidInputError, match="`selection` must be one of") as caught:
        get_selection(rule)
    for name in [*RULES, "a rule of choice, as in TargetGap(0.02)", repr(rule)]:
        assert name in str(caught.value)


def test_slack_trades_a_little_gap_for_performance() -> None:
    gap, performance = np.array([0.2, 0.0, 0.004, 0.03]), np.array([0.85, 0.80, 0.83, 0.84])
    assert LowestGap().choose(gap, performance, before=0.85) == 1
    assert LowestGap(slack=0.004).choose(gap, performance, before=0.85) == 2
    assert LowestGap(slack=0.05).choose(gap, performance, before=0.85) == 3
    with pytest.raises(
        InvalidInputError, match="`slack` must be a number, at least 0 and finite; got -1"
    ):
        LowestGap(slack=-1)
