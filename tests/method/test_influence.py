"""Influence: the fast algorithm equals the slow one, and both equal the dense formula."""

from __future__ import annotations

import pytest
import torch

from fairij.method.curvature import make_curvature
from fairij.method.influence import (
    balanced_influence,
    influence,
    nested_gradients,
    weights_to_close,
)
from fairij.method.preparation import get_solver
from fairij.solvers import SOLVERS, ConjugateGradient, Exact, Inverse, Woodbury
from reference import Case, make_case, slow_influence

DAMPING = 0.05


def prepared(case: Case, solver: str) -> Inverse:
    settings = {"cg": ConjugateGradient(tolerance=1e-10)}.get(solver) or get_solver(solver)
    if solver == "neumann":
        settings = SOLVERS["neumann"](steps=50, tolerance=None)  # type: ignore[call-arg]
    return settings.prepare(make_curvature("ggn", case.objective()), DAMPING)


def fairness_gradient(case: Case) -> torch.Tensor:
    generator = torch.Generator().manual_seed(9)
    return torch.randn(len(case.theta), generator=generator, dtype=torch.float64)


def test_scores_equal_the_dense_formula(case: Case) -> None:
    v = fairness_gradient(case)
    matrix = case.ggn() + DAMPING * torch.eye(len(v)).double()
    expected = -case.w * (case.gradients() @ torch.linalg.solve(matrix, v))
    result = influence(case.objective(), prepared(case, "exact"), v)
    assert torch.allclose(result.scores, expected, rtol=1e-8, atol=1e-12)
    assert torch.allclose(result.direction, torch.linalg.solve(matrix, v))


@pytest.mark.parametrize("solver", sorted(set(SOLVERS) - {"printed_woodfisher"}))
def test_the_fast_algorithm_equals_the_slow_one(case: Case, solver: str) -> None:
    v = fairness_gradient(case)
    objective, inverse = case.objective(), prepared(case, solver)
    fast = influence(objective, inverse, v).scores
    slow, moved = slow_influence(objective, inverse, v)
    assert (fast - slow).norm() <= 1e-7 * slow.norm()
    assert moved.shape == (len(case.theta), len(case.X))


def test_the_edit_of_k_points_is_the_sum_of_the_slow_algorithms_changes(case: Case) -> None:
    objective, inverse = case.objective(), prepared(case, "exact")
    scores, moved = slow_influence(objective, inverse, fairness_gradient(case))
    order = torch.argsort(scores, descending=True)
    pulls = nested_gradients(objective, order, [1, 5, 5, 12])
    edits = inverse.solve(pulls).x
    for column, k in enumerate([1, 5, 5, 12]):
        expected = moved[:, order[:k]].sum(1)
        assert torch.allclose(edits[:, column], expected, rtol=1e-7, atol=1e-10)


def test_positive_means_that_dropping_lowers_the_quantity() -> None:
    """Checked on least squares, where leaving one point out has a closed form."""
    torch.manual_seed(0)
    case = make_case("regression")
    case.module = torch.nn.Linear(4, 1).double()
    rows = torch.cat([case.X, torch.ones(len(case.X), 1).double()], 1)
    best = torch.linalg.lstsq(rows, case.y).solution
    with torch.no_grad():
        case.module.weight.copy_(best[None, :4])
        case.module.bias.copy_(best[4:])
    v = fairness_gradient(case)  # M(theta) = v . theta
    inverse = Exact().prepare(make_curvature("ggn", case.objective()), 1e-10)
    scores = influence(case.objective(), inverse, v).scores
    leverage = (rows * torch.linalg.solve(rows.T @ rows, rows.T).T).sum(1)
    for n in range(len(case.X)):
        kept = torch.arange(len(case.X)) != n
        refit = torch.linalg.lstsq(rows[kept], case.y[kept]).solution
        # for least squares the jackknife is exact but for the point's own leverage
        expected = -float(scores[n] / (1 - leverage[n]))
        assert float(v @ (refit - best)) == pytest.approx(expected, rel=1e-6)


def test_woodbury_over_all_rows_ranks_as_the_exact_inverse_does(case: Case) -> None:
    v = fairness_gradient(case)
    operator = make_curvature("ggn", case.objective())
    whole = influence(case.objective(), Exact().prepare(operator, DAMPING), v).scores
    sampled = influence(case.objective(), Woodbury(10_000).prepare(operator, DAMPING), v).scores
    assert torch.allclose(whole, sampled, rtol=1e-6, atol=1e-10)


def test_the_printed_recurrence_is_not_symmetric_so_its_two_algorithms_differ(case: Case) -> None:
    """The paper's step from algorithm 1 to 2 needs x^T A y = y^T A x; eq. 11 does not have it."""
    inverse = prepared(case, "printed_woodfisher")
    A = inverse.solve(torch.eye(len(case.theta)).double()).x
    assert not torch.allclose(A, A.T, atol=1e-4)
    v, g = fairness_gradient(case), case.w[:, None] * case.gradients()
    fast = influence(case.objective(), inverse, v).scores
    slow, _ = slow_influence(case.objective(), inverse, v)
    assert torch.allclose(fast, -(g @ A @ v), atol=1e-10)
    assert torch.allclose(slow, -(g @ A.T @ v), atol=1e-10)


def test_balanced_weights_close_all_gaps_by_the_smallest_change(case: Case) -> None:
    generator = torch.Generator().manual_seed(3)
    G = torch.randn(len(case.theta), 3, generator=generator, dtype=torch.float64)
    gaps = torch.tensor([0.3, 0.1, 0.2], dtype=torch.float64)
    inverse = prepared(case, "exact")
    result, weights = balanced_influence(case.objective(), inverse, G, gaps)
    assert float(weights.abs().mean()) == pytest.approx(1)
    moved = G.T @ result.direction  # a step along -direction lowers all gaps in proportion
    assert torch.allclose(moved / moved[0], gaps / gaps[0], rtol=1e-4)
    matrix = case.ggn() + DAMPING * torch.eye(len(case.theta)).double()
    step = -result.direction * (gaps[0] / moved[0])
    null = torch.linalg.svd(G.T).Vh[3:]  # any other change that closes them costs more
    assert torch.allclose(G.T @ step, -gaps, rtol=1e-4)
    assert (null @ matrix @ step).norm() <= 1e-4 * (matrix @ step).norm()
    expected = -case.w * (case.gradients() @ result.direction)
    assert torch.allclose(result.scores, expected, atol=1e-12)


def test_two_gaps_that_are_one_still_have_weights(case: Case) -> None:
    v = fairness_gradient(case)
    G = torch.stack([v, v], 1)
    gaps = torch.tensor([0.2, 0.2], dtype=torch.float64)
    _, weights = balanced_influence(case.objective(), prepared(case, "exact"), G, gaps)
    assert torch.allclose(weights, torch.ones(2).double(), rtol=1e-3)


def test_more_gaps_than_the_model_can_move_are_closed_as_far_as_it_can() -> None:
    rng = torch.Generator().manual_seed(0)
    G = torch.randn(3, 8, generator=rng, dtype=torch.float64)  # three parameters, eight gaps
    gaps = torch.rand(8, generator=rng, dtype=torch.float64)
    weights = weights_to_close(G, G, gaps)
    unit = G.norm(dim=0)  # each gap counts in steps that move it alone
    nearest = torch.linalg.lstsq(G.T / unit[:, None], (gaps / unit)[:, None]).solution[:, 0]
    torch.testing.assert_close(G @ weights, nearest, rtol=1e-4, atol=1e-6)
