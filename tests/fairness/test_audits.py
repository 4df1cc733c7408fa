"""Audits: values are the metrics; `test_intervals.py` is about their intervals."""

from __future__ import annotations

from functools import partial
from typing import Any

import fairlearn.metrics as fairlearn
import numpy as np
import pandas as pd
import pytest

from fairij import fairness
from fairij.errors import InvalidInputError
from fairij.fairness import audit, audit_regression, bootstrap

METRICS = {
    "accuracy": fairness.accuracy,
    "balanced_accuracy": fairness.balanced_accuracy,
    "demographic_parity_difference": fairness.demographic_parity_difference,
    "equalized_odds_sum": fairness.equalized_odds_sum,
    "equalized_odds_difference": fairness.equalized_odds_difference,
    "equal_opportunity_difference": fairness.equal_opportunity_difference,
}


def draw(seed: int, *sizes: int, classes: int = 2) -> Any:
    """Labels, predictions that are right about 3 times of 4, and groups of these sizes."""
    rng = np.random.default_rng(seed)
    groups, n = np.repeat(np.arange(len(sizes)), sizes), sum(sizes)
    y_true = (rng.random(n) < 0.3 + 0.1 * groups).astype(int) * rng.integers(1, classes, size=n)
    y_pred = np.where(rng.random(n) < 0.75, y_true, rng.integers(classes, size=n))
    return y_true, y_pred, groups


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_groups_are_those_of_the_metrics(classes: int, weighted: bool) -> None:
    y_true, y_pred, groups = draw(0, 100, 60, 40, classes=classes)
    weight = {"sample_weight": np.linspace(0.1, 3, 200)} if weighted else {}
    result = audit(y_true, y_pred, sensitive_features=groups, **weight, n_resamples=20)
    assert list(result.metrics.index) == list(METRICS)
    for name, metric in METRICS.items():
        options = {} if "accuracy" in name else {"sensitive_features": groups}
        assert result[name] == pytest.approx(metric(y_true, y_pred, **options, **weight))
        assert result[name] > 0
    assert result.to_dict() == {name: result[name] for name in METRICS}
    rates = fairness.group_rates(y_true, y_pred, sensitive_features=groups, **weight)
    pd.testing.assert_frame_equal(result.by_group, rates)
    assert result.confidence == 0.95


