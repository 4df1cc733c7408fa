"""The public check of constraints: everything in the table passes, what breaks a rule does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairij.fairness import CONSTRAINTS, GAPS, Constraint, Gap, check_constraint
from fairij.fairness.rates import RATES
from fairij.fairness.smooth import smooth_parts

PARITY = CONSTRAINTS["demographic_parity"]
ODDS = CONSTRAINTS["equalized_odds_balanced"]


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_every_constraint_of_the_table_keeps_the_rules(name: str) -> None:
    check_constraint(name)


@pytest.mark.parametrize("fold", ["worst_case", "mean", "sum"])
def test_so_does_a_gap_of_any_rates(fold: Any) -> None:
    for is_classification in (True, False):
        rates = tuple(r for r in RATES.values() if r.is_classification == is_classification)
        check_constraint(Gap("all of them", rates, fold, balanced=fold == "sum"))


def squared(outputs: Any, y: Any, groups: Any) -> Any:
    means = [outputs[groups == group].mean() for group in groups.unique()]
    return sum((mean - outputs.mean()) ** 2 for mean in means)


def test_so_does_a_function_of_the_user_s() -> None:
    check_constraint(squared)


def shifted(scores: Any, y: Any, groups: Any) -> Any:
    return PARITY.surrogate(scores, y, groups) + 0.1


def detached(scores: Any, y: Any, groups: Any) -> Any:
    return PARITY.surrogate(scores, y, groups) * (1 + scores.detach().mean())


def first_row(scores: Any, y: Any, groups: Any) -> Any:
    return PARITY.surrogate(scores, y, groups) * (1 + scores[0].sum())


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (replace(PARITY, name=""), "must have a name"),
        (replace(PARITY, surrogate=shifted), "'demographic_parity' must have a surrogate of 0 if"),
        (replace(PARITY, metric=lambda t: np.ones(len(t))), "must have a gap of 0 if all groups"),
        (replace(PARITY, surrogate=detached), "gradient like its finite differences"),
        (replace(PARITY, surrogate=first_row), "must not depend on the order of rows"),
        (replace(ODDS, parts=lambda *seen: ODDS.parts(*seen)[:1]), "finite differences"),
        (
            replace(ODDS, parts=lambda *s: smooth_parts(GAPS["equalized_odds"], *s) + 0.1),
            "parts that sum to its surrogate",
        ),
        (
            replace(PARITY, metric=lambda table: 2 * PARITY.metric(table)),
            "surrogate of hard predictions, .* like its gap",
        ),
        (
            replace(PARITY, name="equal_opportunity", rates=GAPS["equal_opportunity"].rates),
            "must have a gap like `equal_opportunity_difference`",
        ),
    ],
)
def test_a_broken_rule_is_named(broken: Constraint, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_constraint(broken)
