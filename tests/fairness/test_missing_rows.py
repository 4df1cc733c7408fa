"""Rates that do not exist: said, and never shown as a number."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fairij import fairness
from fairij.cli.console import audit_dict, plain
from fairij.cli.folder import audit_from_dict
from fairij.errors import InvalidInputError
from fairij.fairness import audit, audit_regression
from fairij.fairness.constraints import check_sizes
from fairij.fairness.metrics import METRICS

ODDS = ["equalized_odds_sum", "equalized_odds_difference", "equal_opportunity_difference"]


def table(positives_of_b: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group b has 30 rows, of which few are positive; everyone is predicted by chance."""
    rng = np.random.default_rng(4)
    groups = np.array(["a"] * 60 + ["b"] * 30)
    y = np.where(groups == "a", rng.integers(2, size=90), 0)
    y[60 : 60 + positives_of_b] = 1
    return y, rng.integers(2, size=90), groups


@pytest.mark.parametrize("weighted", [False, True])
def test_a_group_without_positive_rows_has_no_true_positive_rate(weighted: bool) -> None:
    y, predicted, groups = table(5 if weighted else 0)
    weight = np.where((groups == "b") & (y == 1), 0.0, 2.0) if weighted else None
    found = audit(y, predicted, sensitive_features=groups, sample_weight=weight, n_resamples=50)
    for name in ODDS:
        assert np.isnan(found.interval(name)).all()
    assert found["demographic_parity_difference"] > 0
    assert np.isnan(found.by_group.loc["b", "true_positive_rate"])
    assert found.group_intervals.loc[("b", "true_positive_rate")].isna().all()
    assert found.by_group.loc["a"].notna().all()
    said = " ".join(found.undefined)
    if weighted:
        assert "because all 5 rows of 'b' with label 1 have the weight 0." in said
    else:
        assert "true positive rates of 'b', because 'b' has no rows with label 1 (of 30)." in said
    assert "value: equalized odds gap (sum), equalized odds gap (worst case), equal opp" in said


def test_a_group_whose_weights_are_all_zero_has_no_rates() -> None:
    y, predicted, groups = table(5)
    weight = np.where(groups == "b", 0.0, 1.0)
    found = audit(y, predicted, sensitive_features=groups, sample_weight=weight, n_resamples=50)
    assert found.metrics["value"].drop(["accuracy", "balanced_accuracy"]).isna().all()
    assert found.by_group.loc["b"].drop("count").isna().all()
    assert "all 30 rows of 'b' have the weight 0" in " ".join(found.undefined)


def test_the_metric_functions_keep_fairlearns_convention() -> None:
    y, predicted, groups = table()
    assert fairness.equal_opportunity_difference(y, predicted, sensitive_features=groups) > 0
    rates = fairness.group_rates(y, predicted, sensitive_features=groups)
    assert np.isnan(rates.loc["b", "true_positive_rate"])


def test_few_rows_of_a_label_are_named() -> None:
    y, predicted, groups = table(2)
    found = audit(y, predicted, sensitive_features=groups)
    assert found.undefined == ()
    (note,) = found.notes
    positives = int(y[groups == "a"].sum())
    listed = [f"{n} of 'a' with label {c}" for c, n in enumerate((60 - positives, positives))]
    few = [text for text in listed if int(text.split()[0]) < 30]
    few += ["28 of 'b' with label 0", "2 of 'b' with label 1"]
    assert note.startswith(f"Few rows: {', '.join(few)}. Rates over fewer than 30 rows")
    value, low, high = found.interval("equal_opportunity_difference")
    assert low <= value <= high
    assert high - low > 0.5  # two rows tell next to nothing
    many = [np.tile(column, 20) for column in (y, predicted, groups)]
    assert audit(many[0], many[1], sensitive_features=many[2]).notes == ()


def test_a_class_that_a_group_lacks_is_named() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b"], 60)
    y = rng.integers(3, size=120)
    y[(groups == "b") & (y == 2)] = 0
    found = audit(y, rng.integers(3, size=120), sensitive_features=groups, n_resamples=50)
    assert "'b' has no rows with label 2 (of 60)" in " ".join(found.undefined)
    assert np.isnan(found["equal_opportunity_difference"])
    assert found["demographic_parity_difference"] > 0


def test_means_of_a_group_of_two_rows() -> None:
    rng = np.random.default_rng(0)
    y, predicted = rng.normal(size=40), rng.normal(size=40)
    groups = np.array(["a"] * 38 + ["b"] * 2)
    found = audit_regression(y, predicted, sensitive_features=groups)
    assert found.notes[0].startswith("Few rows: 2 of 'b'. Rates over fewer than 30 rows")
    assert found.metrics.notna().all().all()


def test_what_is_not_defined_survives_json() -> None:
    y, predicted, groups = table()
    found = audit(y, predicted, sensitive_features=groups, n_resamples=20)
    text = json.dumps(plain(audit_dict(found)), allow_nan=False)
    stored: Any = json.loads(text)
    assert stored["metrics"]["equal_opportunity_difference"] == dict.fromkeys(
        ("value", "low", "high")
    )
    again = audit_from_dict(stored)
    assert again.undefined == found.undefined
    pd.testing.assert_frame_equal(again.metrics, found.metrics)


@pytest.mark.parametrize("size", [7.0, 1e306, 1e-300, 5e-324])
def test_equal_weights_of_any_size_are_as_none(size: float) -> None:
    y, predicted, groups = table(15)
    asked = {"sensitive_features": groups, "n_resamples": 30}
    plain_one = audit(y, predicted, **asked)
    weighted = audit(y, predicted, sample_weight=np.full(90, size), **asked)
    pd.testing.assert_frame_equal(weighted.metrics, plain_one.metrics, check_exact=True)
    pd.testing.assert_frame_equal(weighted.by_group, plain_one.by_group, check_exact=True)


@pytest.mark.parametrize("size", [1e306, 1e-306])
def test_only_the_ratios_of_weights_count(size: float) -> None:
    y, predicted, groups = table(15)
    weight = np.random.default_rng(0).uniform(0.5, 3, 90)
    asked = {"sensitive_features": groups, "n_resamples": 30}
    small = audit(y, predicted, sample_weight=weight, **asked)
    large = audit(y, predicted, sample_weight=weight * size, **asked)
    pd.testing.assert_frame_equal(large.metrics, small.metrics, rtol=1e-12)
    for metric in METRICS.values():
        if "mean_prediction" in metric.__name__ or "mean_error" in metric.__name__:
            values = (y * 1.0, predicted * 1.0)
        else:
            values = (y, predicted)
        options = {"sensitive_features": groups}
        assert metric(*values, sample_weight=weight * size, **options) == pytest.approx(
            metric(*values, sample_weight=weight, **options), rel=1e-12
        )


def test_an_edit_refuses_a_group_whose_validation_weights_are_all_zero() -> None:
    """Not a gap of 0.0000, however many rows the group has."""
    y, predicted, groups = table(5)
    encoded = fairness.encode_groups(groups).weighted(np.where(groups == "b", 0.0, 1.0))
    for name in ("demographic_parity", "equal_opportunity", "predictive_parity"):
        constraint = fairness.get_constraint(name)
        with pytest.raises(InvalidInputError, match=r"of a weight above 0.*found 0 of 'b"):
            check_sizes(constraint, y, np.array([0, 1]), encoded, None, predicted)
