"""Curvature and stationarity of tree ensembles, against dense matrices made the long way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fairij import FairIJ, Grid
from fairij.fairness.constraints import CONSTRAINTS
from fairij.fairness.groups import encode_groups
from fairij.method.curvature import CURVATURES, dense, make_curvature
from fairij.method.objective import Objective, normalised_weights
from fairij.models import adapt
from fairij.models.losses import get_loss
from fairij.solvers import ConjugateGradient
from tree_cases import Table, dense_jacobian, mitigate, table

lightgbm = pytest.importorskip("lightgbm")
LOSSES = {"binary": "binary_cross_entropy", "three": "softmax_cross_entropy"}


def model_of(data: Table, **settings: Any) -> Any:
    options = {"n_estimators": 6, "num_leaves": 5, "n_jobs": 1, "verbosity": -1} | settings
    return lightgbm.LGBMClassifier(**options).fit(data.X, data.y, sample_weight=data.weight)


def raw(model: Any, X: Any) -> np.ndarray:
    return np.asarray(model.predict(X, raw_score=True))


def long_way(model: Any, data: Table, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """J of the training rows (N, C, D), the loss's gradient (D,) and its Hessian (D, D).

    Derivatives with respect to the outputs are autograd's, and J is found by moving one leaf at a
    time in the library.
    """
    J = dense_jacobian(model, data.X, raw)
    z = torch.from_numpy(raw(model, data.X)).reshape(len(J), -1)
    y, w = torch.from_numpy(data.y), torch.from_numpy(data.weight / data.weight.sum())
    loss = get_loss(name)

    def total(theta: Tensor) -> Tensor:
        moved = z + J @ theta
        return (w * loss.value(moved[:, 0] if moved.shape[1] == 1 else moved, y)).sum()

    nothing = torch.zeros(J.shape[-1], dtype=torch.float64)
    gradient = torch.func.grad(total)(nothing)
    return J, gradient, torch.func.hessian(total)(nothing)


@pytest.mark.parametrize("task", LOSSES)
def test_every_curvature_as_a_dense_matrix(task: str) -> None:
    data = table(task, rows=150, new=10)
    model = model_of(data)
    editable = adapt(model)
    weights = normalised_weights(torch.from_numpy(data.weight), 150, editable.theta)
    objective = Objective(
        editable.linearize(data.X),
        torch.from_numpy(data.y).double(),
        get_loss(LOSSES[task]),
        weights,
        editable.theta,
        torch.linspace(0, 1, len(editable.theta)).double(),
    )
    J, _, expected = long_way(model, data, LOSSES[task])
    l2 = torch.diag(objective.l2)
    for name in ("ggn", "hessian"):  # the same, since J is constant
        assert torch.allclose(dense(make_curvature(name, objective)), expected + l2, atol=1e-10)
    slope = objective.loss.slope(objective.model.outputs, objective.y).view(150, -1)
    rows = torch.einsum("ncd,nc->nd", J, slope)
    fisher = rows.T @ (weights[:, None] * rows) + l2
    assert torch.allclose(dense(make_curvature("empirical_fisher", objective)), fisher, atol=1e-10)
    v = torch.randn(len(expected), generator=torch.Generator().manual_seed(0)).double()
    for name in CURVATURES:
        operator = make_curvature(name, objective)
        assert torch.allclose(dense(operator) @ v, operator.product(v), atol=1e-10)


@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
def test_the_exact_solver_gives_what_conjugate_gradients_converge_to() -> None:
    data = table(rows=400)
    model = model_of(data, n_estimators=20)
    search = Grid(k=(40,), scales=(1.0,))
    exact = mitigate(model, data, solver="exact", search=search)
    near = mitigate(model, data, solver=ConjugateGradient(tolerance=1e-10), search=search)
    assert np.allclose(exact.influence_, near.influence_, rtol=1e-6, atol=1e-12)
    assert torch.allclose(exact.edit_.delta, near.edit_.delta, rtol=1e-6, atol=1e-10)
    assert exact.diagnostics_["influence_residual"] < 1e-12


@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
@pytest.mark.parametrize("rounds", [3, 60])
def test_gradient_norm_and_drift_say_how_far_the_leaves_are_from_a_minimum(rounds: int) -> None:
    """``drift = -grad M^T (H + damping I)^-1 grad L``, each factor the long way."""
    data = table(rows=300, new=200)
    model = model_of(data, n_estimators=rounds, num_leaves=4)
    fair = FairIJ(
        model,
        damping=0.05,
        solver="exact",
        search=Grid(points=3),
        selection="lowest_gap",
        verbose=False,
    ).fit(
        data.X,
        data.y,
        X_val=data.X_new,
        y_val=data.y_new,
        sensitive_features_val=data.group_new,
        sample_weight=data.weight,
    )
    _, gradient, H = long_way(model, data, "binary_cross_entropy")
    assert fair.diagnostics_["gradient_norm"] == pytest.approx(float(gradient.norm()), rel=1e-9)
    J_new = dense_jacobian(model, data.X_new, raw)[:, 0]
    z_new = torch.from_numpy(raw(model, data.X_new))
    codes = torch.from_numpy(encode_groups(data.group_new).codes)

    def surrogate(theta: Tensor) -> Tensor:
        scores = torch.sigmoid(z_new + J_new @ theta)
        parity = CONSTRAINTS["demographic_parity"]
        return parity.surrogate(scores, torch.from_numpy(data.y_new), codes)

    nothing = torch.zeros(len(H), dtype=torch.float64)
    pull = torch.func.grad(surrogate)(nothing)
    step = -torch.linalg.solve(H + 0.05 * torch.eye(len(H)), gradient)
    assert fair.diagnostics_["drift"] == pytest.approx(float(pull @ step), rel=1e-7)
    # the drift is what a further (damped) Newton step on the leaves does to the surrogate
    small = 1e-3 * step
    moved = float(surrogate(small) - surrogate(nothing))
    assert moved == pytest.approx(1e-3 * fair.diagnostics_["drift"], rel=0.05)
