"""Directions of one solve guide the next one, with a curvature nearby."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from biased import fitted, problem
from fairij import ConjugateGradient, Exact, SharedConjugateGradient
from fairij.method.curvature import GGN
from fairij.method.objective import Objective, normalised_weights
from fairij.models import adapt
from fairij.models.losses import LOSSES
from fairij.solvers.recycled import Recycled

DAMPING = 1e-3

ONE = torch.ones((), dtype=torch.float64)


def curvature(by: float = 0.0) -> GGN:
    data, editable = problem(), adapt(fitted(dtype=torch.float64))
    theta = editable.theta
    move = by * torch.randn(len(theta), generator=torch.Generator().manual_seed(1)).double()
    weights = normalised_weights(None, len(data.y), theta)
    model = editable.linearize(data.X.astype(float))
    y = torch.tensor(data.y).double()
    start = Objective(model, y, LOSSES["binary_cross_entropy"], weights, theta, 0 * theta[0])
    return GGN(start.moved(move))


def right(columns: int = 2) -> torch.Tensor:
    D = len(curvature().objective.theta)
    return torch.randn(D, columns, generator=torch.Generator().manual_seed(2)).double()


def test_it_is_exact_on_what_its_directions_span() -> None:
    inverse = ConjugateGradient(tolerance=1e-10).prepare(curvature(), DAMPING)
    inverse.solve(right())
    P, AP = inverse.directions.used()
    guide = Recycled.of(P, AP, None, 100, ONE)
    assert guide is not None
    shares = torch.linspace(-1, 1, len(P)).double()
    np.testing.assert_allclose(guide.solve(shares @ AP).x, shares @ P, rtol=1e-5, atol=1e-8)


def test_it_is_positive_definite_for_any_directions() -> None:
    generator = torch.Generator().manual_seed(0)
    P, old_P = (torch.randn(5, 12, generator=generator).double() for _ in range(2))
    roots = [torch.randn(12, 12, generator=generator).double() for _ in range(2)]
    A, old_A = (root @ root.T for root in roots)  # nothing is conjugate, and A is quite another
    guide = Recycled.of(P, P @ A, Recycled.of(old_P, old_P @ old_A, None, 12, ONE), 12, ONE)
    assert guide is not None
    dense = torch.stack([guide.solve(unit).x for unit in torch.eye(12).double()])
    torch.testing.assert_close(dense, dense.T, rtol=1e-5, atol=1e-8)
    scale = torch.linalg.eigvalsh(dense)
    assert scale.min() > -1e-9 * scale.max()


@pytest.mark.parametrize("by", [0.0, 1e-3])
def test_a_solve_nearby_takes_fewer_products(by: float) -> None:
    solver = ConjugateGradient(tolerance=1e-3)
    first = solver.prepare(curvature(), DAMPING)
    first.solve(right())
    there = curvature(by)
    near, alone = first.near(there, 2 * DAMPING), solver.prepare(there, 2 * DAMPING)
    found = near.solve(right())
    expected = Exact().prepare(there, 2 * DAMPING).solve(right()).x
    error = (found.x - expected).norm() / expected.norm()
    assert error < 0.05
    assert found.steps < alone.solve(right()).steps


def test_it_keeps_as_few_directions_as_there_is_room_for() -> None:
    D = len(curvature().objective.theta)
    solver = ConjugateGradient(max_steps=3, on_failure="return", memory_limit=2 * 8 * D * 5)
    inverse = solver.prepare(curvature(), DAMPING)
    for by in (0.0, 0.01, 0.02):
        inverse.solve(right())
        inverse = inverse.near(curvature(by), DAMPING)
    guide = inverse._guide
    assert isinstance(guide, Recycled)
    assert len(guide.P) == len(guide.AP) == 5


def test_a_sample_guides_every_solve() -> None:
    solver = ConjugateGradient(sample_rows=20)
    near = solver.prepare(curvature(), DAMPING).near(curvature(0.01), DAMPING)
    assert near._guide is not None
    assert not isinstance(near._guide, Recycled)


def test_settings_of_a_loose_solve() -> None:
    loose = SharedConjugateGradient(tolerance=1e-3).stopped_after(4)
    assert type(loose) is ConjugateGradient
    assert (loose.max_steps, loose.on_failure, loose.tolerance) == (4, "return", 1e-3)
    assert Exact().stopped_after(4) == Exact()
