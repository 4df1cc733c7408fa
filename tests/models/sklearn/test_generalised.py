"""Generalised linear models and discriminant analysis: losses, refits, edits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor
from sklearn.metrics import mean_tweedie_deviance

from fairij import FairIJ
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.models import adapt
from fairij.models.losses import LOSSES
from tree_cases import check_gap_falls, table

TIGHT = {"max_iter": 5000, "tol": 1e-10}
GLMS: dict[str, Any] = {
    "poisson": PoissonRegressor(alpha=0.1, **TIGHT),
    "gamma": GammaRegressor(alpha=0.1, **TIGHT),
    "tweedie": TweedieRegressor(power=1.5, alpha=0.1, **TIGHT),
    "normal": TweedieRegressor(power=0, alpha=0.1, **TIGHT),
}
POWERS = {"poisson_deviance": 1.0, "gamma_deviance": 2.0, "tweedie_deviance": 1.5}


def counts(rows: int = 300) -> tuple[Any, Any]:
    """Rows, and whole labels above 0."""
    data = table("real", rows=rows)
    mean = np.exp(0.3 * data.X[:, 0] + 0.2 * data.X[:, 1])
    return data, 1.0 + np.random.default_rng(1).poisson(mean)


@pytest.mark.parametrize("kind", GLMS)
def test_the_gradient_vanishes_at_what_was_fitted(kind: str) -> None:
    data, y = counts()
    model = GLMS[kind].fit(data.X, y, data.weight)
    editable = adapt(model)
    loss = LOSSES[str(editable.loss_name)]
    linear, w = editable.linearize(data.X), torch.as_tensor(data.weight)
    labels = torch.as_tensor(y)
    l2 = editable.l2(len(y), float(w.sum()))
    assert l2 is not None
    gradient = linear.vjp(w * loss.slope(linear.outputs, labels) / w.sum()) + l2 * editable.theta
    assert float(gradient.norm()) < 1e-4
    assert np.allclose(loss.predict(linear.outputs), model.predict(data.X))


@pytest.mark.parametrize("kind", POWERS)
def test_losses_are_half_of_the_deviance(kind: str) -> None:
    rng = np.random.default_rng(0)
    z = torch.from_numpy(rng.normal(size=20)).requires_grad_()
    y = torch.from_numpy(rng.uniform(0.5, 3.0, 20))
    loss = LOSSES[kind]
    value = loss.value(z, y)
    other = loss.value(torch.log(y), y)  # a deviance is 0 at mean = y
    half = 0.5 * np.array(
        [
            mean_tweedie_deviance([t], [m], power=POWERS[kind])
            for t, m in zip(y.tolist(), torch.exp(z).tolist(), strict=True)
        ]
    )
    assert np.allclose((value - other).detach(), half)
    (slope,) = torch.autograd.grad(value.sum(), z)
    assert torch.allclose(slope, loss.slope(z, y).detach())
    root = loss.curve_root(z)[:, 0, 0]
    assert torch.allclose(root * root, loss.curve(z, torch.ones_like(z)))
    if kind == "poisson_deviance":
        bend = torch.autograd.functional.hessian(lambda at: loss.value(at, y).sum(), z.detach())
        assert torch.allclose(bend.diagonal(), loss.curve(z, torch.ones_like(z)).detach())


def test_influence_is_that_of_a_real_refit() -> None:
    data, y = counts()
    model = PoissonRegressor(alpha=0.1, **TIGHT).fit(data.X, y)
    editable, loss = adapt(model), LOSSES["poisson_deviance"]
    linear, labels = editable.linearize(data.X), torch.as_tensor(y)
    l2 = editable.l2(len(y), float(len(y)))
    J = linear.rows(torch.arange(len(y)))[:, 0]
    curved = loss.curve(linear.outputs, torch.ones(len(y)).double()) / len(y)
    H = (J * curved[:, None]).T @ J + torch.diag(l2)
    for row in (0, 9, 100):
        weight = np.ones(len(y))
        weight[row] = 1e-12
        refit = PoissonRegressor(alpha=0.1 * len(y) / weight.sum(), **TIGHT)
        refit.fit(data.X, y, weight)
        change = adapt(refit).theta - editable.theta
        g = J[row] * loss.slope(linear.outputs, labels)[row] / len(y)
        predicted = torch.linalg.solve(H, g)
        assert float((predicted - change).norm() / change.norm()) < 0.1


@pytest.mark.parametrize("kind", ["poisson", "gamma"])
def test_the_gap_of_means_falls(kind: str) -> None:
    data, y = counts(400)
    rng = np.random.default_rng(2)
    y_new = 1.0 + rng.poisson(np.exp(0.3 * data.X_new[:, 0] + 0.2 * data.X_new[:, 1]))
    model = GLMS[kind].fit(data.X, y)
    asked: Any = {"constraints": "mean_prediction", "search": "constrained", "verbose": False}
    fair = FairIJ(model, selection="lowest_gap", validation_use="reuse", **asked)
    groups = {"X_val": data.X_new, "y_val": y_new, "sensitive_features_val": data.group_new}
    fair.fit(data.X, y, **groups)
    check_gap_falls(fair)
    assert type(fair.estimator_) is type(model)
    assert np.allclose(fair.predict(data.X_new), fair.estimator_.predict(data.X_new))
    means = [fair.estimator_.predict(data.X_new)[data.group_new == g].mean() for g in "ab"]
    told = fair.candidates_["gap"].iloc[fair.chosen_]
    assert told == pytest.approx(abs(means[0] - means[1]), abs=1e-6)
    undone = fair.edit_.undo(fair.estimator_)
    assert np.array_equal(undone.coef_, model.coef_)
    assert undone.intercept_ == model.intercept_


@pytest.mark.parametrize("task", ["binary", "three"])
@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
def test_discriminant_analysis(task: str) -> None:
    data = table(task)
    model = LinearDiscriminantAnalysis().fit(data.X, data.y)
    editable = adapt(model)
    z = editable.outputs(data.X_new)
    p = torch.sigmoid(z) if z.ndim == 1 else torch.softmax(z, 1)
    told = model.predict_proba(data.X_new)
    assert np.allclose(told[:, 1] if z.ndim == 1 else told, p)
    groups = {"y_val": data.y_new, "sensitive_features_val": data.group_new}
    asked: Any = {"search": "constrained", "selection": "lowest_gap", "verbose": False}
    with pytest.warns(FairIJWarning, match="means and a covariance"):
        fair = FairIJ(model, **asked).fit(data.X, data.y, X_val=data.X_new, **groups)
    check_gap_falls(fair, to=0.75)
    assert np.array_equal(fair.predict(data.X_new), fair.estimator_.predict(data.X_new))
    assert np.allclose(fair.predict_proba(data.X_new), fair.estimator_.predict_proba(data.X_new))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TweedieRegressor(power=1.2), "got power=1.2"),
        (TweedieRegressor(power=1, link="identity"), "link='identity'"),
        (QuadraticDiscriminantAnalysis(), "PolynomialFeatures"),
    ],
)
def test_what_cannot_be_edited_is_refused(model: Any, message: str) -> None:
    data = table()
    y = data.y if isinstance(model, QuadraticDiscriminantAnalysis) else 5.0 + data.X[:, 1]
    with pytest.raises(InvalidInputError, match=message):
        adapt(model.fit(data.X, y))


def test_labels_outside_of_a_law_are_refused() -> None:
    z = torch.zeros(2).double()
    with pytest.raises(InvalidInputError, match="above 0, got 0"):
        LOSSES["gamma_deviance"].check(z, torch.tensor([0.0, 1.0]))
    with pytest.raises(InvalidInputError, match="of at least 0, got -1"):
        LOSSES["poisson_deviance"].check(z, torch.tensor([-1.0, 1.0]))
