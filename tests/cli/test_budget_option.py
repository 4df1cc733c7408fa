"""`--budget NAME=NUMBER`, and the rule of choice that options ask for."""

from __future__ import annotations

from typing import Any

import pytest

from fairij import AccuracyBudget, Budget, LowestGap, TargetGap
from fairij.cli.fitting import make_mitigator
from fairij.cli.options import EditOptions
from fairij.errors import InvalidInputError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Budget()),
        ({"budget": ["auc=0.02"]}, Budget(auc=0.02)),
        ({"budget": ["balanced-accuracy = none", "target=0.05"]},
         Budget(balanced_accuracy=None, target=0.05)),
        ({"budget": ["prefer=brier", "confidence=0"]}, Budget(prefer="brier", confidence=0)),
        ({"slack": 0.0}, LowestGap()),
        ({"accuracy_budget": 0.01}, AccuracyBudget(0.01)),
        ({"target_gap": 0.1}, TargetGap(0.1)),
    ],
)  # fmt: skip
def test_options_ask_for_a_rule(given: dict[str, Any], expected: Any) -> None:
    assert make_mitigator(None, EditOptions(**given)).selection == expected


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"budget": ["speed=1"]}, r"--budget must be NAME=NUMBER with a name of accuracy, .*speed"),
        ({"budget": ["auc"]}, r"--budget must be NAME=NUMBER, as in auc=0.02, .*got 'auc'"),
        ({"budget": ["slack=none"]}, "or none for no limit; got 'slack=none'"),
        ({"budget": ["auc=-1"]}, "`auc` must be a number, at least 0"),
        ({"budget": ["auc=0.1"], "slack": 0.1}, "one rule; got --budget and --slack"),
    ],
)
def test_wrong_budgets(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        make_mitigator(None, EditOptions(**given))
