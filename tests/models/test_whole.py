"""Models whose parts do not fit together, as files of others may hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from biased import problem
from fairij import FairIJ, Grid, adapt
from fairij.errors import InvalidInputError

D = problem()


def linear(**parts: Any) -> LogisticRegression:
    model = LogisticRegression().fit(D.X, D.y)
    vars(model).update(parts)
    return model


def perceptron(**parts: Any) -> MLPClassifier:
    model = MLPClassifier((3,), solver="lbfgs", max_iter=5000, random_state=0).fit(D.X, D.y)
    vars(model).update(parts)
    return model


def trees(**parts: Any) -> GradientBoostingClassifier:
    model = GradientBoostingClassifier(n_estimators=2).fit(D.X, D.y)
    vars(model).update(parts)
    return model


def inside_itself() -> Pipeline:
    model = Pipeline([("scaler", StandardScaler().fit(D.X))])
    model.steps.append(("again", model))
    return model


NUMBERS = "must be real numbers with"
UNFIT = "must be whole as its library fits it, but its parts do not fit together"
CLASSES = "must be at least two different labels, got"
ODD: dict[str, tuple[Callable[[], Any], str]] = {
    "a single coefficient": (lambda: linear(coef_=np.float64(1)), f"`coef_` {NUMBERS} 1 or 2 axes"),
    "no coefficients": (lambda: linear(coef_=np.ones((0, 4))), f"`coef_` {NUMBERS}"),
    "words": (lambda: linear(coef_=np.array([["a"] * 4], object)), "got object of shape (1, 4)"),
    "complex": (lambda: linear(coef_=np.ones((1, 4)) * 1j), "got complex128 of shape (1, 4)"),
    "two intercepts": (lambda: linear(intercept_=np.ones(2)), "each of its 1 outputs, got 2"),
    "an odd C": (lambda: linear(C="x"), UNFIT),
    "one class": (lambda: linear(classes_=np.array([0])), CLASSES),
    "the same class twice": (lambda: linear(classes_=np.array([1, 1])), CLASSES),
    "a table of classes": (lambda: linear(classes_=np.array([[0, 1]])), CLASSES),
    "a single class": (lambda: linear(classes_=0), CLASSES),
    "no steps": (lambda: Pipeline([]), UNFIT),
    "steps that are none": (lambda: Pipeline(None), UNFIT),
    "half a step": (lambda: Pipeline([("a",)]), UNFIT),
    "a pipeline inside itself": (inside_itself, UNFIT),
    "no layers": (lambda: perceptron(coefs_=[]), UNFIT),
    "layers of one number": (lambda: perceptron(coefs_=[np.array(1.0)] * 2), UNFIT),
    "an unknown activation": (lambda: perceptron(activation="evil"), UNFIT),
    "no trees": (lambda: trees(estimators_=np.array([])), UNFIT),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_models(case: str) -> None:
    make, said = ODD[case]
    with pytest.raises(InvalidInputError) as caught:
        adapt(make())
    assert said in str(caught.value)
    assert "its training saved" in str(caught.value)


@pytest.mark.parametrize("low", [10**18, 2**63, -(10**18)])
def test_labels_beyond_what_floats_tell_apart(low: int) -> None:
    kind = np.uint64 if low >= 2**63 else np.int64
    y, y_val = (values.astype(kind) + np.array(low, kind) for values in (D.y, D.y_val))
    model = LogisticRegression().fit(D.X, y)
    fair = FairIJ(model, search=Grid(points=2, scales=(1.0,)), verbose=False)
    D.fit(fair, y=y, y_val=y_val)
    assert fair.classes_.tolist() == [low, low + 1]
    plain = FairIJ(LogisticRegression().fit(D.X, D.y), search=fair.search, verbose=False)
    np.testing.assert_array_equal(fair.influence_, D.fit(plain).influence_)