@pytest.mark.slow
def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Selection rates 0.7 and 0.4: 80 % intervals of the gap hold 0.3 about 8 times of 10."""
    covered, width = [], []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        groups = rng.integers(2, size=200)
        y_pred = (rng.random(200) < np.where(groups == 0, 0.7, 0.4)).astype(int)
        y_true = rng.integers(2, size=200)
        result = audit(y_true, y_pred, sensitive_features=groups, confidence=0.8).metrics.loc[
            "demographic_parity_difference"
        ]
        assert result["low"] <= result["value"] <= result["high"]
        covered.append(result["low"] <= 0.3 <= result["high"])
        width.append(result["high"] - result["low"])
    assert 0.7 < np.mean(covered) < 0.9
    error = np.sqrt((0.7 * 0.3 + 0.4 * 0.6) / 100)
    assert np.mean(width) == pytest.approx(2 * 1.2816 * error, rel=0.05)


def test_regression_audit_by_hand() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b", "c"], [50, 30, 20])
    truth = rng.normal(size=100)
    predicted = truth + rng.normal(size=100) + np.repeat([0.0, 1.0, -1.0], [50, 30, 20])
    result = audit_regression(
        truth.tolist(), predicted[:, None], sensitive_features=groups, n_resamples=60
    )
    error = predicted - truth
    frame = pd.DataFrame({"g": groups, "p": predicted, "e": error, "s": error**2})
    means = frame.groupby("g").mean()
    assert result["mean_squared_error"] == pytest.approx(frame["s"].mean())
    assert result["mean_prediction_difference"] == pytest.approx(np.ptp(means["p"]))
    assert result["mean_error_difference"] == pytest.approx(np.ptp(means["e"]))
    assert result.by_group["count"].tolist() == [50, 30, 20]
    columns = ["mean_prediction", "mean_error", "mean_squared_error"]
    np.testing.assert_allclose(result.by_group[columns], means)


def fairlearn_metric(rate: Any, y_true: Any, y_pred: Any, *, sensitive_features: Any) -> float:
    frame = fairlearn.MetricFrame(
        metrics=rate, y_true=y_true, y_pred=y_pred, sensitive_features=sensitive_features
    )
    return float(frame.difference())


def test_bootstrap_of_a_metric_of_the_user_s() -> None:
    y_true, y_pred, codes = draw(4, 48, 32)
    groups = pd.Series(np.array(["f", "m"])[codes], index=np.arange(80)[::-1])

    def women_selected(y_true: Any, y_pred: Any, *, sensitive_features: Any) -> float:
        return float(y_pred[sensitive_features == "f"].mean())  # the groups as they were given

    value, low, high = bootstrap(
        women_selected, y_true, y_pred, sensitive_features=groups, n_resamples=500
    )
    share = y_pred[codes == 0]
    assert value == share.mean()
    error = np.sqrt(value * (1 - value) / len(share))
    assert (low, high) == pytest.approx((value - 1.96 * error, value + 1.96 * error), abs=0.03)

    def by_pandas(y_true: Any, y_pred: Any, *, sensitive_features: Any) -> float:
        columns = [sensitive_features["sex"], sensitive_features["old"]]
        return float(np.ptp(pd.Series(y_pred).groupby(columns).mean()))  # aligns by index

    two = pd.DataFrame({"sex": groups, "old": np.arange(80) % 2 == 1})
    metric = partial(fairlearn_metric, fairlearn.selection_rate)
    for given in (groups, two):
        options = {"sensitive_features": given, "n_resamples": 5}
        theirs = bootstrap(metric, y_true, y_pred, **options)
        ours = bootstrap(fairness.demographic_parity_difference, y_true, y_pred, **options)
        assert theirs == pytest.approx(ours)
        assert theirs[1] < theirs[2]
    assert bootstrap(by_pandas, y_true, y_pred, **options) == pytest.approx(ours)


def test_resamples_in_which_a_metric_is_undefined_are_left_out() -> None:
    y_true, y_pred, groups = [1] * 6, [1, 0, 0, 0, 0, 0], list("aaabbb")
    ratio = fairness.demographic_parity_ratio  # 0/0 if the one selected row is not drawn
    value, low, high = bootstrap(ratio, y_true, y_pred, sensitive_features=groups)
    assert (value, low, high) == (0.0, 0.0, 0.0)
    none = bootstrap(ratio, y_true, [0] * 6, sensitive_features=groups, n_resamples=3)
    assert np.isnan(none).all()


OK: dict[str, Any] = {
    "y_true": [0, 1, 0, 1],
    "y_pred": [0, 1, 1, 1],
    "sensitive_features": list("aabb"),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"confidence": 1.0}, r"`confidence` must lie between 0 and 1, got 1\.0"),
        ({"confidence": 0}, "`confidence` must lie between 0 and 1, got 0"),
        ({"confidence": 95}, "got 95"),
        ({"confidence": float("nan")}, "got nan"),
        (
            {"n_resamples": 0},
            "a whole number, at least 1 and at most 1000000, got 0",
        ),
        ({"y_true": []}, "`y_true` must be a non-empty vector"),
        ({"y_true": [0, 1, float("nan"), 1]}, "`y_true` must not hold missing"),
        ({"y_pred": [0, 1]}, "`y_pred` must have one row per data point: expected 4, got 2"),
        ({"sensitive_features": list("abb")}, "`sensitive_features` .* expected 4, got 3"),
        ({"sensitive_features": ["a", "b", None, "b"]}, "1 missing value"),
    ],
)
def test_what_cannot_be_audited_is_refused(change: dict[str, Any], message: str) -> None:
    own = partial(bootstrap, fairness.demographic_parity_difference)
    for function in (audit, audit_regression, own):
        with pytest.raises(InvalidInputError, match=message):
            function(**(OK | change))


def test_fractions_are_not_taken_for_labels() -> None:
    y, groups = [0, 1, 0, 1], ["a", "a", "b", "b"]
    with pytest.raises(InvalidInputError, match=r"`y_pred` must hold predicted labels, .* 0\.25"):
        fairness.audit(y, [0.25, 0.75, 1.5, 1.0], sensitive_features=groups)
    assert fairness.audit(y, [0.0, 1.0, 1.0, 1.0], sensitive_features=groups)["accuracy"] == 0.75


def test_a_wider_confidence_is_a_wider_interval_and_no_chance_takes_part() -> None:
    y_true, y_pred, groups = draw(3, 50, 30, 20)
    wide, narrow, other = (
        audit(y_true, y_pred, sensitive_features=groups, confidence=c, random_state=seed).metrics
        for c, seed in ((0.99, 0), (0.5, 0), (0.5, 1))
    )
    assert (wide["low"] <= narrow["low"]).all()
    assert (narrow["high"] < wide["high"]).all()
    pd.testing.assert_frame_equal(narrow, other)


def test_ratios_are_fairlearns() -> None:
    y_true, y_pred, groups = draw(0, 100, 60, 40)
    found = audit(y_true, y_pred, sensitive_features=groups)
    assert list(found.ratios.index) == [
        "demographic_parity_ratio",
        "equalized_odds_ratio",
        "equal_opportunity_ratio",
    ]
    for name in found.ratios.index:
        theirs = getattr(fairlearn, name)(y_true, y_pred, sensitive_features=groups)
        assert found[name] == pytest.approx(theirs)
        value, low, high = found.interval(name)
        assert 0 < low < value < high <= 1
    assert found["accuracy_parity_ratio"] < 1  # in `more`
    assert "accuracy_parity_ratio" in found


def test_a_group_where_nobody_is_selected_has_the_ratio_zero() -> None:
    y, groups = [0, 1] * 20, ["a"] * 20 + ["b"] * 20
    found = audit(y, [0] * 20 + [0, 1] * 10, sensitive_features=groups)
    value, low, high = found.interval("demographic_parity_ratio")
    assert (value, low) == (0, 0)
    assert 0 < high < 1
    nobody = audit(y, [0] * 40, sensitive_features=groups)
    assert np.isnan(nobody.interval("demographic_parity_ratio")).all()
