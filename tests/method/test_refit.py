"""Predicted refits, against models that are really trained without the same rows."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from functools import cache
from typing import Any

import lightgbm
import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from biased import L2, fair, fitted, problem, train
from fairij import ConjugateGradient, Exact, FairIJ, Grid, adapt
from fairij.errors import InvalidInputError
from fairij.method import refit
from fairij.method.curvature import GGN
from fairij.method.influence import most_harmful
from fairij.method.objective import Objective
from fairij.method.refit import Refits
from fairij.models.constant import ConstantLinearization

ONE = Grid(k=(20,), scales=(1.0,))


@cache
def table(rows: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    group = rng.random(2 * rows) < 0.6
    X = rng.normal(size=(2 * rows, 5))
    X[:, 0] += group
    y = (X @ [1.2, 0.8, -0.7, 0.3, 0.0] - 1.6 + rng.logistic(size=2 * rows) > 0).astype(int)
    return X, y, group.astype(int)


def fit(model: Any, rows: int = 4000, **settings: Any) -> FairIJ:
    X, y, group = table(rows)
    train, new = slice(rows), slice(rows, None)
    found = FairIJ(model.fit(X[train], y[train]), search=ONE, verbose=False, **settings)
    return found.fit(
        X[train], y[train], X_val=X[new], y_val=y[new], sensitive_features_val=group[new]
    )


def smooth_gap(z: Tensor, groups: np.ndarray) -> float:
    scores = torch.sigmoid(z.double()).numpy()
    return abs(float(scores[groups == 1].mean() - scores[groups == 0].mean()))


@cache
def logistic() -> FairIJ:
    return fit(LogisticRegression(tol=1e-8, max_iter=1000))


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1])
def test_a_convex_refit_is_predicted(share: float) -> None:
    """Its gap, its accuracy and its parameters."""
    model, rows = logistic(), 4000
    X, y, group = table()
    (found,) = model.predict_refit(k=int(share * rows))
    left = np.setdiff1d(np.arange(rows), found.dropped)
    assert len(left) == rows - found.k
    real = LogisticRegression(tol=1e-8, max_iter=1000).fit(X[left], y[left])
    new = slice(rows, None)
    gaps = [smooth_gap(adapt(m).outputs(X[new]), group[new]) for m in (model.estimator, real)]
    assert found.surrogate - gaps[0] == pytest.approx(gaps[1] - gaps[0], rel=0.02)
    assert found.performance == pytest.approx(real.score(X[new], y[new]), abs=0.002)
    was, asked = adapt(model.estimator).theta, adapt(real).theta
    assert (found.parameters - asked).norm() < 0.1 * (was - asked).norm()
    assert found.further_step


def damped_minimum(o: Objective, dropped: np.ndarray, damping: float) -> Tensor:
    """The minimum of the damped loss of the other rows, by Newton's method with dense matrices."""
    weights = o.weights.clone()
    weights[torch.as_tensor(dropped)] = 0
    d, jacobian = torch.zeros_like(o.theta), o.model.jacobian
    solver = ConjugateGradient(tolerance=1e-6)
    for _ in range(20):
        there = ConstantLinearization(o.model.outputs + o.model.jvp(d), jacobian)
        kept = replace(o, model=there, weights=weights, theta=o.theta + d)
        slope = kept.gradient - o.gradient + damping * d
        d = d - solver.prepare(GGN(kept), damping).solve(slope).x
    return d


@pytest.mark.parametrize("k", [20, 100, 200])
def test_leaves_at_the_damped_minimum_are_predicted(k: int) -> None:
    """1, 5 and 10 % of the rows. Leaves have no minimum of their own, so damping holds them."""
    rows = 2000
    model = fit(lightgbm.LGBMClassifier(n_estimators=20, num_leaves=15, verbose=-1, n_jobs=1), rows)
    X, _, group = table(rows)
    (found,) = model.predict_refit(k=k)
    kept: Refits = model._refits
    editable = adapt(model.estimator)
    objective = replace(kept.objective, model=editable.linearize(kept.training))
    asked = editable.theta + damped_minimum(objective, found.dropped, kept.damping)
    new = X[rows:]
    before, real = (
        smooth_gap(editable.outputs(new, at), group[rows:]) for at in (editable.theta, asked)
    )
    assert found.surrogate - before == pytest.approx(real - before, rel=0.02)


