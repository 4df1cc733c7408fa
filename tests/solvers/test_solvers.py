"""Solvers against dense float64 inverses; failures that must not pass in silence."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairij import FairIJ, Grid
from fairij.errors import InvalidInputError, NegativeCurvatureError, NotConvergedError
from fairij.method.curvature import GGN, make_curvature
from fairij.method.preparation import get_solver
from fairij.models.losses import get_loss
from fairij.solvers import (
    SOLVERS,
    ConjugateGradient,
    Exact,
    Identity,
    Neumann,
    PrintedWoodFisher,
    SharedConjugateGradient,
    Woodbury,
)
from reference import CASES, Case, make_case, printed_woodfisher, woodfisher_inverse

DAMPING = 0.02
SHARP = {
    "exact": Exact(),
    "cg": ConjugateGradient(tolerance=1e-10),
    "woodbury": Woodbury(rows=10_000),
}


def right_hand_sides(case: Case, columns: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(len(case.theta), columns, generator=generator, dtype=torch.float64)


def energy_error(matrix: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """``|x - A^-1 b|_A / |A^-1 b|_A`` of each column, by a dense inverse."""
    best = torch.linalg.solve(matrix, b.double())
    off = x.double() - best
    return ((off * (matrix @ off)).sum(0) / (best * b.double()).sum(0)).sqrt()


def damped(matrix: Tensor, damping: float = DAMPING) -> Tensor:
    return matrix + damping * torch.eye(len(matrix), dtype=torch.float64)


@pytest.mark.parametrize("curvature", ["ggn", "empirical_fisher"])
@pytest.mark.parametrize("solver", sorted(SHARP))
def test_solutions_equal_the_dense_inverse(case: Case, solver: str, curvature: str) -> None:
    b = right_hand_sides(case)
    expected = torch.linalg.solve(damped(getattr(case, curvature)()), b)
    operator = make_curvature(curvature, case.objective())
    inverse = SHARP[solver].prepare(operator, DAMPING)
    several = inverse.solve(b)
    assert torch.allclose(several.x, expected, rtol=1e-6, atol=1e-7)
    assert several.residual.shape == (3,)
    assert several.residual.max() < 1e-6
    assert several.steps >= 1
    one = inverse.solve(b[:, 0])
    assert one.x.shape == b[:, 0].shape
    assert torch.allclose(one.x, expected[:, 0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("curvature", ["ggn", "empirical_fisher"])
def test_the_neumann_series_is_cut_off_where_asked(case: Case, curvature: str) -> None:
    matrix = damped(getattr(case, curvature)(), 1.0)
    operator = make_curvature(curvature, case.objective())
    b = right_hand_sides(case)
    inverse = Neumann(tolerance=None, steps=8).prepare(operator, 1.0)
    assert inverse.scale >= float(torch.linalg.eigvalsh(matrix)[-1]) * 0.999
    power, expected = b.clone(), b.clone()
    for _ in range(8):
        power = power - matrix @ power / inverse.scale
        expected = expected + power
    solution = inverse.solve(b)
    assert torch.allclose(solution.x, expected / inverse.scale, rtol=1e-9, atol=1e-10)
    longer = Neumann(tolerance=None, steps=300, scale=inverse.scale).prepare(operator, 1.0).solve(b)
    assert longer.residual.max() < solution.residual.max() / 10


@pytest.mark.parametrize("solver", ["exact", "cg", "woodbury"])
def test_another_damping_reuses_what_was_done(case: Case, solver: str) -> None:
    operator = make_curvature("ggn", case.objective())
    first = SHARP[solver].prepare(operator, DAMPING)
    b = right_hand_sides(case)
    first.solve(b)
    second = first.with_damping(0.5)
    assert second.damping == 0.5
    expected = torch.linalg.solve(damped(case.ggn(), 0.5), b)
    assert torch.allclose(second.solve(b).x, expected, rtol=1e-6, atol=1e-7)


def test_directions_are_shared_among_right_hand_sides(case: Case) -> None:
    operator = make_curvature("ggn", case.objective())
    b = right_hand_sides(case, 1)[:, 0]
    shared = ConjugateGradient(tolerance=1e-8).prepare(operator, DAMPING)
    first = shared.solve(b)
    assert first.steps > 1
    assert shared.solve(3 * b).steps == 0  # the same Krylov space
    alone = ConjugateGradient(tolerance=1e-8).prepare(operator, DAMPING).solve(b)
    assert torch.equal(alone.x, first.x)


@pytest.mark.parametrize("kept", [2, 3, 5])
def test_a_small_memory_still_converges(case: Case, kept: int) -> None:
    bytes_ = kept * 2 * 8 * len(case.theta)
    solver = ConjugateGradient(tolerance=1e-9, memory_limit=bytes_, max_steps=5000)
    inverse = solver.prepare(make_curvature("ggn", case.objective()), DAMPING)
    b = right_hand_sides(case)
    expected = torch.linalg.solve(damped(case.ggn()), b)
    assert torch.allclose(inverse.solve(b).x, expected, rtol=1e-5, atol=1e-6)
    assert len(inverse.directions.used()[0]) <= max(kept, 2)


def test_the_error_is_told_in_float32_too() -> None:
    case = make_case("mlp", n=200)
    inverse = ConjugateGradient(tolerance=1e-3).prepare(
        make_curvature("ggn", case.objective(torch.float32)), DAMPING
    )
    b = right_hand_sides(make_case("mlp")).float()
    solution = inverse.solve(b)
    matrix = damped(make_case("mlp", n=200).ggn())
    assert (energy_error(matrix, b, solution.x) <= solution.residual + 1e-5).all()
    assert solution.residual.max() <= 1e-3


def test_a_zero_right_hand_side_gives_zero(case: Case) -> None:
    operator = make_curvature("ggn", case.objective())
    for solver in SHARP.values():
        x = solver.prepare(operator, DAMPING).solve(torch.zeros(len(case.theta)).double()).x
        assert torch.equal(x, torch.zeros_like(x))


def test_woodbury_over_fisher_rows_is_equation_10(case: Case) -> None:
    gradients = case.gradients() * (case.w * len(case.X)).sqrt()[:, None]
    operator = make_curvature("empirical_fisher", case.objective())
    b = right_hand_sides(case)
    x = Woodbury(rows=10_000).prepare(operator, DAMPING).solve(b).x
    inverse = woodfisher_inverse(gradients, DAMPING + case.l2)
    assert torch.allclose(x, inverse @ b, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("rows", [1, 2, 25, 10_000])
def test_the_printed_recurrence_equals_its_closed_form(case: Case, rows: int) -> None:
    solver = PrintedWoodFisher(rows=rows, seed=3)
    inverse = solver.prepare(make_curvature("ggn", case.objective()), DAMPING)
    order = solver.visited(len(case.X))
    assert len(order) == min(rows, len(case.X))
    b = right_hand_sides(case)
    for column in range(3):
        expected = printed_woodfisher(case.gradients()[order], b[:, column], len(case.X))
        assert torch.allclose(inverse.solve(b).x[:, column], expected, rtol=1e-9, atol=1e-11)


def test_the_printed_recurrence_changes_its_argument_along_one_gradient_only(case: Case) -> None:
    solver = PrintedWoodFisher()
    order = solver.visited(len(case.X))
    b = right_hand_sides(case)[:, 0]
    x = solver.prepare(make_curvature("ggn", case.objective()), DAMPING).solve(b).x
    g1 = case.gradients()[order[0]]
    change = b - x
    assert abs(float(change @ g1 / (change.norm() * g1.norm()))) == pytest.approx(1, abs=1e-9)


def test_identity_gives_back_its_argument_and_says_how_far_off_that_is(case: Case) -> None:
    b = right_hand_sides(case)
    solution = Identity().prepare(make_curvature("ggn", case.objective()), DAMPING).solve(b)
    assert torch.equal(solution.x, b)
    expected = energy_error(damped(case.ggn()), b, b)
    assert torch.allclose(solution.residual, expected, rtol=0.02)


def test_woodbury_on_a_sample_reports_its_distance_from_the_whole() -> None:
    case = make_case("mlp", n=200)
    operator = make_curvature("ggn", case.objective())
    solution = Woodbury(rows=20, seed=1).prepare(operator, DAMPING).solve(right_hand_sides(case))
    true = energy_error(damped(case.ggn()), right_hand_sides(case), solution.x)
    assert solution.residual.min() > 0.01
    assert torch.allclose(solution.residual, true, rtol=0.2)


def test_woodbury_measures_its_error_on_some_rows_alone() -> None:
    case = make_case("mlp", n=200)
    operator, b = make_curvature("ggn", case.objective()), right_hand_sides(case)[:, :1]
    whole = Woodbury(rows=20, seed=1).prepare(operator, DAMPING).solve(b)
    inverse = Woodbury(rows=20, seed=1, checked_rows=50).prepare(operator, DAMPING)
    some = inverse.solve(b)
    assert torch.equal(some.x, whole.x)
    of_an_edit = inverse.measured_error(operator, DAMPING, b, some.x)
    assert torch.equal(of_an_edit, some.residual)
    assert not torch.equal(some.residual, whole.residual)
    assert 0.3 < float(some.residual / whole.residual) < 3
    all_of_them = Woodbury(rows=20, seed=1, checked_rows=200).prepare(operator, DAMPING).solve(b)
    assert torch.equal(all_of_them.residual, whole.residual)


def test_stochastic_neumann_comes_near_the_inverse() -> None:
    case = make_case("logistic", n=200)
    operator = make_curvature("ggn", case.objective())
    b = right_hand_sides(case)[:, 0]
    expected = torch.linalg.solve(damped(case.ggn(), 0.3), b)
    solver = Neumann(tolerance=None, steps=100, batch_size=50, runs=10)
    x = solver.prepare(operator, 0.3).solve(b).x
    assert (x - expected).norm() < 0.1 * expected.norm()


def indefinite() -> Case:
    """A model far from a minimum: its Hessian has clearly negative eigenvalues."""
    case = make_case("mlp", seed=4)
    with torch.no_grad():
        for p in case.module.parameters():
            p.mul_(3.0)
    assert torch.linalg.eigvalsh(case.hessian())[0] < -0.05
    return case


@pytest.mark.parametrize("solver", [Exact(), ConjugateGradient(tolerance=1e-8)])
def test_negative_curvature_is_an_error_with_causes_and_cures(solver: Exact) -> None:
    case = indefinite()
    operator = make_curvature("hessian", case.objective())
    message = (
        r"hessian with damping 0.001 is not positive definite.*curvature='ggn'.*raise\s`damping`"
    )
    with pytest.raises(NegativeCurvatureError, match=message):
        solver.prepare(operator, 1e-3).solve(case.hessian()[:, :1].clone())
    lowest = float(torch.linalg.eigvalsh(case.hessian())[0])
    b = right_hand_sides(case)
    x = solver.prepare(operator, 0.1 - lowest).solve(b).x
    expected = torch.linalg.solve(damped(case.hessian(), 0.1 - lowest), b)
    assert torch.allclose(x, expected, rtol=1e-5, atol=1e-6)


def test_too_few_steps_is_an_error_unless_told_otherwise() -> None:
    case = make_case("mlp")
    operator = make_curvature("ggn", case.objective())
    b = right_hand_sides(case)
    with pytest.raises(NotConvergedError, match=r"after 2 steps, not the 1e-09.*raise `damping`"):
        ConjugateGradient(tolerance=1e-9, max_steps=2).prepare(operator, 1e-6).solve(b)
    lenient = ConjugateGradient(tolerance=1e-9, max_steps=2, on_failure="return")
    solution = lenient.prepare(operator, 1e-6).solve(b)
    assert solution.steps == 2
    assert solution.residual.max() > 1e-9


def test_a_neumann_scale_below_the_largest_eigenvalue_diverges_with_an_error() -> None:
    case = make_case("mlp")
    operator = make_curvature("ggn", case.objective())
    with pytest.raises(NotConvergedError, match=r"scale 0\.01 is below the largest eigenvalue"):
        Neumann(tolerance=None, steps=300, scale=0.01).prepare(operator, 1e-2).solve(
            right_hand_sides(case)
        )


def test_exact_will_not_build_what_does_not_fit() -> None:
    operator = make_curvature("ggn", make_case("mlp").objective())
    with pytest.raises(InvalidInputError, match=r"31 parameters.*use ConjugateGradient"):
        Exact(max_size=10).prepare(operator, DAMPING)


@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize("damping", [0.0, -0.1, float("nan"), float("inf")])
def test_damping_must_be_positive(solver: str, damping: float) -> None:
    operator = make_curvature("ggn", make_case("logistic").objective())
    with pytest.raises(InvalidInputError, match=rf"`damping` must be positive.*got {damping}"):
        get_solver(solver).prepare(operator, damping)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ConjugateGradient(tolerance=2),
            "`tolerance` must be a number, above 0 and below 1; got 2",
        ),
        (
            lambda: ConjugateGradient(max_steps=0),
            "`max_steps` must be a whole number of at least 1; got 0",
        ),
        (
            lambda: ConjugateGradient(on_failure="pass"),
            "`on_failure` must be one of .*'return'.*got 'pass'",
        ),
        (lambda: Woodbury(rows=0), "`rows` must be a whole number of at least 1; got 0"),
        (lambda: Woodbury(checked_rows=0), "`checked_rows` must be a whole number of at least 1"),
        (lambda: PrintedWoodFisher(rows=0), "`rows` must be a whole number of at least 1; got 0"),
        (
            lambda: Neumann(tolerance=None, steps=0),
            "`steps` must be a whole number of at least 1; got 0",
        ),
        (lambda: Neumann(scale=-1), "`scale` must be positive or 'power', got -1"),
        (lambda: get_solver("lissa"), "'cg', 'exact', 'identity', 'neumann'.*got 'lissa'"),
    ],
)
def test_settings_are_checked_when_they_are_made(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInputError, match=message):
        make()


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.sampled_from(CASES), st.floats(1e-3, 10), st.integers(0, 50), st.integers(1, 6))
def test_cg_meets_its_tolerance_for_any_damping(
    name: str, damping: float, seed: int, columns: int
) -> None:
    case = make_case(name, seed=seed)
    inverse = ConjugateGradient(tolerance=1e-6).prepare(
        make_curvature("ggn", case.objective()), damping
    )
    b = right_hand_sides(case, columns)
    solution = inverse.solve(b)
    true = energy_error(damped(case.ggn(), damping), b, solution.x)
    assert solution.residual.max() <= 1e-6
    assert true.max() <= 1.001e-6


def test_another_damping_starts_from_the_directions_at_hand() -> None:
    case = make_case("mlp", n=200)
    operator = make_curvature("ggn", case.objective())
    b = right_hand_sides(case, 1)[:, 0]
    fresh = ConjugateGradient(tolerance=1e-6).prepare(operator, 0.03).solve(b).steps
    first = ConjugateGradient(tolerance=1e-6).prepare(operator, 0.02)
    first.solve(b)
    assert first.with_damping(0.03).solve(b).steps < fresh / 2


def test_one_solver_serves_several_fits_of_the_same_model(case: Case) -> None:
    solver = SharedConjugateGradient(tolerance=1e-8)
    b = right_hand_sides(case, 2)

    def paid(damping: float, at: Case = case, curvature: str = "ggn") -> tuple[int, torch.Tensor]:
        found = solver.prepare(make_curvature(curvature, at.objective()), damping).solve(b)
        return found.steps, found.x

    fresh = paid(DAMPING)[0]
    assert fresh > 1
    steps, x = paid(DAMPING)
    assert steps == 0
    expected = torch.linalg.solve(damped(case.ggn()), b)
    assert torch.allclose(x, expected, rtol=1e-6, atol=1e-7)
    steps, x = paid(2 * DAMPING)
    assert steps < fresh
    expected = torch.linalg.solve(damped(case.ggn(), 2 * DAMPING), b)
    assert torch.allclose(x, expected, rtol=1e-6, atol=1e-7)
    # of another curvature, or of rows with other labels or weights, nothing is known
    assert paid(DAMPING, curvature="empirical_fisher")[0] > 1
    assert paid(DAMPING)[0] == fresh
    o = case.objective()
    lighter = dataclasses.replace(o, weights=o.weights * torch.linspace(0.5, 1, len(o.y)))
    assert solver.prepare(make_curvature("ggn", lighter), DAMPING).products == 0
    other = dataclasses.replace(o, theta=o.theta + 1)
    assert solver.prepare(make_curvature("ggn", other), DAMPING).products == 0
    paid(DAMPING)
    squared = o.loss is get_loss("squared_error")
    loss = get_loss("binary_cross_entropy" if squared else "squared_error")
    unlike = make_curvature("ggn", dataclasses.replace(o, loss=loss))
    assert solver.prepare(unlike, DAMPING).products == 0
    # nor of rows that have the same outputs by another Jacobian
    paid(DAMPING)
    model = o.model

    class Turned:
        outputs = model.outputs
        jvp, sandwich, diagonal = model.jvp, model.sandwich, model.diagonal

        def vjp(self, weights: Tensor) -> Tensor:
            return 2 * model.vjp(weights)

    turned = dataclasses.replace(o, model=Turned())
    assert solver.prepare(make_curvature("ggn", turned), DAMPING).products == 0


@pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning")
@pytest.mark.parametrize("search", ["path", "reweight", Grid(points=3)], ids=str)
def test_the_second_of_two_like_fits_takes_fewer_products(
    search: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, made = make_case("mlp", n=200), [0]
    product = GGN.product

    def counted(self: GGN, v: Tensor) -> Tensor:
        made[0] += 1
        return product(self, v)

    monkeypatch.setattr(GGN, "product", counted)
    solver, groups = SharedConjugateGradient(), (case.X[:, 0] > 0).numpy()
    products = []
    for _ in range(2):
        made[0] = 0
        FairIJ(
            case.module, solver=solver, search=search, selection="lowest_gap", verbose=False
        ).fit(case.X, case.y, X_val=case.X, y_val=case.y, sensitive_features_val=groups)
        products.append(made[0])
    assert products[1] < products[0]


def test_a_copy_of_a_shared_solver_has_its_settings_and_no_memory() -> None:
    case = make_case("mlp")
    solver = SharedConjugateGradient(tolerance=1e-5, max_steps=77, on_failure="return")
    operator = make_curvature("ggn", case.objective())
    solver.prepare(operator, DAMPING).solve(right_hand_sides(case))
    for other in (copy.deepcopy(solver), pickle.loads(pickle.dumps(solver))):
        assert other == solver
        assert other.prepare(operator, DAMPING).products == 0
    assert solver.prepare(operator, DAMPING).products > 0


def test_a_series_cut_too_short_is_an_error() -> None:
    case = make_case("mlp")
    inverse = Neumann(steps=3).prepare(make_curvature("ggn", case.objective()), 1e-3)
    with pytest.raises(NotConvergedError, match=r"after 3 terms, above its tolerance 0\.1"):
        inverse.solve(right_hand_sides(case))
