"""A sample that stands for all rows, and conjugate gradients that are guided by it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fairij import ArraySource, ConjugateGradient, FairIJ, SharedConjugateGradient
from fairij.errors import InvalidInputError
from fairij.method.curvature import dense, make_curvature
from fairij.method.objective import Objective
from fairij.solvers import conjugate_gradient
from fairij.solvers.guides import sampled
from reference import Case, make_case

DAMPING = 1e-3


def right_hand_sides(case: Case, columns: int) -> torch.Tensor:
    draws = torch.Generator().manual_seed(3)
    return torch.randn(len(case.theta), columns, generator=draws, dtype=torch.float64)


def shifted(matrix: torch.Tensor, damping: float = DAMPING) -> torch.Tensor:
    return matrix + damping * torch.eye(len(matrix), dtype=matrix.dtype)


@pytest.mark.parametrize("name", ["mlp", "softmax", "mlp_weighted_l2"])
@pytest.mark.parametrize("kind", ["ggn", "empirical_fisher"])
def test_in_the_mean_a_sample_has_the_curvature_of_all_rows(name: str, kind: str) -> None:
    case = make_case(name, n=120)
    curvature = make_curvature(kind, case.objective())
    expected = dense(curvature)
    made = []
    for seed in range(100):
        sample = sampled(curvature, 40, seed=seed)
        assert sample is not None
        made.append(dense(sample))
    counts = [len(sampled(curvature, 40, seed=seed).objective.y) for seed in range(20)]  # type: ignore[union-attr]
    assert 30 < np.mean(counts) < 45
    off = (torch.stack(made).mean(0) - expected).norm() / expected.norm()
    single = (made[0] - expected).norm() / expected.norm()
    assert off < 0.25 * single


def test_a_row_is_the_likelier_the_more_curvature_it_has() -> None:
    case = make_case("mlp", n=400)
    curvature = make_curvature("ggn", case.objective())
    J, w = case.jacobian()[:, 0], case.w
    curve = torch.sigmoid(case.outputs(case.theta)).detach()
    trace = w * curve * (1 - curve) * J.square().sum(1)
    o = curvature.objective
    squares = o.model.row_squares()  # type: ignore[attr-defined]
    torch.testing.assert_close(curvature.traces(slice(0, 400)) * squares, trace)
    taken = torch.zeros(400)
    for seed in range(200):
        sample = sampled(curvature, 50, seed=seed)
        assert sample is not None
        rows = sample.objective.model._X  # type: ignore[attr-defined]
        taken += (case.X[:, None] == rows[None]).all(-1).any(1)
    heavy, light = trace.topk(40).indices, (-trace).topk(40).indices
    assert taken[heavy].mean() > 2 * taken[light].mean() > 0
    likely = (trace / trace.mean() + 0.1) / 1.1 / 8
    assert float((taken / 200 - likely.clamp_max(1)).abs().max()) < 0.15


@pytest.mark.parametrize("name", ["mlp", "softmax", "logistic"])
@pytest.mark.parametrize("options", [{}, {"memory_limit": 0}])
def test_a_guided_solve_meets_its_tolerance(name: str, options: dict[str, int]) -> None:
    case = make_case(name, n=400)
    operator = make_curvature("ggn", case.objective(**options))
    b = right_hand_sides(case, 3)
    inverse = ConjugateGradient(tolerance=1e-8, sample_rows=50).prepare(operator, DAMPING)
    assert inverse._guide is not None
    solution = inverse.solve(b)
    ggn = case.ggn()
    expected = torch.linalg.solve(shifted(ggn), b)
    assert torch.allclose(solution.x, expected, rtol=1e-5, atol=1e-6)
    assert float(solution.residual.max()) <= 1e-8
    at = inverse.with_damping(0.1)
    assert at._guide is not None
    assert at._guide.damping == 0.1
    expected = torch.linalg.solve(shifted(ggn, 0.1), b)
    assert torch.allclose(at.solve(b).x, expected, rtol=1e-5, atol=1e-6)


def stretched(rows: int) -> Case:
    """Features of very different sizes, so that plain conjugate gradients are slow."""
    draws = torch.Generator().manual_seed(0)
    X = torch.randn(rows, 60, generator=draws, dtype=torch.float64)
    X *= torch.logspace(-2, 1, 60, dtype=torch.float64)
    y = (X[:, :30].sum(1) > 0).double()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return replace(make_case("logistic"), module=torch.nn.Linear(60, 1).double(), X=X, y=y)


def test_a_guided_solve_takes_fewer_products_with_all_rows() -> None:
    case = stretched(4000)
    operator = make_curvature("ggn", case.objective())
    b = right_hand_sides(case, 1)
    plain = ConjugateGradient(tolerance=1e-4).prepare(operator, DAMPING).solve(b)
    guided = ConjugateGradient(tolerance=1e-4, sample_rows=500).prepare(operator, DAMPING).solve(b)
    assert guided.steps <= plain.steps / 2
    assert float((guided.x - plain.x).norm() / plain.x.norm()) < 1e-2


def test_few_rows_an_indefinite_curvature_and_several_processes_have_no_guide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = make_case("mlp", n=400)
    solver, objective = ConjugateGradient(sample_rows=50), case.objective()
    assert solver.prepare(make_curvature("ggn", objective), DAMPING)._guide is not None
    assert solver.prepare(make_curvature("hessian", objective), 10.0)._guide is None
    more = ConjugateGradient(sample_rows=51)
    assert more.prepare(make_curvature("ggn", objective), DAMPING)._guide is None
    nothing = Objective(
        objective.model, objective.y, objective.loss, 0 * objective.weights, objective.theta,
        objective.l2,
    )  # fmt: skip
    assert solver.prepare(make_curvature("ggn", nothing), DAMPING)._guide is None
    monkeypatch.setattr(conjugate_gradient, "processes", lambda: 2)
    assert solver.prepare(make_curvature("ggn", objective), DAMPING)._guide is None


def test_a_guide_that_shows_nothing_new_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample's answer lies in what is spanned already: the residual is taken instead."""
    case = stretched(4000)
    operator = make_curvature("ggn", case.objective())
    inverse = ConjugateGradient(tolerance=1e-1, sample_rows=500).prepare(operator, DAMPING)
    b = right_hand_sides(case, 2)
    inverse.solve(b[:, 0])
    known = inverse.directions.used()[0][0]
    assert inverse._guide is not None
    asked = []

    def answer(b: torch.Tensor) -> Any:
        asked.append(b)
        return SimpleNamespace(x=known)

    monkeypatch.setattr(inverse._guide, "solve", answer)
    found = inverse.solve(b[:, 1], tolerance=1e-4)
    assert len(asked) == found.steps > 0
    expected = torch.linalg.solve(shifted(dense(operator)), b[:, 1])
    assert float((found.x - expected).norm() / expected.norm()) < 1e-2


