"""EBMs: edited copies predict what the engine says, and their bags stay those of the scores."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch

from fairij.errors import InvalidInputError
from fairij.models import adapt
from tree_cases import (
    TASKS,
    Table,
    check_gap_falls,
    check_round_trip,
    close,
    dense_jacobian,
    mitigate,
    moved,
    table,
)

glassbox = pytest.importorskip("interpret.glassbox")
pytestmark = [
    pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning"),
    pytest.mark.filterwarnings("ignore:Missing values detected:UserWarning"),
]
QUICK = {"max_rounds": 30, "outer_bags": 2, "max_bins": 16, "n_jobs": 1, "random_state": 0}


def trained(task: str, data: Table, **settings: Any) -> Any:
    kind = glassbox.ExplainableBoostingRegressor
    if task != "real":
        kind = glassbox.ExplainableBoostingClassifier
    pairs = 0 if task == "three" else 2
    weight = settings.pop("weight", None)
    return kind(**({"interactions": pairs} | QUICK | settings)).fit(data.X, data.y, weight)


def margins(model: Any, X: Any) -> np.ndarray:
    found = model.decision_function(X) if hasattr(model, "classes_") else model.predict(X)
    return np.asarray(found)


def reload(model: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


@pytest.mark.parametrize("task", TASKS)
def test_round_trip(task: str) -> None:
    data = table(task, categories=True, missing=True)
    check_round_trip(trained(task, data), data.X_new, margins, reload)


@pytest.mark.parametrize("task", TASKS)
def test_bags_stay_those_of_the_scores(task: str) -> None:
    data = table(task)
    model = trained(task, data, outer_bags=3)
    editable = adapt(model)
    edited = editable.edited(moved(editable.theta))
    for before, bags, scores, old in zip(
        [model.bagged_intercept_, *model.bagged_scores_],
        [edited.bagged_intercept_, *edited.bagged_scores_],
        [edited.intercept_, *edited.term_scores_],
        [model.intercept_, *model.term_scores_],
        strict=True,
    ):
        mean = bags.mean(0) - before.mean(0)
        assert np.allclose(mean, np.asarray(scores) - np.asarray(old), atol=1e-12)
        assert np.allclose(bags - bags[:1], before - before[:1], atol=1e-12)  # the spread
    told = edited.predict_with_uncertainty(data.X_new)[:, 0] if task == "real" else None
    if told is not None:
        assert np.allclose(told, edited.predict(data.X_new), atol=1e-9)


def test_scores_and_jacobian_are_the_librarys() -> None:
    data = table(rows=200, new=40)
    model = trained("binary", data, max_bins=4, max_interaction_bins=3, interactions=1)
    J = dense_jacobian(model, data.X_new, margins)
    linear = adapt(model).linearize(data.X_new)
    assert torch.allclose(linear.rows(torch.arange(40)), J, atol=1e-9)


def test_influence_is_that_of_a_dense_reference() -> None:
    data = table(rows=300, new=200)
    model = trained("binary", data, max_bins=6, max_interaction_bins=4, weight=data.weight)
    fair = mitigate(model, data, solver="exact", sample_weight=data.weight)
    J, J_val = (
        adapt(model).linearize(X).rows(torch.arange(len(X)))[:, 0] for X in (data.X, data.X_new)
    )
    p, p_val = (torch.from_numpy(model.predict_proba(X)[:, 1]) for X in (data.X, data.X_new))
    y, w = torch.as_tensor(data.y).double(), torch.as_tensor(data.weight)
    H = (J * (w * p * (1 - p))[:, None]).T @ J / w.sum()
    H += 1e-2 * torch.eye(len(H)).double()
    b = torch.as_tensor(data.group_new == "b")
    sign = torch.where(b, 1 / b.sum(), -1 / (~b).sum()).double()
    sign = sign * torch.sign((sign * (p_val > 0.5)).sum())
    gradient = J_val.T @ (sign * p_val * (1 - p_val))
    expected = -(J @ torch.linalg.solve(H, gradient)) * w * (p - y) / w.sum()
    assert np.abs(fair.influence_ - expected.numpy()).max() < 1e-7 * float(expected.abs().max())


@pytest.mark.parametrize(
    ("task", "constraint"),
    [("binary", "demographic_parity"), ("real", "mean_prediction")],
)
def test_the_gap_falls_and_the_edit_can_be_undone(task: str, constraint: str) -> None:
    data = table(task)
    model = trained(task, data)
    before = margins(model, data.X_new)
    fair = mitigate(model, data, constraints=constraint)
    check_gap_falls(fair)
    close(margins(fair.estimator_, data.X_new), adapt(fair.estimator_).outputs(data.X_new))
    undone = fair.edit_.undo(fair.estimator_)
    assert np.array_equal(margins(undone, data.X_new), before)


@pytest.mark.slow
def test_a_process_without_fairij_predicts_the_same(tmp_path: Path) -> None:
    data = table()
    editable = adapt(trained("binary", data))
    edited = editable.edited(moved(editable.theta))
    joblib.dump(edited, tmp_path / "fair.joblib")
    np.save(tmp_path / "X.npy", data.X_new)
    code = """
import sys, joblib, numpy as np
model = joblib.load(sys.argv[1] + "/fair.joblib")
np.save(sys.argv[1] + "/p.npy", model.predict_proba(np.load(sys.argv[1] + "/X.npy")))
assert "fairij" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert np.array_equal(np.load(tmp_path / "p.npy"), edited.predict_proba(data.X_new))


def test_what_cannot_be_edited_is_refused() -> None:
    data = table("real")
    model = glassbox.ExplainableBoostingRegressor(**QUICK, objective="poisson_deviance")
    with pytest.raises(InvalidInputError, match="must be fitted"):
        adapt(model)
    with pytest.raises(InvalidInputError, match="got 'poisson_deviance'"):
        adapt(model.fit(data.X, np.round(np.exp(data.y / 4))))
