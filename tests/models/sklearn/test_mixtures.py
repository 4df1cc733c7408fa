"""Voting and stacking: edited copies predict what the engine says."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier

from fairij import FairIJ
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.models import adapt
from tree_cases import check_gap_falls, table

pytestmark = [
    pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:The (search went|model is a mean|model averages|final)"),
]
LINEAR = ("linear", LogisticRegression())
TREES = ("trees", HistGradientBoostingClassifier(max_iter=5, early_stopping=False))
FOREST = ("forest", RandomForestClassifier(4, min_samples_leaf=5, random_state=0))
NETWORK = ("network", MLPClassifier((4,), solver="lbfgs", max_iter=50, random_state=0))
REGRESSORS = [("linear", Ridge()), ("trees", HistGradientBoostingRegressor(max_iter=5))]
MODELS: dict[str, tuple[str, Any]] = {
    "voting": ("binary", VotingClassifier([LINEAR, TREES], voting="soft", weights=[1, 3])),
    "voting with a forest": ("binary", VotingClassifier([LINEAR, FOREST], voting="soft")),
    "voting with a network": ("binary", VotingClassifier([TREES, NETWORK], voting="soft")),
    "voting, three classes": ("three", VotingClassifier([LINEAR, TREES], voting="soft")),
    "voting, numbers": ("real", VotingRegressor(REGRESSORS, weights=[2, 1])),
    "stack": ("binary", StackingClassifier([LINEAR, TREES], cv=2, passthrough=True)),
    "stack, three classes": ("three", StackingClassifier([LINEAR, TREES], cv=2)),
    "stack, numbers": ("real", StackingRegressor(REGRESSORS, cv=2)),
}


def told(model: Any, X: Any) -> np.ndarray:
    found = model.predict_proba(X) if hasattr(model, "classes_") else model.predict(X)
    return np.asarray(found)


def expected(z: torch.Tensor, task: str) -> np.ndarray:
    if task == "real":
        return z.numpy()
    if z.ndim == 1:
        z = torch.stack([torch.zeros_like(z), z], 1)
    return torch.softmax(z, 1).numpy()


@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name: str) -> None:
    task, model = MODELS[name]
    data = table(task)
    words = np.array(["a", "b", "c"])[data.y] if task == "three" else data.y
    model.fit(data.X, words)
    editable, before = adapt(model), told(model, data.X_new)
    assert np.allclose(expected(editable.outputs(data.X_new), task), before, atol=1e-6)
    generator = torch.Generator().manual_seed(0)
    step = torch.randn(len(editable.theta), generator=generator, dtype=torch.float64)
    theta = editable.stored(editable.theta + (0.1 * step).to(editable.theta))
    edited = editable.edited(theta)
    assert type(edited) is type(model)
    found = told(pickle.loads(pickle.dumps(edited)), data.X_new)
    assert np.abs(found - before).max() > 1e-3
    assert np.allclose(found, expected(editable.outputs(data.X_new, theta), task), atol=1e-6)
    again = adapt(edited)
    assert torch.equal(again.theta, theta)
    assert again.frame_fingerprint() == editable.frame_fingerprint()
    assert np.array_equal(told(again.edited(editable.theta), data.X_new), before)
    assert np.array_equal(told(model, data.X_new), before)


@pytest.mark.parametrize(
    "name", ["voting", pytest.param("voting with a forest", marks=pytest.mark.slow), "stack"]
)
def test_the_gap_falls(name: str) -> None:
    task, model = MODELS[name]
    data = table(task)
    model.fit(data.X, data.y)
    asked: Any = {"search": "constrained", "selection": "lowest_gap", "verbose": False}
    groups = {"X_val": data.X_new, "y_val": data.y_new, "sensitive_features_val": data.group_new}
    fair = FairIJ(model, **asked).fit(data.X, data.y, **groups)
    check_gap_falls(fair)
    assert np.array_equal(fair.predict(data.X_new), fair.estimator_.predict(data.X_new))
    undone = fair.edit_.undo(fair.estimator_)
    assert np.array_equal(told(undone, data.X_new), told(model, data.X_new))


@pytest.mark.filterwarnings("default:The final model:fairij.errors.FairIJWarning")
def test_what_a_stack_was_trained_on_is_said() -> None:
    data = table()
    model = MODELS["stack"][1].fit(data.X, data.y)
    groups = {"X_val": data.X_new, "y_val": data.y_new, "sensitive_features_val": data.group_new}
    with pytest.warns(FairIJWarning, match="had not seen"):
        FairIJ(model, search="constrained", verbose=False).fit(data.X, data.y, **groups)


def test_what_cannot_be_edited_is_refused() -> None:
    data = table()
    hard = VotingClassifier([LINEAR, TREES]).fit(data.X, data.y)
    with pytest.raises(InvalidInputError, match="voting='soft'"):
        adapt(hard)
    neighbours = VotingClassifier([("near", KNeighborsClassifier()), LINEAR], voting="soft")
    with pytest.raises(InvalidInputError, match="KNeighborsClassifier"):
        adapt(neighbours.fit(data.X, data.y))
    with pytest.raises(InvalidInputError, match="must be fitted"):
        adapt(StackingClassifier([LINEAR]))