def test_the_first_step_solves_with_the_curvature_of_the_kept_rows() -> None:
    """Against a dense solve; the rows that are dropped need not be few."""
    kept: Refits = logistic()._refits
    objective = replace(kept.objective, model=adapt(logistic().estimator).linearize(kept.training))
    inverse = Exact().prepare(GGN(objective), 1e-3)
    dropped = most_harmful(kept.scores)[0][:1500]
    weights = torch.zeros_like(objective.weights.clone())
    weights[dropped] = objective.weights[dropped]
    alone = replace(objective, weights=weights, l2=0 * objective.l2)
    without = replace(objective, weights=objective.weights - weights)
    expected = Exact().prepare(GGN(without), 1e-3).solve(alone.gradient).x
    found = refit.without(objective, inverse, dropped)
    assert (found - expected).norm() < 5e-3 * expected.norm()


def test_a_further_step_that_raises_the_objective_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = iter([1.0, 0.5, 0.6, 0.6, 0.6, 0.6])  # three halvings do not help
    monkeypatch.setattr(refit, "_loss", lambda objective: next(values))
    kept: Refits = logistic()._refits
    objective = replace(kept.objective, model=adapt(logistic().estimator).linearize(kept.training))
    objective = replace(objective, l2=objective.l2)
    inverse = Exact().prepare(GGN(objective), 1e-2)
    monkeypatch.setattr(Objective, "gradient", property(lambda o: torch.zeros_like(o.theta)))
    found = refit.predict(objective, inverse, ConjugateGradient(), torch.arange(5), held=False)
    assert not found.further_step
    assert found.move is found.first


@pytest.mark.parametrize("task", ["binary", "three", "real"])
def test_a_network_with_several_groups_and_outputs(task: str) -> None:
    """The gap and the accuracy are those of the parameters, in every task."""
    data = problem(task)
    settings = {"loss": "squared_error", "constraints": "mean_prediction"} if task == "real" else {}
    model = data.fit(fair(fitted(task), **settings), sensitive_features_val=data.race_val)
    found = model.predict_refit(k=[5, 20])
    assert [one.k for one in found] == [5, 20]
    assert model.predicted_refits_ == found
    edited = model.editable().edited(found[1].parameters)
    z = adapt(edited).outputs(torch.tensor(data.X_val))
    if task == "binary":
        rates = [
            float((z > 0)[data.race_val == race].double().mean()) for race in set(data.race_val)
        ]
        assert found[1].gap == pytest.approx(max(rates) - min(rates))
        assert found[1].performance == pytest.approx(float(((z > 0).numpy() == data.y_val).mean()))
    assert all(one.further_step for one in found)


@pytest.mark.parametrize("k", [3, 10, 20])
def test_both_steps_lead_nearer_to_a_network_that_is_trained_again(
    k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trained to the minimum, which is the nearest one if training starts from the fitted one."""
    data = problem()
    model = data.fit(fair())
    ((dropped, edit, found),) = model._refits.moves(editable := model.editable(), [k])
    kept = np.setdiff1d(np.arange(len(data.y)), dropped.numpy())
    # the loss of the kept rows is not rescaled, so that the penalty counts for less
    monkeypatch.setattr("biased.L2", L2 * len(data.y) / len(kept))
    X = torch.tensor(data.X).double()
    real = adapt(train(fitted(), X[kept], data.y[kept], "binary_cross_entropy").float()).theta

    def far(at: Tensor) -> float:
        new = torch.tensor(data.X_val)
        return float((editable.outputs(new, at) - editable.outputs(new, real)).norm())

    moves = (0 * edit, edit, found.first, found.move)
    distances = [far(editable.theta + move) for move in moves]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.3 * distances[0]


def test_the_edit_s_own_rows_are_the_default() -> None:
    data = problem()
    model = data.fit(fair(search=ONE))
    (found,) = model.predict_refit()
    np.testing.assert_array_equal(found.dropped, model.dropped_)


def test_rows_that_were_split_off_are_not_counted() -> None:
    data = problem()
    model = fair(validation_fraction=0.4).fit(data.X, data.y, sensitive_features=data.sex)
    (found,) = model.predict_refit(k=10)
    order = np.argsort(-np.nan_to_num(model.influence_, nan=-np.inf), kind="stable")
    np.testing.assert_array_equal(found.dropped, order[:10])


def test_copies_hold_no_rows() -> None:
    data = problem()
    model = data.fit(fair())
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict(data.X), model.predict(data.X))
        with pytest.raises(InvalidInputError, match="which this object does not hold"):
            other.predict_refit(k=5)


def test_impossible_numbers_of_rows() -> None:
    model = problem().fit(fair(search="path"))
    with pytest.raises(InvalidInputError, match="the chosen edit drops none: pass k=200"):
        model.predict_refit()
    for bad in (0, -1, 2.5, "all", [3, 0]):
        with pytest.raises(InvalidInputError, match="`k` must be a whole number of at least 1"):
            model.predict_refit(k=bad)
    with pytest.raises(InvalidInputError, match=r"`k` must be at most 1?\d\d, as no more rows"):
        model.predict_refit(k=200)
