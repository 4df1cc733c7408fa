"""The inverse of a few rows' curvature among the rows, and conjugate gradients guided by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fairij import ConjugateGradient
from fairij.method.curvature import dense, make_curvature
from fairij.solvers.conjugate_gradient import ConjugateInverse
from fairij.solvers.guides import RowSpaceInverse
from reference import Case, make_case

DAMPING = 1e-3
PLENTY = 2**30


def shifted(matrix: torch.Tensor, damping: float) -> torch.Tensor:
    return matrix + damping * torch.eye(len(matrix), dtype=matrix.dtype)


def wide_case(rows: int) -> Case:
    """Many parameters, and features of very different sizes."""
    draws = torch.Generator().manual_seed(0)
    X = torch.randn(rows, 20, generator=draws, dtype=torch.float64)
    X *= torch.logspace(-1, 1, 20, dtype=torch.float64)
    y = (X[:, :15].sum(1) > 0).double()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Sequential(
            torch.nn.Linear(20, 60),
            torch.nn.Tanh(),
            torch.nn.Linear(60, 20, bias=False),
            torch.nn.ReLU(),
            torch.nn.Linear(20, 1),
        ).double()
    return replace(make_case("mlp"), module=module, X=X, y=y)


@pytest.mark.parametrize("name", ["mlp", "logistic", "mlp_weighted_l2"])
@pytest.mark.parametrize("batch_size", [7, 1000])
def test_inner_products_of_rows_are_those_of_their_jacobians(name: str, batch_size: int) -> None:
    case = make_case(name, n=40)
    J = case.jacobian()[:, 0]
    for dtype in (torch.float64, torch.float32):
        model: Any = case.objective(dtype, batch_size=batch_size).model
        found = model.row_products()
        torch.testing.assert_close(found, (J @ J.T).to(dtype))
        torch.testing.assert_close(found.diagonal(), model.row_squares())


class Crossed(torch.nn.Module):
    """Calls its layers in an order that depends on the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (torch.nn.Linear(4, 1, bias=False).double() for _ in "ab")

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        if X[0, 0] > 0:
            return self.one(X) + self.two(X) ** 2
        return self.two(X) ** 2 + self.one(X)


def test_layers_are_told_apart_by_their_parameters() -> None:
    case = make_case("mlp", n=40)
    torch.manual_seed(0)
    crossed = replace(case, module=Crossed(), X=case.X[case.X[:, 0].argsort()])
    J = crossed.jacobian()[:, 0]
    model: Any = crossed.objective(batch_size=10).model
    torch.testing.assert_close(model.row_products(), J @ J.T)


def test_without_all_factors_or_with_several_outputs_there_are_none() -> None:
    for name, options in (("softmax", {}), ("mlp", {"memory_limit": 0})):
        objective = make_case(name, n=40).objective(**options)
        assert objective.model.row_products() is None  # type: ignore[attr-defined]
        curvature = make_curvature("ggn", objective)
        assert RowSpaceInverse.of(curvature, DAMPING, memory_limit=PLENTY) is None


@pytest.mark.parametrize("name", ["mlp", "mlp_weighted_l2"])
@pytest.mark.parametrize("kind", ["ggn", "empirical_fisher"])
@pytest.mark.parametrize(("damping", "distrust"), [(1e-4, 0.0), (1.0, 0.0), (1e-4, 0.5)])
def test_it_is_the_inverse(name: str, kind: str, damping: float, distrust: float) -> None:
    curvature = make_curvature(kind, make_case(name, n=30).objective())
    inverse = RowSpaceInverse.of(curvature, 0.5, memory_limit=PLENTY, distrust=distrust)
    assert inverse is not None
    free = dense(curvature).trace() - curvature.objective.l2 * len(curvature.objective.theta)
    assert inverse.ridge == pytest.approx(distrust * float(free) / 30)
    b = torch.randn(len(curvature.objective.theta), dtype=torch.float64)
    solution = inverse.with_damping(damping).solve(b)
    expected = torch.linalg.solve(shifted(dense(curvature), damping + inverse.ridge), b)
    torch.testing.assert_close(solution.x, expected, rtol=1e-7, atol=1e-9)
    assert float(solution.residual.max()) < 1e-8


def test_it_is_not_made_of_more_rows_than_fit() -> None:
    curvature = make_curvature("ggn", make_case("mlp", n=30).objective())
    assert RowSpaceInverse.of(curvature, DAMPING, memory_limit=32 * 900) is not None
    assert RowSpaceInverse.of(curvature, DAMPING, memory_limit=32 * 900 - 1) is None


def test_where_memory_runs_out_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = make_case("mlp", n=30).objective()
    curvature = make_curvature("ggn", objective)
    for error, caught in ((torch.OutOfMemoryError("CUDA out of memory"), True), (ValueError(), 0)):

        def fails(error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(objective.model, "row_products", fails)
        if caught:
            assert RowSpaceInverse.of(curvature, DAMPING, memory_limit=PLENTY) is None
        else:
            with pytest.raises(ValueError):  # noqa: PT011 - the very one
                RowSpaceInverse.of(curvature, DAMPING, memory_limit=PLENTY)


def test_an_inverse_that_cannot_be_had_at_a_damping_is_none() -> None:
    curvature = make_curvature("ggn", make_case("mlp", n=60).objective())
    inverse = RowSpaceInverse.of(curvature, 1.0, memory_limit=PLENTY)
    assert inverse is not None
    inverse._products = inverse._products - 0.01 * torch.eye(60, dtype=torch.float64)
    assert inverse.with_damping(1e-3) is None
    assert inverse.with_damping(0.02) is not None


def test_a_penalty_that_differs_between_parameters_is_left_to_others() -> None:
    objective = make_case("mlp", n=30).objective()
    curvature = make_curvature("ggn", replace(objective, l2=torch.rand_like(objective.theta)))
    assert RowSpaceInverse.of(curvature, DAMPING, memory_limit=PLENTY) is None


def test_it_guides_where_parameters_are_many() -> None:
    operator = make_curvature("ggn", wide_case(800).objective())
    b = operator.objective.model.vjp(torch.randn(800, dtype=torch.float64))[:, None]
    plain = ConjugateGradient(tolerance=1e-6).prepare(operator, DAMPING)
    solver = ConjugateGradient(tolerance=1e-6, sample_rows=70)
    guided = solver.prepare(operator, DAMPING)
    assert isinstance(guided._guide, RowSpaceInverse)
    expected = torch.linalg.solve(shifted(dense(operator), DAMPING), b)
    assert float((guided.solve(b).x - expected).norm() / expected.norm()) < 1e-4
    assert guided.products < 0.9 * plain.solve(b).steps
    assert guided._guide.ridge > 0
    again = guided.with_damping(0.1)
    assert isinstance(again._guide, RowSpaceInverse)
    assert again._guide.damping == 0.1
    assert again._guide.ridge == guided._guide.ridge


def test_elsewhere_the_sample_is_solved_for_by_products() -> None:
    wide = make_curvature("ggn", wide_case(800).objective())
    little_memory = ConjugateGradient(sample_rows=70, memory_limit=1000)
    assert isinstance(little_memory.prepare(wide, DAMPING)._guide, ConjugateInverse)
    narrow = make_curvature("ggn", make_case("mlp", n=800).objective())
    solver = ConjugateGradient(sample_rows=70)
    assert isinstance(solver.prepare(narrow, DAMPING)._guide, ConjugateInverse)
