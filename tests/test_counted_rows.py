"""Validation rows that count more or less, have no group, or have chances of groups.

References: rows that are repeated, rows that are left out, and fairlearn.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame, equalized_odds_difference, selection_rate
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from biased import Problem, problem
from fairij import FairIJ, Grid, GroupChances, TopShare, audit
from fairij.errors import FairIJWarning, InvalidInputError

DATA = problem(n=300, n_val=500)
N = len(DATA.y_val)
MODEL = LogisticRegression().fit(DATA.X, DATA.y)
TIMES = np.random.default_rng(3).integers(1, 4, N)
AGAIN = np.repeat(np.arange(N), TIMES)  # every row as often as it counts
LOST = np.random.default_rng(4).random(N) < 0.2
GRID = Grid(points=4, scales=(1.0, 5.0))
MEASURES = ["gap", "accuracy", "balanced_accuracy", "auc", "log_loss", "brier", "calibration_error"]


def fit(data: Problem = DATA, model: Any = MODEL, search: Any = GRID, **given: Any) -> FairIJ:
    names = ("missing_groups", "threshold", "constraints", "validation_use", "holdout_fraction")
    settings = {name: given.pop(name) for name in names if name in given}
    fair = FairIJ(model, search=search, selection="lowest_gap", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        return data.fit(fair, **given)


def repeated(groups: Any) -> dict[str, Any]:
    rows = {"X_val": DATA.X_val, "y_val": DATA.y_val, "sensitive_features_val": groups}
    return {name: values[AGAIN] for name, values in rows.items()}


def assert_same(one: FairIJ, other: FairIJ, near: float = 1e-6) -> None:
    size = np.ptp(one.influence_)
    assert np.allclose(one.influence_, other.influence_, atol=max(1e-5, near) * size)
    for name in ["scale", *MEASURES]:  # scores are counted in levels, so near ones may part
        atol = max(near, 5e-4 if name in ("auc", "calibration_error") else 0)
        values = (fair.candidates_[name].to_numpy() for fair in (one, other))
        assert np.allclose(*values, rtol=near, atol=atol), name
    if near > 1e-6:
        return
    for name in one.before_.metrics.index:
        for when in ("before_", "after_"):
            assert getattr(one, when)[name] == pytest.approx(getattr(other, when)[name], abs=1e-9)


@pytest.mark.parametrize(
    ("groups", "settings"),
    [
        (DATA.sex_val, {}),
        (DATA.race_val, {"constraints": "equalized_odds"}),
        (DATA.sex_val, {"threshold": TopShare(0.2)}),
        (DATA.sex_val, {"search": "constrained"}),
    ],
)
def test_a_row_that_counts_twice_is_as_two_rows(groups: Any, settings: dict[str, Any]) -> None:
    weighed = fit(sensitive_features_val=groups, sample_weight_val=7.0 * TIMES, **settings)
    near = 3e-3 if "search" in settings else 1e-6  # many steps, and a decision that is close
    assert_same(weighed, fit(**repeated(groups), **settings), near)


def test_weights_make_gaps_less_sure() -> None:
    """Kish: the standard error of a mean grows by ``sqrt(n sum w^2) / sum w``."""
    plain, weighed = fit(), fit(sample_weight_val=TIMES)
    again = fit(**repeated(DATA.sex_val))
    first = [fair.candidates_["gap_error"][0] for fair in (plain, weighed, again)]
    assert first[2] < first[0] < first[1] < 1.3 * first[0]
    one, two = (fair.honest_gap_ for fair in (weighed, again))
    assert one.high - one.low > two.high - two.low
    assert one.expected == pytest.approx(two.expected, abs=0.01)


def test_weighted_metrics_are_those_of_fairlearn_and_scikit_learn() -> None:
    fair = fit(sample_weight_val=TIMES, constraints="equalized_odds_worst_case")
    p = MODEL.predict_proba(DATA.X_val)[:, 1]
    for model, found in ((MODEL, fair.before_), (fair.estimator_, fair.after_)):
        given = {
            "sensitive_features": DATA.sex_val,
            "sample_weight": TIMES,
        }
        gap = equalized_odds_difference(DATA.y_val, model.predict(DATA.X_val), **given)
        assert found["equalized_odds_difference"] == pytest.approx(gap, abs=1e-12)
    frame = MetricFrame(
        metrics=selection_rate,
        y_true=DATA.y_val,
        y_pred=MODEL.predict(DATA.X_val),
        sensitive_features=DATA.sex_val,
        sample_params={"sample_weight": TIMES},
    )
    rates = fair.before_.by_group["selection_rate"]
    assert rates.to_dict() == pytest.approx(frame.by_group.to_dict())
    first = fair.candidates_.iloc[0]
    own = {"sample_weight": TIMES}
    assert first["auc"] == pytest.approx(roc_auc_score(DATA.y_val, p, **own), abs=2e-4)
    assert first["log_loss"] == pytest.approx(log_loss(DATA.y_val, p, **own), rel=1e-5)
    assert first["brier"] == pytest.approx(brier_score_loss(DATA.y_val, p, **own), rel=1e-5)


def without(values: np.ndarray, lost: np.ndarray = LOST) -> np.ndarray:
    found = values.astype(object)
    found[lost] = None
    return found


@pytest.mark.parametrize("settings", [{}, {"search": "constrained"}, {"threshold": 0.3}])
def test_rows_without_a_group_take_no_part_in_gaps(settings: dict[str, Any]) -> None:
    given = {"sensitive_features_val": without(DATA.sex_val), "missing_groups": "ignore"}
    fair = fit(**given, **settings)
    rows = {"X_val": DATA.X_val, "y_val": DATA.y_val, "sensitive_features_val": DATA.sex_val}
    known = fit(**{name: values[~LOST] for name, values in rows.items()}, **settings)
    if "search" not in settings:
        assert np.allclose(fair.influence_, known.influence_, rtol=1e-4, atol=1e-9)
    assert fair.candidates_["gap"][0] == pytest.approx(known.candidates_["gap"][0])
    cut = settings.get("threshold", 0.5)
    right = (fair.estimator_.predict_proba(DATA.X_val)[:, 1] >= cut) == DATA.y_val
    assert fair.after_["accuracy"] == pytest.approx(np.mean(right))
    assert fair.after_.by_group["count"].sum() == (~LOST).sum()
    assert fair.honest_gap_.expected > 0


@pytest.mark.parametrize("validation", ["split", "cross_fit"])
def test_folds_take_all_of_it(validation: str) -> None:
    chances = np.full((N, 2), 0.1)
    chances[np.arange(N), (DATA.sex_val == "m").astype(int)] = 0.9
    chances[LOST] = np.nan
    for groups in (without(DATA.sex_val), GroupChances(chances, ["f", "m"])):
        given = {"sensitive_features_val": groups, "missing_groups": "ignore"}
        held = {"holdout_fraction": 0.3, "validation_use": validation}
        fair = fit(**given, **held, sample_weight_val=TIMES)
        assert (
            fair.after_["demographic_parity_difference"]
            < (fair.before_["demographic_parity_difference"])
        )
        assert 0 < fair.holdout_before_["accuracy"] < 1


def test_three_groups_of_which_some_are_missing_are_ranked_as_known_ones() -> None:
    lost = without(DATA.race_val)
    fair = fit(sensitive_features_val=lost, missing_groups="ignore")
    rows = {"X_val": DATA.X_val, "y_val": DATA.y_val, "sensitive_features_val": DATA.race_val}
    known = fit(**{name: values[~LOST] for name, values in rows.items()})
    assert np.allclose(fair.joint_influence_, known.joint_influence_, rtol=1e-3, atol=1e-8)


def test_chances_of_one_are_groups_and_others_are_shares_of_rows() -> None:
    """A row with chances counts as rows of each group whose weights are the chances."""
    sure = pd.DataFrame({"f": DATA.sex_val == "f", "m": DATA.sex_val == "m"}).astype(float)
    assert_same(fit(sensitive_features_val=GroupChances(sure)), fit())
    vague = 0.6 * sure + 0.4 * sure.mean()
    expanded = {
        "X_val": np.concatenate([DATA.X_val] * 2),
        "y_val": np.concatenate([DATA.y_val] * 2),
        "sensitive_features_val": np.repeat(["f", "m"], N),
        "sample_weight_val": np.concatenate([vague["f"], vague["m"]]),
    }
    for settings in ({}, {"constraints": "equalized_odds"}, {"threshold": TopShare(0.3)}):
        found = fit(sensitive_features_val=GroupChances(vague), **settings)
        assert_same(found, fit(**expanded, **settings))
        assert found.honest_gap_ is None
    assert (
        fit(sensitive_features_val=GroupChances(vague), search="constrained").after_[
            "demographic_parity_difference"
        ]
        < 0.2
    )


def test_what_counts_is_told() -> None:
    half = np.full((N, 2), 0.5)
    half[:100] = [0.9, 0.1]
    for groups, said in (
        (without(DATA.sex_val), f"{LOST.sum()} of {N} rows have no group"),
        (GroupChances(half, ["f", "m"]), "such proxies are biased"),
    ):
        fair = FairIJ(MODEL, missing_groups="ignore", search=GRID)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            DATA.fit(fair, sensitive_features_val=groups)
        assert any(said in str(one.message) for one in found)


def test_audits_take_the_same() -> None:
    predicted, truth = MODEL.predict(DATA.X_val), DATA.y_val
    found = audit(
        truth, predicted, sensitive_features=without(DATA.sex_val), missing_groups="ignore"
    )
    known = audit(truth[~LOST], predicted[~LOST], sensitive_features=DATA.sex_val[~LOST])
    gap = "demographic_parity_difference"
    assert found[gap] == known[gap]
    assert found["accuracy"] == np.mean(truth == predicted)
    assert "have no group" in found.notes[-1]
    sure = pd.DataFrame({"f": DATA.sex_val == "f", "m": DATA.sex_val == "m"}).astype(float)
    plain = audit(truth, predicted, sensitive_features=DATA.sex_val)
    chances = audit(truth, predicted, sensitive_features=GroupChances(sure), n_resamples=50)
    assert chances.to_dict() == pytest.approx(plain.to_dict())
    assert chances.group_intervals.to_numpy() == pytest.approx(plain.group_intervals.to_numpy())
    turned = audit(truth, predicted, sensitive_features=DATA.sex_val, pos_label=0)
    flipped = audit(1 - truth, 1 - predicted, sensitive_features=DATA.sex_val)
    assert turned.to_dict() == flipped.to_dict()
    assert turned.positive_label == 0


def test_missing_groups_in_regression() -> None:
    data = problem("real", n=300, n_val=500)
    model = LinearRegression().fit(data.X, data.y)
    given = {"model": model, "data": data, "constraints": "mean_prediction"}
    fair = fit(**given, sensitive_features_val=without(data.sex_val), missing_groups="ignore")
    rows = {"X_val": data.X_val, "y_val": data.y_val, "sensitive_features_val": data.sex_val}
    known = fit(**given, **{name: values[~LOST] for name, values in rows.items()})
    names = ["gap", "gap_error", "gap_p"]
    first, other = (f.candidates_[names].iloc[0].to_numpy() for f in (fair, known))
    assert first == pytest.approx(other, rel=1e-4)
    error = np.mean((fair.predict(data.X_val) - data.y_val) ** 2)
    assert fair.after_["mean_squared_error"] == pytest.approx(error, rel=1e-5)
    for wrong in ({"sample_weight_val": TIMES}, {"sensitive_features_val": GroupChances(HALF)}):
        with pytest.raises(InvalidInputError, match="predicts numbers"):
            fit(**given, **wrong)


HALF = pd.DataFrame({"f": np.full(N, 0.5), "m": np.full(N, 0.5)})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sensitive_features_val": without(DATA.sex_val)}, "pass missing_groups='ignore'"),
        ({"missing_groups": "drop"}, "`missing_groups` must be one of"),
        (
            {"sensitive_features_val": np.full(N, None), "missing_groups": "ignore"},
            "name the group of some rows",
        ),
        ({"sample_weight_val": -TIMES}, "`sample_weight_val` must not be negative"),
        ({"sample_weight_val": TIMES[:5]}, "`sample_weight_val` must have one row per"),
        ({"sample_weight_val": 0 * TIMES}, "`sample_weight_val` must not be all zero"),
        (
            {"sensitive_features_val": GroupChances(HALF * 1.2)},
            r"sum to one in every row, but row 0 holds \[0.6, 0.6\]",
        ),
        ({"sensitive_features_val": GroupChances(HALF - [0.6, -0.6])}, "must be at least 0"),
        ({"sensitive_features_val": GroupChances(HALF[["f"]])}, "at least two columns"),
        ({"sensitive_features_val": GroupChances(HALF.astype(str) + "x")}, "must be numbers"),
        ({"sensitive_features_val": GroupChances(HALF[:7])}, "must have one row per data point"),
        ({"sensitive_features_val": GroupChances(HALF, ["a", "a"])}, "a name of its own"),
        (
            {"sensitive_features_val": GroupChances(HALF * [2, 0])},
            "must give every group some chance",
        ),
        (
            {"sample_weight_val": TIMES, "constraints": lambda z, y, groups: z.mean()},
            "takes the number of one group for each row",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        fit(**given)


def test_weights_need_validation_rows_of_their_own() -> None:
    with pytest.raises(InvalidInputError, match="`sample_weight_val` must come with validation"):
        FairIJ(MODEL).fit(
            DATA.X, DATA.y, sensitive_features=DATA.sex, sample_weight_val=np.ones(len(DATA.y))
        )
