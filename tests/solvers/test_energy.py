"""Solves stop on energy: columns of any scale give the scores of the dense inverse."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from fairij import ConjugateGradient, FairIJ, Identity, Woodbury
from fairij.errors import FairIJWarning, NotConvergedError
from fairij.method.curvature import Curvature, dense, make_curvature
from fairij.method.influence import scores_along
from fairij.method.objective import Objective, normalised_weights
from fairij.models import adapt
from fairij.models.losses import get_loss
from fairij.solvers import conjugate_gradient
from fairij.solvers.base import Solution

ROWS = 400
LOSSES = {1: "binary_cross_entropy", 3: "softmax_cross_entropy"}


def draws(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def raw_table(kind: str) -> np.ndarray:
    """Columns as people have them: of very different scales, and not centred."""
    X = (draws(ROWS, 8) + 1.5) * np.logspace(-3, 5, 8)
    codes = np.random.default_rng(1).integers(250, size=ROWS)
    return {
        "scales": lambda: X,
        "constant columns": lambda: np.column_stack([X, np.ones(ROWS), np.zeros(ROWS)]),
        "a column of 1e9": lambda: np.column_stack([X, np.full(ROWS, 1e9), 1e9 * X[:, 3]]),
        "twice the same": lambda: np.column_stack([X, 12 * X[:, -2:]]),
        "one-hot": lambda: np.column_stack([X, np.eye(250)[codes]]),
        "wide": lambda: np.column_stack([X, draws(ROWS, ROWS, seed=2)]),
    }[kind]()


def curvature_of(model: Any, X: Any, y: np.ndarray, **options: Any) -> Curvature:
    editable = adapt(model, **options)
    linear = editable.linearize(X)
    outputs = 1 if linear.outputs.ndim == 1 else linear.outputs.shape[1]
    weight = editable.row_weights(torch.from_numpy(y), None)
    theta = editable.theta
    penalty = editable.l2(len(y), len(y))
    return make_curvature(
        "ggn",
        Objective(
            linear,
            torch.from_numpy(y).to(theta),
            get_loss(LOSSES[outputs]),
            normalised_weights(weight, len(y), theta),
            theta,
            torch.zeros(()) if penalty is None else penalty.to(theta),
        ),
    )


def fitted(X: np.ndarray, y: np.ndarray, **settings: Any) -> LogisticRegression:
    """A logistic regression on scaled columns, its coefficients put back on the raw ones."""
    scale = np.abs(X).max(0) + (np.abs(X).max(0) == 0)
    model = LogisticRegression(max_iter=500, **settings).fit(X / scale, y)
    model.coef_ = model.coef_ / scale
    return model


def labels(X: np.ndarray, classes: int = 2) -> np.ndarray:
    score = X[:, 2] / 1e-1 + draws(len(X), seed=4)
    return np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))


def pulls(curvature: Curvature, columns: int = 1) -> Tensor:
    """Right-hand sides such as a fairness gradient gives: differences of means of J."""
    model, z = curvature.objective.model, curvature.objective.model.outputs
    signs = torch.randn(columns, *z.shape, generator=torch.Generator().manual_seed(3))
    return torch.stack([model.vjp(sign.to(z) / len(z)) for sign in signs], 1)


def energy_error(curvature: Curvature, damping: float, b: Tensor, x: Tensor) -> Tensor:
    """By a dense inverse, whose parameters are scaled to keep it exact."""
    matrix = dense(curvature)
    matrix.diagonal().add_(damping)
    scale = matrix.diagonal().rsqrt()
    matrix, b = scale[:, None] * matrix * scale, scale[:, None] * b.double()
    best = torch.linalg.solve(matrix, b)
    off = x.double() / scale[:, None] - best
    return ((off * (matrix @ off)).sum(0) / (best * b).sum(0)).sqrt()


@pytest.mark.parametrize(
    "kind",
    ["scales", "constant columns", "a column of 1e9", "twice the same", "one-hot", "wide"],
)
@pytest.mark.parametrize("damping", [1e-2, 1e-8])
def test_raw_columns_are_solved_to_the_tolerance(kind: str, damping: float) -> None:
    X = raw_table(kind)
    y = labels(X)
    curvature = curvature_of(fitted(X, y), X, y)
    b = pulls(curvature, 3)
    solution = ConjugateGradient().prepare(curvature, damping).solve(b)
    assert solution.residual.max() <= 1e-2
    slack = 1.5 if kind == "wide" else 1.0  # the error is an estimate
    assert (energy_error(curvature, damping, b, solution.x) <= slack * 1e-2).all()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_scaling_by_the_diagonal_takes_few_steps(classes: int, sparse: bool) -> None:
    X = draws(ROWS, 40) * np.logspace(-3, 5, 40)
    y = labels(X, classes)
    rows = csr_matrix(X) if sparse else X
    curvature = curvature_of(fitted(X, y, class_weight="balanced"), rows, y)
    diagonal = curvature.diagonal()
    assert diagonal is not None
    torch.testing.assert_close(diagonal, dense(curvature).diagonal(), rtol=1e-10, atol=0)
    z = curvature.objective.model.outputs
    u = torch.from_numpy(draws(*z.shape, seed=5))
    u = u if classes == 2 else u - u.mean(1, keepdim=True)  # as for probabilities
    b = curvature.objective.model.vjp(u / ROWS)[:, None]
    scaled = ConjugateGradient().prepare(curvature, 1e-6).solve(b)
    plain = conjugate_gradient.ConjugateInverse(
        ConjugateGradient(), curvature, 1e-6, conjugate_gradient.Directions(b[:, 0], 2**20)
    ).solve(b)
    assert scaled.steps <= plain.steps / 2
    assert energy_error(curvature, 1e-6, b, scaled.x).max() <= 1e-2


def test_another_damping_keeps_the_scale() -> None:
    X = raw_table("scales")
    y = labels(X)
    curvature = curvature_of(fitted(X, y), X, y)
    b = pulls(curvature, 2)
    first = ConjugateGradient(tolerance=1e-6).prepare(curvature, 1e-3)
    first.solve(b)
    for damping in (1e-1, 1e-5):
        other = first.with_damping(damping)
        assert torch.equal(other.directions.scale, first.directions.scale)
        assert energy_error(curvature, damping, b, other.solve(b).x).max() <= 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_on_raw_columns_ranks_as_the_dense_inverse(dtype: torch.dtype) -> None:
    X = raw_table("scales")[:, 2 : 8 if dtype == torch.float64 else 5]
    y = labels(raw_table("scales"))
    model = MLPClassifier((12,), max_iter=40, random_state=0, solver="lbfgs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it need not be at its minimum
        model.fit(X / np.abs(X).max(0), y)
    model.coefs_[0] = model.coefs_[0] / np.abs(X).max(0)[:, None]
    module = adapt(model)._module.to(dtype)
    curvature = curvature_of(module, torch.from_numpy(X).to(dtype), y)
    assert curvature.diagonal() is None
    b = pulls(curvature)
    solution = ConjugateGradient().prepare(curvature, 1e-2).solve(b)
    matrix = dense(curvature)
    matrix.diagonal().add_(1e-2)
    best = torch.linalg.solve(matrix, b.double())[:, 0].to(dtype)
    found, exact = (scores_along(curvature.objective, x) for x in (solution.x[:, 0], best))
    top, expected = (set(scores.topk(40).indices.tolist()) for scores in (found, exact))
    assert len(top & expected) >= 38


@pytest.mark.parametrize("factor", [1.0, 3.0, 30.0, 1000.0])
def test_float32_on_raw_columns_ends_early_and_never_says_less_than_its_error(
    factor: float,
) -> None:
    X = torch.from_numpy(raw_table("scales")).float() * factor
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    with torch.no_grad():
        module[0].weight.div_(X.abs().max(0).values)
    y = labels(X.double().numpy())
    curvature = curvature_of(module, X, y)
    b = pulls(curvature)
    solver = ConjugateGradient(on_failure="return")
    solution = solver.prepare(curvature, 1e-2).solve(b)
    matrix = dense(curvature_of(module.double(), X.double(), y))
    matrix.diagonal().add_(1e-2)
    best = torch.linalg.solve(matrix, b.double())
    off = solution.x.double() - best
    error = ((off * (matrix @ off)).sum(0) / (best * (matrix @ best)).sum(0)).sqrt()
    assert solution.steps < 60
    assert (error <= solution.residual + 1e-2).all()
    assert factor > 30 or (solution.residual <= 3 * error + 1e-2).all()
    assert factor > 1 or error.max() <= 2e-2


def test_a_column_that_nothing_was_spent_on_is_not_taken_for_solved() -> None:
    """Two blocks that share no parameter: steps for one say nothing of the other."""
    X = np.zeros((ROWS, 12))
    X[: ROWS // 2, :6] = draws(ROWS // 2, 6) * np.logspace(0, 3, 6)
    X[ROWS // 2 :, 6:] = draws(ROWS // 2, 6, seed=1) * np.logspace(-3, 0, 6)
    y = labels(raw_table("scales"))
    curvature = curvature_of(fitted(X, y, fit_intercept=False), X, y)
    signs = torch.zeros(2, ROWS, dtype=torch.float64)
    signs[0, : ROWS // 2], signs[1, ROWS // 2 :] = 1, 1
    noise = torch.from_numpy(draws(2, ROWS, seed=5))
    b = torch.stack(
        [curvature.objective.model.vjp(s * n) for s, n in zip(signs, noise, strict=True)], 1
    )
    inverse = ConjugateGradient().prepare(curvature, 1e-4)
    together = inverse.solve(b).x
    assert energy_error(curvature, 1e-4, b, together).max() <= 1e-2
    apart = ConjugateGradient().prepare(curvature, 1e-4)
    one_by_one = torch.stack([apart.solve(v).x for v in b.T], 1)
    assert energy_error(curvature, 1e-4, b, one_by_one).max() <= 1e-2


@pytest.mark.filterwarnings("ignore::fairij.errors.SeenRowsWarning")
def test_regression_on_raw_columns() -> None:
    X = raw_table("scales")
    y = X @ (draws(8, seed=6) / np.logspace(-3, 5, 8)) + draws(ROWS, seed=7)
    model = Ridge(alpha=1e-3, solver="svd").fit(X, y)
    given = {"X_val": X, "y_val": y, "sensitive_features_val": draws(ROWS, seed=8) > 0}
    scores = [
        FairIJ(
            model,
            constraints="mean_prediction",
            solver=solver,
            search="grid",
            selection="lowest_gap",
            verbose=False,
        )
        .fit(X, y, **given)
        .influence_
        for solver in ("cg", "exact")
    ]
    top, expected = (set(np.argsort(-found)[:40]) for found in scores)
    assert len(top & expected) >= 38


@pytest.mark.filterwarnings("ignore::fairij.errors.SeenRowsWarning")
@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
@pytest.mark.parametrize("solver", [Identity(), Woodbury(rows=20)])
def test_a_solver_that_comes_only_roughly_near_says_so_in_fit(solver: Any) -> None:
    X = raw_table("scales")
    y = labels(X)
    given = {"X_val": X, "y_val": y, "sensitive_features_val": draws(ROWS, seed=8) > 0}
    with pytest.warns(FairIJWarning, match=rf"solver '{solver.name}' comes only roughly near"):
        FairIJ(
            fitted(X, y), solver=solver, search="grid", selection="lowest_gap", verbose=False
        ).fit(X, y, **given)


def test_where_the_steps_run_out_features_are_named_as_a_cause() -> None:
    X = raw_table("wide")
    y = labels(X)
    curvature = curvature_of(fitted(X, y), X, y)
    inverse = ConjugateGradient(max_steps=5).prepare(curvature, 1e-8)
    with pytest.raises(NotConvergedError, match="features have very different scales"):
        inverse.solve(pulls(curvature))


def test_the_error_of_a_given_solution_is_measured() -> None:
    X = raw_table("scales")
    y = labels(X)
    curvature = curvature_of(fitted(X, y), X, y)
    b = pulls(curvature, 2)
    matrix = dense(curvature)
    matrix.diagonal().add_(1e-3)
    best = torch.linalg.solve(matrix, b)
    for off in (1e-6, 1e-2, 0.5, 3.0):
        x = best * (1 + off)
        solution = Solution.of(x, b, curvature, 1e-3, steps=0)
        assert solution.residual == pytest.approx(off, rel=0.2)
    nothing = Solution.of(0 * b, 0 * b, curvature, 1e-3, steps=0)
    assert torch.equal(nothing.residual, torch.zeros(2, dtype=torch.float64))


def test_a_right_hand_side_that_is_not_finite_is_an_error() -> None:
    X = raw_table("scales")
    y = labels(X)
    curvature = curvature_of(fitted(X, y), X, y)
    b = pulls(curvature)[:, 0]
    b[0] = torch.nan
    inverse = ConjugateGradient().prepare(replace(curvature), 1e-2)
    with pytest.raises(ArithmeticError):
        inverse.solve(b)


@pytest.mark.filterwarnings("ignore::fairij.errors.SeenRowsWarning")
@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
def test_automatic_damping_on_raw_columns_says_what_it_holds_in_place() -> None:
    X = raw_table("scales")
    y = labels(X)
    given = {"X_val": X, "y_val": y, "sensitive_features_val": draws(ROWS, seed=8) > 0}
    with pytest.warns(FairIJWarning, match="damping='auto'.*of the largest scale.*78% of the"):
        FairIJ(
            fitted(X, y), damping="auto", search="grid", selection="lowest_gap", verbose=False
        ).fit(X, y, **given)
    scaled = X / np.abs(X).max(0)
    FairIJ(
        fitted(scaled, y), damping="auto", search="grid", selection="lowest_gap", verbose=False
    ).fit(scaled, y, **given | {"X_val": scaled})
