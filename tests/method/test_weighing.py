"""A model that was trained with weights by label, and a fit that does not get them, is noticed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from fairij import FairIJ, Grid

RNG = np.random.default_rng(4)
X = RNG.normal(size=(1200, 4))
GROUP = RNG.integers(0, 2, 1200)
SCORE = X[:, 0] + 0.5 * GROUP + RNG.logistic(size=1200)
Y = (SCORE > 1.8).astype(int)  # one in five
SEEN, NEW = np.arange(800), np.arange(800, 1200)
MODELS = {
    "linear": LogisticRegression(),
    "strong penalty": LogisticRegression(C=1e-3),
    "trees": HistGradientBoostingClassifier(max_iter=30, early_stopping=False, random_state=0),
}


def said(model: Any, y: Any = Y, weight: Any = None) -> list[str]:
    mitigator = FairIJ(model, search=Grid(k=(1,), scales=(1.0,)), verbose=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mitigator.fit(
            X[SEEN],
            y[SEEN],
            X_val=X[NEW],
            y_val=y[NEW],
            sensitive_features_val=GROUP[NEW],
            sample_weight=weight,
        )
    return [text for text in map(str, (c.message for c in caught)) if "Averaged over" in text]


@pytest.mark.parametrize("kind", MODELS)
def test_weights_by_label_are_missed_and_nothing_else(kind: str) -> None:
    weight, by_chance = np.where(Y == 1, 6.0, 1.0)[SEEN], RNG.exponential(size=len(SEEN))
    fit = MODELS[kind].fit
    assert said(fit(X[SEEN], Y[SEEN])) == []
    assert said(fit(X[SEEN], Y[SEEN], sample_weight=by_chance)) == []
    assert said(fit(X[SEEN], Y[SEEN], sample_weight=weight), weight=weight) == []
    (text,) = said(fit(X[SEEN], Y[SEEN], sample_weight=weight))
    assert f"but {Y[SEEN].mean():.1%} of them have that label" in text
    assert "gives 1 a chance of" in text
    assert "`sample_weight`" in text


def test_weights_that_the_model_was_not_trained_with() -> None:
    weight = np.where(Y == 1, 6.0, 1.0)[SEEN]
    (text,) = said(MODELS["linear"].fit(X[SEEN], Y[SEEN]), weight=weight)
    assert "of them (by their weights) have that label" in text


def test_class_weights_of_the_model_are_known() -> None:
    assert said(LogisticRegression(class_weight="balanced").fit(X[SEEN], Y[SEEN])) == []


def test_three_labels() -> None:
    y = np.digitize(SCORE, [0.0, 2.5])
    weight = np.where(y == 2, 3.0, 1.0)[SEEN]
    assert said(LogisticRegression().fit(X[SEEN], y[SEEN]), y) == []
    (text,) = said(LogisticRegression().fit(X[SEEN], y[SEEN], sample_weight=weight), y)
    assert "gives 2 a chance of" in text
