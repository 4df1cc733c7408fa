"""Intervals of rates, gaps and ratios, against other formulas and against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, t

from fairij.fairness import audit, audit_regression
from fairij.fairness.intervals import Compared, smallest_ratio, wilson


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


def test_means_have_students_interval() -> None:
    rng = np.random.default_rng(3)
    truth, predicted = rng.normal(size=90), rng.normal(size=90)
    group = np.repeat(["a", "b"], [30, 60])
    found = audit_regression(truth, predicted, sensitive_features=group, n_resamples=2)
    error = (predicted - truth)[:30]
    half = t.ppf(0.975, 29) * error.std(ddof=1) / np.sqrt(30)
    value, low, high = found.group_intervals.loc[("a", "mean_error")]
    np.testing.assert_allclose([value, low, high], error.mean() + np.array([0, -half, half]))


def newcombe(k: tuple[int, int], n: tuple[int, int]) -> tuple[float, float, float]:
    """Newcombe's hybrid score interval of a difference (1998, method 10), by hand."""
    p, q = (a / b for a, b in zip(k, n, strict=True))
    (l1, u1), (l2, u2) = (
        binomtest(a, b).proportion_ci(method="wilson") for a, b in zip(k, n, strict=True)
    )
    return (
        p - q,
        p - q - np.hypot(p - l1, u2 - q),
        p - q + np.hypot(u1 - p, q - l2),
    )


@pytest.mark.parametrize("k", [(0, 170), (12, 100), (9, 20), (5, 160)])
def test_the_gap_of_two_groups_has_newcombes_interval(k: tuple[int, int]) -> None:
    n = (12, 400)
    rates, sizes = np.array([[k[0] / 12], [k[1] / 400]]), np.array([[12.0], [400.0]])
    value, low, high = newcombe(k, n)
    if value < 0:
        value, low, high = -value, -high, -low
    expected = (max(low, 0.0), max(high, -low))  # of the size of the difference
    found = Compared.shares(rates, sizes).gap("worst_case", 0.95)
    assert found == pytest.approx(expected)


def test_no_positive_predicted_among_twelve_is_no_certainty() -> None:
    """Resampling twelve rows of which none is predicted gives the same zero each time."""
    y = np.ones(12 + 400, dtype=int)
    predicted = np.r_[np.zeros(12), np.ones(170), np.zeros(230)].astype(int)
    groups = ["few"] * 12 + ["many"] * 400
    value, low, high = audit(y, predicted, sensitive_features=groups).interval(
        "equal_opportunity_difference"
    )
    assert value == pytest.approx(0.425)
    assert low < 0.2
    assert high < 0.48


CASES = [  # rates and rows of each group and comparison
    ([[0.1], [0.5]], [[12], [400]]),
    ([[0.3], [0.3]], [[12], [400]]),
    ([[0.02], [0.05]], [[40], [400]]),
    ([[0.95], [0.6]], [[40], [400]]),
    ([[0.3], [0.3], [0.3], [0.5]], [[40], [100], [400], [200]]),
    ([[0.1, 0.05], [0.5, 0.2]], [[12, 20], [133, 400]]),
    ([[0.5, 0.1], [0.5, 0.1]], [[20, 40], [133, 400]]),
]


@pytest.mark.parametrize(("rates", "rows"), CASES)
@pytest.mark.parametrize("fold", ["worst_case", "sum", "mean"])
def test_gaps_are_covered_as_often_as_is_said(rates: list, rows: list, fold: str) -> None:
    rng = np.random.default_rng(len(rates) + rows[0][0])
    truth, sizes = np.array(rates), np.array(rows, dtype=float)
    apart = np.ptp(truth, axis=0)
    gap = {"worst_case": apart.max(), "sum": apart.sum(), "mean": apart.mean()}[fold]
    seen = rng.binomial(sizes.astype(int), truth, (3000, *truth.shape)) / sizes
    low, high = Compared.shares(seen, np.broadcast_to(sizes, seen.shape)).gap(fold, 0.95)
    assert ((low <= gap) & (gap <= high)).mean() > 0.935
    ratio = (truth.min(0) / truth.max(0)).min()
    low, high = smallest_ratio(seen, np.broadcast_to(sizes, seen.shape), 0.95)
    assert ((low <= ratio) & (ratio <= high)).mean() > 0.935


def test_a_mean_of_one_row_is_not_known() -> None:
    found = Compared.means(np.zeros((2, 1)), np.ones((2, 1)), np.array([[1.0], [9.0]]))
    assert found.gap("worst_case", 0.95) == (0.0, np.inf)


def test_eighty_groups_of_one_rate_show_no_gap() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(80, size=8000)
    y, predicted = rng.integers(2, size=(2, 8000))
    found = audit(y, predicted, sensitive_features=groups)
    for name in ("demographic_parity_difference", "equalized_odds_sum"):
        value, low, high = found.interval(name)
        assert low == 0 < value < high
