"""Rules of choice against loops over all candidates."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairij import AccuracyBudget, Budget, LowestGap, TargetGap, pareto_front
from fairij.errors import InvalidInputError
from fairij.method.preparation import check_measures, get_selection
from fairij.method.rules import RULES
from fairij.models.losses import get_loss

# few distinct values, so that ties are common
values = st.sampled_from([0.0, 0.1, 0.2, 0.30000000000000004, 0.3, 0.5, 0.75, 1.0])
candidates = st.lists(
    st.tuples(st.one_of(values, st.just(np.inf)), values), min_size=1, max_size=12
)


def columns(rows: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    gap, performance = np.array(rows, dtype=float).T
    return gap, performance


def named(gap: Any, accuracy: Any, **others: Any) -> dict[str, np.ndarray]:
    """Measures of candidates as rules take them."""
    given = {"gap": gap, "accuracy": accuracy, **others}
    return {name: np.asarray(values, dtype=float) for name, values in given.items()}


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
    chosen = LowestGap().choose(named(*columns(rows)))
    best = min(gap for gap, _ in rows)
    assert rows[chosen] == (best, max(p for gap, p in rows if gap == best))
    assert chosen == rows.index(rows[chosen])  # the first of equals: the fewest rows dropped


@given(candidates, st.sampled_from([0.0, 0.1, 0.2, 0.25, 2.0]))
def test_accuracy_budget(rows: list[tuple[float, float]], budget: float) -> None:
    before = rows[0][1]
    chosen = AccuracyBudget(budget).choose(named(*columns(rows)))
    allowed = [row for row in rows if row[1] >= before - budget - 1e-9]
    assert rows[chosen] in allowed
    best = min(gap for gap, _ in allowed)
    assert rows[chosen] == (best, max(p for gap, p in allowed if gap == best))


@given(candidates, values)
def test_target_gap(rows: list[tuple[float, float]], target: float) -> None:
    reached = [row for row in rows if row[0] <= target + 1e-9]
    rule = TargetGap(target)
    if not reached:
        chosen = rule.choose(named(*columns(rows)))
        assert "No candidate reaches" in str(rule.shortfall(rows[chosen][0]))
        assert chosen == LowestGap().choose(named(*columns(rows)))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = rule.choose(named(*columns(rows)))
    best = max(p for _, p in reached)
    assert rows[chosen] == (min(gap for gap, p in reached if p == best), best)


def test_a_budget_met_exactly_is_met() -> None:
    # 0.8 - 0.1 is 0.7000000000000001
    gap, accuracy = np.array([0.4, 0.1]), np.array([0.8, 0.7])
    assert AccuracyBudget(0.1).choose(named(gap, accuracy)) == 1
    # 0.8 - 0.7 is 0.10000000000000009
    assert TargetGap(0.1).choose(named([0.4, 0.8 - 0.7], accuracy)) == 1


def test_target_out_of_reach_says_how_near_it_came() -> None:
    assert TargetGap(0.05).choose(named([0.4, 0.1], [0.8, 0.7])) == 1
    message = TargetGap(0.05).shortfall(0.1)
    assert message is not None
    assert "gap of 0.05; the lowest, 0.1000, is taken. A wider search" in message
    assert TargetGap(0.05).shortfall(0.05) is None


@pytest.mark.parametrize("rule", [LowestGap(), AccuracyBudget(0.5), TargetGap(0.5)])
def test_broken_candidates_are_never_taken(rule: Any) -> None:
    # an edit that blew up has an infinite gap and no performance
    gap, performance = np.array([0.4, np.inf, 0.3]), np.array([0.8, 0.0, 0.7])
    assert rule.choose(named(gap, performance)) != 1


@pytest.mark.parametrize("value", [-0.1, float("nan")])
def test_settings_are_checked_at_once(value: float) -> None:
    with pytest.raises(InvalidInputError, match=f"`budget` must be .* at least 0 .*got {value}"):
        AccuracyBudget(value)
    with pytest.raises(InvalidInputError, match=f"`gap` must be .* at least 0 .*got {value}"):
        TargetGap(value)


def test_rules_by_name() -> None:
    assert get_selection("budget") == Budget()
    assert get_selection("lowest_gap") == LowestGap()
    rule = TargetGap(0.1)
    assert get_selection(rule) is rule


@pytest.mark.parametrize("rule", ["best", None, 3, TargetGap, LowestGap])
def test_unknown_rules(rule: Any) -> None:
    with pytest.raises(InvalidInputError, match="`selection` must be one of") as caught:
        get_selection(rule)
    for name in [*RULES, "a rule of choice, as in Budget(auc=0.02)", repr(rule)]:
        assert name in str(caught.value)


def test_slack_trades_a_little_gap_for_performance() -> None:
    gap, performance = np.array([0.2, 0.0, 0.004, 0.03]), np.array([0.85, 0.80, 0.83, 0.84])
    assert LowestGap().choose(named(gap, performance)) == 1
    assert LowestGap(slack=0.004).choose(named(gap, performance)) == 2
    assert LowestGap(slack=0.05).choose(named(gap, performance)) == 3
    with pytest.raises(
        InvalidInputError, match="`slack` must be a number, at least 0 and finite; got -1"
    ):
        LowestGap(slack=-1)


# --- budgets ------------------------------------------------------------------------------------


def four(**changes: Any) -> dict[str, np.ndarray]:
    """The unedited model, then edits of ever smaller gaps."""
    given = {
        "gap": [0.2, 0.1, 0.05, 0.0],
        "gap_error": [0.02] * 4,
        "gap_p": [0.0, 0.0, 0.2, 1.0],
        "accuracy": [0.85, 0.84, 0.83, 0.83],
        "balanced_accuracy": [0.75, 0.74, 0.73, 0.72],
        "auc": [0.9, 0.89, 0.88, 0.88],
        "log_loss": [0.35, 0.36, 0.37, 0.38],
        "rarest_class": [0.8, 0.8, 0.7, 0.6],
    }
    return named(**(given | changes))


def test_the_default_takes_the_smallest_gap_that_costs_little() -> None:
    assert Budget().choose(four()) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"accuracy": [0.85, 0.84, 0.83, 0.81]},
        {"balanced_accuracy": [0.75, 0.74, 0.73, 0.66]},
        {"auc": [0.9, 0.89, 0.88, 0.86]},
        {"auc": [0.9, 0.89, 0.88, np.nan]},
        {"auc_error": [0, 0.005, 0.005, 0.016]},  # 0.88 may be 0.864
        {"group_auc": [0.9, 0.89, 0.88, 0.8], "group_auc_error": [0, 0.01, 0.01, 0.02]},
        {"rarest_class": [0.8, 0.8, 0.7, 0.39]},  # a class is hardly ever predicted
        {"rarest_class": [4.0, 2.0, 1.0, 0.4]},  # it was predicted too often before
    ],
)
def test_a_budget_keeps_the_default_from_what_costs_too_much(changes: dict[str, Any]) -> None:
    assert Budget().choose(four(**changes)) == 2
    assert LowestGap().choose(four(**changes)) == 3


def test_noise_of_the_auc_counts_as_asked() -> None:
    few = four(auc_error=[0, 0.005, 0.005, 0.016])
    assert Budget(auc_errors=0).choose(few) == 3
    assert Budget(auc=None).choose(few) == 3
    by_group = {"group_auc": [0.9, 0.89, 0.88, 0.8]}
    assert Budget().choose(four(**by_group, group_auc_error=[0, 0.01, 0.01, 0.08])) == 3  # may be
    assert Budget().choose(four(**by_group)) == 3  # nothing is known of its error
    as_measured = four(auc=[0.9] * 4, auc_error=[0] * 4, **by_group, group_auc_error=[0.08] * 4)
    assert Budget.only(auc=0.03).choose(as_measured) == 3  # nothing but what is named
    assert Budget(auc=0.03, auc_errors=0.1).choose(as_measured) == 2
    with pytest.raises(InvalidInputError, match="`auc_errors` must be"):
        Budget(auc_errors=-1)


def test_a_measure_that_the_model_as_it_is_lacks_limits_nothing() -> None:
    assert Budget().choose(four(auc=[np.nan] * 4)) == 3


def test_gaps_within_half_a_standard_error_count_as_equal() -> None:
    candidates = four(gap=[0.2, 0.1, 0.009, 0.0])
    assert Budget().choose(candidates) == 2  # less log loss
    assert Budget(errors=0).choose(candidates) == 3
    assert Budget(errors=0, slack=0.01).choose(candidates) == 2
    assert Budget(prefer="accuracy", errors=6).choose(candidates) == 1


def test_a_model_whose_gap_may_be_chance_stays_as_it_is() -> None:
    candidates = four(gap_p=[0.06, 0, 0, 0])
    assert Budget().choose(candidates) == 0
    said = str(Budget().remark(candidates, 0))
    assert "The gap of the model as it is, 0.2000, cannot be told from zero" in said
    assert "as clear in 6 of 100 cases" in said
    assert Budget(confidence=0.9).choose(candidates) == 3
    assert Budget(confidence=0).choose(candidates) == 3
    assert Budget().remark(four(), 3) is None
    unknown = four(gap_p=[np.nan] * 4, gap_error=[np.nan] * 4)  # of a gap of one's own
    assert Budget().choose(unknown) == 3


def test_edits_that_all_cost_too_much_are_named() -> None:
    candidates = four(auc=[0.9, 0.8, 0.8, 0.8])
    assert Budget().choose(candidates) == 0
    assert "Every edit costs more than the budgets allow" in str(Budget().remark(candidates, 0))


def test_a_model_that_is_returned_unchanged_always_says_why() -> None:
    # one edit is allowed, but its gap is larger; all with a smaller gap cost too much
    some = four(gap=[0.2, 0.25, 0.1, 0.0], auc=[0.9, 0.9, 0.8, 0.8])
    assert Budget().choose(some) == 0
    assert "Every edit with a smaller gap costs more than" in str(Budget().remark(some, 0))
    worse = four(gap=[0.2, 0.25, 0.3, 0.4])
    assert Budget().choose(worse) == 0
    assert "No edit that was tried made the gap smaller" in str(Budget().remark(worse, 0))
    slightly = four(gap=[0.2, 0.199, 0.3, 0.4])  # within the error of the gap
    assert Budget(errors=1).choose(slightly) == 0
    assert "makes the gap clearly smaller" in str(Budget(errors=1).remark(slightly, 0))


def test_a_target_is_enough() -> None:
    assert Budget(target=0.1).choose(four()) == 1
    assert Budget(target=0.1).shortfall(0.1) is None
    beyond = Budget(target=0.01, accuracy=0.01)
    assert beyond.choose(four()) == 1
    assert "No candidate reaches a validation gap of 0.01" in str(beyond.shortfall(0.1))


def test_measures_that_fall_when_they_get_better() -> None:
    assert Budget.only(log_loss=0.02).choose(four()) == 2
    assert Budget.only(log_loss=0.02, prefer="log_loss").choose(four()) == 2
    assert Budget.only().choose(four()) == LowestGap().choose(four())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"auc": -0.1}, "`auc` must be"),
        ({"slack": None}, "`slack` must be"),
        ({"confidence": 1.0}, "`confidence` must be"),
        ({"prefer": "speed"}, "`prefer` must be one of"),
    ],
)
def test_budgets_are_checked(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        Budget(**settings)


@pytest.mark.parametrize(("rule", "of_classes"), [(Budget(r2=0.1), True), (Budget(auc=0.1), False)])
def test_a_budget_on_what_the_task_does_not_have(rule: Budget, of_classes: bool) -> None:
    losses = get_loss("binary_cross_entropy"), get_loss("squared_error")
    wrong, right = losses if of_classes else losses[::-1]
    check_measures(rule, right)
    check_measures(Budget(), wrong)
    with pytest.raises(InvalidInputError, match="`selection` must look at measures of"):
        check_measures(rule, wrong)
