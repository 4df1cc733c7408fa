"""Gates: a limit is kept only if it was measured, and is within its bound."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from fairij import Audit, audit
from fairij.errors import InvalidInputError
from fairij.fairness import audit_regression, gate


def of_rates(first: int, second: int, size: int = 1000) -> Audit:
    """Two groups of which so many rows are selected; half of them are positive."""
    y_pred = np.concatenate([np.arange(size) < first, np.arange(size) < second]).astype(int)
    y_true = np.tile([0, 1], size)
    return audit(y_true, y_pred, sensitive_features=np.repeat(["a", "b"], size))


@pytest.mark.parametrize(
    ("found", "limits", "outcomes"),
    [
        (of_rates(300, 500), {"max_gap": 0.1}, ["broken"]),
        (of_rates(300, 500), {"max_gap": 0.2}, ["kept"]),  # exactly at its limit
        (of_rates(300, 500), {"max_gap": {"demographic_parity": 0.3}}, ["kept"]),
        (of_rates(300, 500), {"max_gap": 0.19, "certain": True}, ["kept"]),
        (of_rates(300, 500), {"max_gap": 0.1, "certain": True}, ["broken"]),
        (of_rates(300, 500), {"min_ratio": 0.8}, ["broken"]),
        (of_rates(300, 500), {"min_ratio": 0.6}, ["kept"]),
        (of_rates(300, 500), {"min_ratio": 0.62, "certain": True}, ["kept"]),
        (of_rates(300, 500), {"min_ratio": 0.8, "certain": True}, ["broken"]),
        (of_rates(300, 500), {"min_ratio": {"disparate_impact": 0.8}}, ["broken"]),
        (of_rates(300, 500), {"max_gap": {"tpr": 0.1, "fpr": 0.3}}, ["broken", "kept"]),
        (of_rates(300, 500), {"max_gap": 0.3, "min_ratio": 0.8}, ["kept", "broken"]),
        (of_rates(300, 500), {"max_gap": {"worst_group_error": 0.6}}, ["kept"]),
        # a wide interval of few rows is never a reason to pass
        (of_rates(5, 15, 20), {"max_gap": 0.1, "certain": True}, ["not measured"]),
        (of_rates(5, 15, 20), {"max_gap": 0.1, "min_rows": 20}, ["broken"]),
        (of_rates(20, 20, 50), {"max_gap": {"equal_opportunity": 0.5}}, ["not measured"]),
        (of_rates(20, 20, 50), {"max_gap": {"equal_opportunity": 0.5}, "min_rows": 25}, ["kept"]),
        (of_rates(0, 40), {"max_gap": {"predictive_parity": 1.0}}, ["not measured"]),
        (of_rates(0, 0), {"min_ratio": 0.8}, ["not measured"]),  # nobody is selected anywhere
    ],
)
def test_a_limit_is_kept_broken_or_not_measured(
    found: Audit, limits: dict[str, Any], outcomes: list[str]
) -> None:
    made = gate(found, **limits)
    assert [one.outcome for one in made.judged] == outcomes
    assert made.passed == (set(outcomes) == {"kept"})
    assert json.loads(json.dumps(made.to_dict()))["passed"] == made.passed
    assert ("passed" if made.passed else "failed") in made.text


def test_a_group_without_positives_fails_and_is_named() -> None:
    y_true = np.array([0, 1] * 100 + [0] * 100)
    found = audit(y_true, y_true, sensitive_features=["a"] * 200 + ["b"] * 100)
    (one,) = gate(found, max_gap={"equal_opportunity": 1.0}).judged
    assert one.outcome == "not measured"
    assert "'b' has no rows with label 1" in one.text


def test_a_group_that_is_gone_fails() -> None:
    assert gate(of_rates(300, 300), max_gap=0.1, require_groups=["a"]).passed
    made = gate(of_rates(300, 300), max_gap=0.1, require_groups=["a", "c"])
    assert (made.passed, made.lacking) == (False, ("c",))
    assert "Required groups without rows: c." in made.text


def test_weights_that_leave_few_rows_are_too_few() -> None:
    y, weight = np.tile([0, 1], 200), np.where(np.arange(400) % 40 == 0, 1.0, 1e-9)
    found = audit(y, y, sensitive_features=np.repeat(["a", "b"], 200), sample_weight=weight)
    (one,) = gate(found, max_gap=0.5).judged
    assert (one.outcome, "a has 5, b has 5" in one.text) == ("not measured", True)


def test_regression_has_gates_of_means() -> None:
    y = np.arange(200.0)
    found = audit_regression(y, y + (y > 99), sensitive_features=np.repeat(["a", "b"], 100))
    made = gate(found, max_gap={"mean_error": 0.5, "mean_prediction": 200})
    assert [one.outcome for one in made.judged] == ["broken", "kept"]


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({}, "`max_gap` or `min_ratio` must be given: a gate without a limit would pass"),
        ({"max_gap": {}}, "`max_gap` or `min_ratio` must be given"),
        ({"max_gap": {"equal_oportunity": 0.1}}, "`max_gap` must name constraints"),
        ({"max_gap": {"mean_error": 0.1}}, "does not measure mean_error: choose one of demogr"),
        ({"max_gap": {"worst_group_loss": 0.1}}, "does not measure worst_group_loss"),
        ({"min_ratio": {"mean_error": 0.1}}, "does not measure mean_error"),
        ({"max_gap": -0.1}, "must be a number of at least 0, as 0.05; got -0.1"),
        ({"max_gap": "0.1"}, "got '0.1'"),
        ({"max_gap": True}, "got True"),
        ({"max_gap": np.nan}, "got nan"),
        ({"min_ratio": 80}, "must be above 0 and at most 1, as 0.8; got 80"),
        ({"min_ratio": 0}, "must be above 0 and at most 1, as 0.8; got 0"),
        ({"max_gap": 0.1, "min_rows": 0}, "`min_rows` must be a whole number of at least 1, got 0"),
        ({"max_gap": 0.1, "min_rows": 1.5}, "`min_rows`"),
    ],
)
def test_bad_limits_are_refused(limits: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(says)):
        gate(of_rates(300, 500), **limits)
