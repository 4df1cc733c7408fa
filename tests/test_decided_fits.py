"""Fits with a cut-off of their own, or another favourable label, next to fairlearn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from fairlearn.metrics import demographic_parity_difference, equal_opportunity_difference
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier

from biased import problem
from fairij import FairIJ, Grid, TopShare
from fairij.errors import FairIJWarning, InvalidInputError

DATA = problem(n=600, n_val=900)
WORDS = np.array(["bad", "good"])
MODEL = LogisticRegression().fit(DATA.X, DATA.y)
FAIRLEARN = {
    "demographic_parity": demographic_parity_difference,
    "equal_opportunity": equal_opportunity_difference,
}
SETTINGS = [(0.3, None), (0.7, 0), (TopShare(0.1), None), (TopShare(0.2), 0), (None, 0)]


def fit(model: Any = MODEL, **settings: Any) -> FairIJ:
    settings = {"search": Grid(points=5, scales=(1.0, 5.0)), "selection": "lowest_gap", **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        return DATA.fit(FairIJ(model, **settings))


def by_hand(model: Any, threshold: Any, pos_label: Any) -> np.ndarray:
    """The decisions as anybody would make them: 1 is the favourable label."""
    p = model.predict_proba(DATA.X_val)[:, 0 if pos_label == 0 else 1]
    if isinstance(threshold, TopShare):
        return (p >= np.sort(p)[-round(threshold.share * len(p))]).astype(int)
    return (p >= (threshold or 0.5)).astype(int)


GRID: dict[str, Any] = {}
CASES = [
    *((*pair, "demographic_parity", GRID) for pair in SETTINGS),
    *((*pair, "equal_opportunity", {"search": "constrained"}) for pair in SETTINGS),
    (TopShare(0.1), 0, "equal_opportunity", {"search": "path", "validation_use": "cross_fit"}),
]


@pytest.mark.parametrize(("threshold", "pos_label", "constraint", "settings"), CASES, ids=str)
def test_gaps_are_fairlearns_of_the_decisions(
    threshold: Any, pos_label: Any, constraint: str, settings: dict[str, Any]
) -> None:
    fair = fit(threshold=threshold, pos_label=pos_label, constraints=constraint, **settings)
    truth = DATA.y_val if pos_label is None else 1 - DATA.y_val
    for model, audit in ((MODEL, fair.before_), (fair.estimator_, fair.after_)):
        decisions = by_hand(model, threshold, pos_label)
        gap = FAIRLEARN[constraint](truth, decisions, sensitive_features=DATA.sex_val)
        assert audit[f"{constraint}_difference"] == pytest.approx(gap, abs=1e-12)
        assert audit["accuracy"] == pytest.approx(np.mean(decisions == truth), abs=1e-12)
        assert audit.positive_label == (1 if pos_label is None else pos_label)
    predicted = fair.predict(DATA.X_val)
    assert np.array_equal(predicted == (1 if pos_label is None else 0), decisions == 1)
    first, chosen = fair.candidates_["gap"].iloc[[0, fair.chosen_]]
    assert gap < first
    if fair.validation_use == "reuse":  # else each fold is judged alone, by its own top share
        assert first == pytest.approx(fair.before_[f"{constraint}_difference"], abs=1e-12)
        assert chosen == pytest.approx(gap, abs=1e-12)
        assert 0 < fair.honest_gap_.expected < first


def test_the_favourable_label_is_that_of_labels_that_are_flipped() -> None:
    """Asking for label 0 is asking for 1 of a model with labels and scores turned around."""
    turned = LogisticRegression().fit(DATA.X, 1 - DATA.y)
    alike = {"constraints": "equal_opportunity", "search": "path", "threshold": 0.4}
    other = FairIJ(turned, selection="lowest_gap", **alike)
    asked = fit(pos_label=0, **alike)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        DATA.fit(other, y=1 - DATA.y, y_val=1 - DATA.y_val)
    names = ["gap", "accuracy", "auc"]
    one, two = (f.candidates_[names].to_numpy() for f in (asked, other))
    assert np.allclose(one, two, atol=5e-3)
    assert np.allclose(asked.influence_, other.influence_, atol=1e-4 * np.ptp(asked.influence_))


@pytest.mark.parametrize("pos_label", ["good", "bad"])
def test_labels_may_be_words(pos_label: str) -> None:
    words = LogisticRegression().fit(DATA.X, WORDS[DATA.y])
    fair = FairIJ(words, threshold=0.4, pos_label=pos_label, search=Grid(points=3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        DATA.fit(fair, y=WORDS[DATA.y], y_val=WORDS[DATA.y_val])
    p = fair.estimator_.predict_proba(DATA.X_val)[:, list(WORDS).index(pos_label)]
    assert np.array_equal(fair.predict(DATA.X_val) == pos_label, p >= 0.4)
    assert fair.before_.positive_label == pos_label


def test_the_cut_off_of_a_share_is_kept_for_other_rows() -> None:
    fair = fit(threshold=TopShare(0.1))
    assert fair.predict(DATA.X_val).mean() == pytest.approx(0.1)
    p = fair.predict_proba(DATA.X)[:, 1]
    assert np.array_equal(fair.predict(DATA.X), p >= fair.threshold_)
    one = int(np.argmax(p))
    assert fair.predict(DATA.X[one : one + 1]).tolist() == [1]


def test_scikit_learn_takes_the_cut_off_along() -> None:
    for settings in ({"threshold": TopShare(0.2), "pos_label": 0}, {"threshold": 0.3}):
        fair = fit(**settings)
        made = fair.thresholded()
        assert isinstance(made, FixedThresholdClassifier)
        assert np.array_equal(made.predict(DATA.X), fair.predict(DATA.X))
        assert not np.array_equal(fair.estimator_.predict(DATA.X), fair.predict(DATA.X))


def test_the_notice_says_that_the_model_keeps_its_own_cut_off() -> None:
    with pytest.warns(FairIJWarning, match="goes on predicting at its own cut-off, 0.5"):
        DATA.fit(FairIJ(MODEL, threshold=0.3, search=Grid(points=2), selection="lowest_gap"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"threshold": 30}, "`threshold` must be a probability above 0 and below 1"),
        ({"pos_label": "yes"}, "`pos_label` must be one of the model's two labels, 0 or 1"),
        ({"pos_label": [0]}, "`pos_label` must be one of the model's two labels"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        fit(**settings)


@pytest.mark.parametrize("task", ["three", "real"])
def test_models_without_two_labels_have_neither(task: str) -> None:
    from sklearn.linear_model import LinearRegression

    data = problem(task)
    model = (LogisticRegression() if task == "three" else LinearRegression()).fit(data.X, data.y)
    constraint = "demographic_parity" if task == "three" else "mean_prediction"
    for settings in ({"threshold": 0.3}, {"pos_label": 1}):
        with pytest.raises(InvalidInputError, match="need a model of two labels"):
            data.fit(FairIJ(model, constraints=constraint, **settings))