def test_a_sample_must_have_rows() -> None:
    said = "`sample_rows` must be a whole number of at least 0, or 'auto'; got -1"
    with pytest.raises(InvalidInputError, match=said):
        ConjugateGradient(sample_rows=-1)


@pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning")
def test_a_fit_with_a_sample_is_the_same_to_the_tolerance() -> None:
    case = make_case("mlp", n=600)
    groups = np.random.default_rng(0).integers(2, size=600)
    given = {"X_val": case.X, "y_val": case.y, "sensitive_features_val": groups}
    scores = []
    for rows in (0, 60):
        for kind in (ConjugateGradient, SharedConjugateGradient):
            solver = kind(tolerance=1e-8, sample_rows=rows)
            fair = FairIJ(
                case.module, solver=solver, search="grid", selection="lowest_gap", verbose=False
            ).fit(case.X, case.y, **given)
            scores.append(fair.influence_)
    source = ArraySource(case.X.numpy())
    solver = ConjugateGradient(tolerance=1e-8, sample_rows=60)
    fair = FairIJ(
        case.module, solver=solver, search="grid", selection="lowest_gap", verbose=False
    ).fit(source, case.y, **given)
    scores.append(fair.influence_)
    for other in scores[1:]:
        np.testing.assert_allclose(other, scores[0], rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_a_solve_that_may_take_no_further_step_is_corrected_by_the_sample(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = stretched(4000)
    operator = make_curvature("ggn", case.objective())
    b, A = right_hand_sides(case, 4), shifted(dense(operator))
    few = ConjugateGradient(tolerance=1e-9, sample_rows=500, max_steps=steps, on_failure="return")

    def left(column: int) -> tuple[float, float]:
        """How much energy is missing, and what was told of it."""
        inverse = few.prepare(operator, DAMPING)
        found = inverse.solve(b[:, column])
        assert inverse.products == found.steps == steps
        off = found.x - torch.linalg.solve(A, b[:, column])
        energy = b[:, column] @ torch.linalg.solve(A, b[:, column])
        return float((off @ A @ off / energy).sqrt()), float(found.residual)

    together = few.prepare(operator, DAMPING).solve(b).x
    corrected = [left(column) for column in range(4)]
    monkeypatch.setattr(conjugate_gradient.ConjugateInverse, "_correction", lambda *_: 0.0)
    uncorrected = [left(column) for column in range(4)]
    for (now, told), (before, as_before) in zip(corrected, uncorrected, strict=True):
        assert now < 0.8 * before
        assert told == as_before  # of the last step: the correction is not counted
    # several right-hand sides are left as they are
    assert torch.equal(few.prepare(operator, DAMPING).solve(b).x, together)
