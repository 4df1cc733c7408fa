"""Scores of the gap itself, and of several gaps together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from biased import fair, fitted, problem
from fairij import Exact, adapt
from fairij.fairness import CONSTRAINTS
from fairij.fairness.groups import encode_groups
from fairij.method.curvature import GGN
from fairij.method.objective import Objective
from fairij.method.refit import Refits
from fairij.models.losses import get_loss

FAR = 1e-3  # of a row


def changes(model: Any, constraint: str, groups: np.ndarray) -> np.ndarray:
    """How the smooth gap falls, per row, if a small part of each row is dropped."""
    data, refits = problem(), model._refits
    assert isinstance(refits, Refits)
    editable = adapt(model.estimator)
    inverse = Exact().prepare(GGN(at := _objective(refits, editable)), refits.damping)
    codes, y = encode_groups(groups), torch.tensor(data.y_val)
    loss = get_loss("binary_cross_entropy")

    def gap(theta: Tensor) -> float:
        z = editable.outputs(torch.tensor(data.X_val).double(), theta)
        parts = CONSTRAINTS[constraint].part_gradients(z, y.double(), codes, loss, 1.0)
        return sum(value for value, _ in parts)

    start = gap(editable.theta)
    each = at.model.sums(at.slope, [torch.tensor([n]) for n in range(40)])
    moves = inverse.solve(each).x
    return np.array([start - gap(editable.theta + FAR * move) for move in moves.T]) / FAR


def _objective(refits: Refits, editable: Any) -> Objective:
    return replace(refits.objective, model=editable.linearize(refits.training))


@pytest.mark.parametrize(
    ("constraint", "column"),
    [
        ("demographic_parity", "race"),
        ("equalized_odds_balanced", "sex"),
        ("equal_opportunity", "race"),
    ],
)
def test_a_positive_score_means_that_the_gap_falls(constraint: str, column: str) -> None:
    data = problem()
    groups = getattr(data, f"{column}_val")
    module = fitted(dtype=torch.float64)
    model = fair(module, constraints=constraint, solver="exact")
    data.fit(
        model,
        X=data.X.astype(float),
        X_val=data.X_val.astype(float),
        sensitive_features_val=groups,
    )
    expected = changes(model, constraint, groups)
    np.testing.assert_allclose(model.influence_[:40], expected, rtol=2e-2, atol=1e-7)
    joint = model.joint_influence_
    assert joint is not None
    # rows are dropped by the joint score, which is another one
    order = np.argsort(-joint, kind="stable")
    np.testing.assert_array_equal(model.dropped_, order[: len(model.dropped_)])
    assert ((joint > 0) & (model.influence_ < 0)).any()


def test_one_gap_has_one_score() -> None:
    model = problem().fit(fair())
    assert model.joint_influence_ is None
