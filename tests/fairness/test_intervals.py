"""Intervals of each group's rates, against scipy's and against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from fairij.fairness import audit, audit_regression
from fairij.fairness.audits import wilson


@pytest.mark.parametrize(("inside", "size"), [(0, 20), (3, 7), (20, 20), (150, 1000)])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_wilson_is_scipys(inside: int, size: int, confidence: float) -> None:
    low, high = wilson(np.array([inside / size]), np.array([float(size)]), confidence)
    expected = binomtest(inside, size).proportion_ci(confidence, method="wilson")
    np.testing.assert_allclose([low[0], high[0]], [expected.low, expected.high], atol=1e-12)


def test_a_rate_over_no_rows_is_unknown() -> None:
    low, high = wilson(np.array([0.0]), np.array([0.0]), 0.95)
    assert (low[0], high[0]) == (0.0, 1.0)


def test_every_rate_is_taken_over_its_own_rows() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
    group = rng.choice(["a", "b"], 300, p=[0.2, 0.8])
    found = audit(truth, predicted, sensitive_features=group).group_intervals
    for name in ("a", "b"):
        mine = group == name
        for rate, rows in (
            ("selection_rate", mine),
            ("true_positive_rate", mine & (truth == 1)),
            ("false_positive_rate", mine & (truth == 0)),
        ):
            inside, size = int(predicted[rows].sum()), int(rows.sum())
            expected = binomtest(inside, size).proportion_ci(method="wilson")
            value, low, high = found.loc[(name, rate)]
            np.testing.assert_allclose(
                [value, low, high], [inside / size, expected.low, expected.high], atol=1e-12
            )


def test_with_more_classes_each_has_its_rows() -> None:
    rng = np.random.default_rng(1)
    truth, predicted = rng.choice(list("xyz"), 400), rng.choice(list("xyz"), 400)
    group = rng.choice(["a", "b"], 400)
    found = audit(truth, predicted, sensitive_features=group).group_intervals
    rows = (group == "b") & (truth == "z")
    expected = binomtest(int((predicted[rows] == "z").sum()), int(rows.sum()))
    interval = expected.proportion_ci(method="wilson")
    value, low, high = found.loc[("b", "true_positive_rate[z]")]
    assert value == pytest.approx(expected.statistic)
    assert (low, high) == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_equal_weights_change_nothing_and_unequal_ones_widen() -> None:
    rng = np.random.default_rng(2)
    truth, predicted = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    group = rng.choice(["a", "b"], 200)
    few = {"sensitive_features": group, "n_resamples": 5}
    plain = audit(truth, predicted, **few).group_intervals
    alike = audit(truth, predicted, sample_weight=np.full(200, 3.0), **few).group_intervals
    np.testing.assert_allclose(plain, alike)
    weight = rng.exponential(size=200)
    uneven = audit(truth, predicted, sample_weight=weight, **few).group_intervals
    width = [frame["high"] - frame["low"] for frame in (plain, uneven)]
    assert (width[1] > width[0]).mean() > 0.7


def test_means_have_the_normal_interval() -> None:
    rng = np.random.default_rng(3)
    truth, predicted = rng.normal(size=90), rng.normal(size=90)
    group = np.repeat(["a", "b"], [30, 60])
    found = audit_regression(truth, predicted, sensitive_features=group, n_resamples=2)
    error = (predicted - truth)[:30]
    half = norm.ppf(0.975) * error.std(ddof=1) / np.sqrt(30)
    value, low, high = found.group_intervals.loc[("a", "mean_error")]
    np.testing.assert_allclose([value, low, high], error.mean() + np.array([0, -half, half]))
