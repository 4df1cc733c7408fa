"""The check that matters: predictions against models really refitted without the points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from fairij.fairness import get_constraint
from fairij.fairness.groups import encode_groups
from fairij.method.curvature import make_curvature
from fairij.method.influence import influence, nested_gradients
from fairij.method.objective import Objective, normalised_weights
from fairij.models import adapt
from fairij.models.losses import get_loss
from fairij.solvers import Exact
from reference import fit_logistic

L2 = 1e-3
NO_DAMPING = 1e-12
LOSS = get_loss("binary_cross_entropy")


@dataclass
class Converged:
    """Logistic regression at its optimum, on data where one group is treated worse."""

    X: np.ndarray
    y: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray
    s_val: np.ndarray
    theta: np.ndarray
    objective: Objective

    def refit(self, dropped: np.ndarray) -> np.ndarray:
        weight = np.ones(len(self.X))
        weight[dropped] = 0
        return fit_logistic(self.X, self.y, weight, L2)

    def surrogate(self, theta: np.ndarray, constraint: str) -> tuple[float, torch.Tensor]:
        """M and its gradient with respect to theta."""
        rows = torch.tensor(np.column_stack([self.X_val, np.ones(len(self.X_val))]))
        z = rows @ torch.tensor(theta)
        ((value, dz),) = get_constraint(constraint).part_gradients(
            z, torch.tensor(self.y_val), encode_groups(self.s_val), LOSS, 1.0
        )
        return value, rows.T @ dz


@pytest.fixture(scope="module")
def converged() -> Converged:
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        s = rng.integers(2, size=n)
        X = rng.normal(size=(n, 6)) + 0.7 * s[:, None] * np.array([1, 1, 0, 0, 0, 0])
        chance = 1 / (1 + np.exp(-(X @ np.array([1, 0.5, -1, 0.3, 0, 0]) - 0.5)))
        return X, (rng.random(n) < chance).astype(float), s

    X, y, _ = draw(800)
    X_val, y_val, s_val = draw(600)
    theta = fit_logistic(X, y, np.ones(len(X)), L2)
    module = nn.Linear(6, 1).double()
    with torch.no_grad():
        module.weight.copy_(torch.tensor(theta[None, :6]))
        module.bias.copy_(torch.tensor(theta[6:]))
    editable = adapt(module)
    objective = Objective(
        editable.linearize(X),
        torch.tensor(y),
        LOSS,
        normalised_weights(None, len(X), editable.theta),
        editable.theta,
        torch.tensor(L2, dtype=torch.float64),
    )
    assert objective.gradient.norm() < 1e-10
    return Converged(X, y, X_val, y_val, s_val, theta, objective)


@pytest.mark.parametrize(
    "constraint", ["demographic_parity", "equalized_odds", "equal_opportunity"]
)
def test_leave_one_out(converged: Converged, constraint: str) -> None:
    inverse = Exact().prepare(make_curvature("ggn", converged.objective), NO_DAMPING)
    before, gradient = converged.surrogate(converged.theta, constraint)
    scores = influence(converged.objective, inverse, gradient).scores.numpy()
    points = np.random.default_rng(1).choice(len(converged.X), 150, replace=False)
    actual = np.array(
        [
            before - converged.surrogate(converged.refit(np.array([n])), constraint)[0]
            for n in points
        ]
    )
    assert np.corrcoef(scores[points], actual)[0, 1] >= 0.99
    slope = (scores[points] @ actual) / (actual @ actual)
    assert slope == pytest.approx(1, abs=0.03)  # the size is right too, not only the order


def test_leave_k_out_parameters_and_gap(converged: Converged) -> None:
    inverse = Exact().prepare(make_curvature("ggn", converged.objective), NO_DAMPING)
    before, gradient = converged.surrogate(converged.theta, "demographic_parity")
    scores = influence(converged.objective, inverse, gradient).scores
    order = torch.argsort(scores, descending=True)
    ks = [1, 5, 10, 20, 40]
    edits = inverse.solve(nested_gradients(converged.objective, order, ks)).x.numpy()
    predicted_change, actual_change = [], []
    for column, k in enumerate(ks):
        refit = converged.refit(order[:k].numpy())
        predicted, actual = edits[:, column], refit - converged.theta
        cosine = predicted @ actual / np.linalg.norm(predicted) / np.linalg.norm(actual)
        assert cosine > 0.99
        # the first-order step keeps the dropped points' curvature, so it is somewhat too short
        assert 0.65 < np.linalg.norm(predicted) / np.linalg.norm(actual) < 1
        after_edit = converged.surrogate(converged.theta + predicted, "demographic_parity")[0]
        after_refit = converged.surrogate(refit, "demographic_parity")[0]
        assert after_refit < before
        predicted_change.append(before - after_edit)
        actual_change.append(before - after_refit)
    assert np.corrcoef(predicted_change, actual_change)[0, 1] >= 0.99
    assert np.allclose(predicted_change, actual_change, rtol=0.4)
