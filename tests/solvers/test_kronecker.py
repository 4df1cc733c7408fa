"""The curvature of linear layers as one Kronecker product, and the sample that it guides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from fairij import ArraySource, ConjugateGradient, FairIJ
from fairij.errors import InvalidInputError
from fairij.method.curvature import Curvature, dense, make_curvature
from fairij.models import adapt
from fairij.models.base import Factors
from fairij.scale.streaming import StreamedEditable
from fairij.solvers import conjugate_gradient, kronecker
from fairij.solvers.conjugate_gradient import ConjugateInverse
from fairij.solvers.kronecker import KroneckerInverse
from reference import Case, make_case

DAMPING = 1e-3


def curvature_of(case: Case, kind: str = "ggn", **options: Any) -> Curvature:
    return make_curvature(kind, case.objective(**options))


def shifted(matrix: Tensor, damping: float = DAMPING) -> Tensor:
    return matrix + damping * torch.eye(len(matrix), dtype=matrix.dtype)


def drawn(size: int) -> Tensor:
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def inverse_of(curvature: Curvature) -> KroneckerInverse:
    found = KroneckerInverse.of(curvature, DAMPING)
    assert found is not None
    return found


def by_rows(curvature: Curvature, layers: list[Factors]) -> Tensor:
    """``G x A`` of every layer as a dense matrix, row by row and place by place."""
    o = curvature.objective
    total = torch.zeros(len(o.theta), len(o.theta), dtype=torch.float64)
    middle, m = curvature.middle(), curvature.traces(slice(None))
    assert m is not None
    for layer in layers:
        n, places = layer.inputs.shape[:2]
        G, A = torch.zeros(1), torch.zeros(1)
        for row in range(n):
            for t in range(places):
                d, x = layer.slopes[row, :, t], layer.inputs[row, t]
                x = x if layer.bias is None else torch.cat([x, x.new_ones(1)])
                G = G + d.T @ middle[row] @ d
                A = A + m[row] * torch.outer(x, x) / (places * m.sum())
        at = torch.arange(len(o.theta))
        own = [at[s].view(len(G), -1) for s in (layer.weight, layer.bias) if s is not None]
        index = torch.cat(own, 1).flatten()
        total[index[:, None], index] = torch.kron(G, A)
    return total


class Places(nn.Module):
    """A layer that every row uses at three places, one without a bias, one with a fixed weight."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.free = nn.Linear(2, 3), nn.Linear(9, 4, bias=False)
        self.last = nn.Linear(4, 2)
        self.last.weight.requires_grad_(False)
        self.double()

    def forward(self, X: Tensor) -> Tensor:
        every = torch.stack([X[:, :2], X[:, 1:3], X[:, 2:]], 1)
        return self.last(torch.tanh(self.free(torch.tanh(self.each(every)).flatten(1))))


def place_case() -> Case:
    torch.manual_seed(3)
    case = make_case("softmax", n=30)
    return replace(case, module=Places(), y=(case.y > 0).double())


@pytest.mark.parametrize("kind", ["ggn", "empirical_fisher"])
@pytest.mark.parametrize("name", ["logistic", "mlp_weighted_l2", "softmax", "places"])
def test_it_inverts_the_product_of_the_sums_of_each_layer(name: str, kind: str) -> None:
    case = place_case() if name == "places" else make_case(name, n=30)
    curvature = curvature_of(case, kind, batch_size=11)
    layers = curvature.objective.model.factors()
    assert layers is not None
    inverse = KroneckerInverse(
        [kronecker.Block.of(f, scaled_roots(curvature)) for f in layers],
        curvature.objective.l2,
        DAMPING,
    )
    matrix = by_rows(curvature, layers)
    b = drawn(len(matrix))
    for damping in (DAMPING, 0.3):
        shift = kronecker.FLOOR * (damping + case.l2)
        expected = torch.linalg.solve(shifted(matrix, shift), b)
        found = inverse.with_damping(damping)
        assert found.damping == damping
        torch.testing.assert_close(found.solve(b).x, expected, rtol=1e-8, atol=1e-8)


def scaled_roots(curvature: Curvature) -> Tensor:
    return curvature.roots(slice(None)) * curvature.objective.weights.sqrt()[:, None, None]


def test_a_single_layer_with_one_output_is_inverted_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kronecker, "FLOOR", 1.0)
    curvature = curvature_of(make_case("logistic", n=200))
    b = drawn(5)
    expected = torch.linalg.solve(shifted(dense(curvature)), b)
    torch.testing.assert_close(inverse_of(curvature).solve(b).x, expected)


def test_without_factors_or_where_it_costs_more_than_a_product_there_is_none() -> None:
    crossed = replace(make_case("mlp", n=300), module=Tied().double())
    assert KroneckerInverse.of(curvature_of(crossed), DAMPING) is None
    assert KroneckerInverse.of(curvature_of(make_case("mlp", n=300), "hessian"), DAMPING) is None
    assert KroneckerInverse.of(curvature_of(make_case("mlp", n=10)), DAMPING) is None
    assert KroneckerInverse.of(curvature_of(make_case("mlp", n=300)), DAMPING) is not None


class Tied(nn.Module):
    """One layer that is used twice: its Jacobian is no outer product."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, X: Tensor) -> Tensor:
        return self.outer(torch.tanh(self.inner(torch.tanh(self.inner(X)))))


def wide(n: int, dtype: torch.dtype = torch.float64) -> Case:
    """A network with more directions than a few steps find."""
    X = torch.randn(n, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = (X[:, :6].sum(1) + X[:, 6] * X[:, 7] > 0).double()
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 1)).to(dtype)
    return replace(make_case("mlp"), module=module, X=X, y=y)


def test_by_default_a_sample_guides_networks_that_come_in_factors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conjugate_gradient, "SAMPLE", 300)
    operator = curvature_of(wide(2400))
    b = operator.objective.model.vjp(drawn(2400) / 2400)
    auto = ConjugateGradient().prepare(operator, DAMPING)
    assert isinstance(auto._guide, ConjugateInverse)
    assert isinstance(auto._guide._guide, KroneckerInverse)
    plain = ConjugateGradient(sample_rows=0).prepare(operator, DAMPING)
    assert plain._guide is None
    expected = torch.linalg.solve(shifted(dense(operator)), b)
    for inverse in (auto, plain):
        off = inverse.solve(b).x - expected
        assert (off @ (shifted(dense(operator)) @ off) / (b @ expected)).sqrt() <= 1e-2
    assert auto.products <= plain.products / 2
    again = auto.with_damping(0.1)
    assert isinstance(again._guide, ConjugateInverse)
    assert again._guide._guide is not None
    assert again._guide._guide.damping == 0.1
    tied = replace(wide(2400), module=nn.Sequential(nn.Linear(12, 4), Tied()).double())
    assert ConjugateGradient().prepare(curvature_of(tied), DAMPING)._guide is None
    few = curvature_of(wide(2399))
    assert ConjugateGradient().prepare(few, DAMPING)._guide is None
    steps = ConjugateGradient().stopped_after(5)
    assert (steps.sample_rows, steps.max_steps) == (0, 5)
    assert ConjugateGradient(sample_rows=7).stopped_after(5).sample_rows == 7


def test_other_families_have_no_sample_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conjugate_gradient, "SAMPLE", 10)
    case = wide(200)
    editable = adapt(LogisticRegression().fit(case.X.numpy(), case.y.numpy()))
    objective = replace(
        case.objective(), model=editable.linearize(case.X.numpy()), theta=editable.theta
    )
    assert ConjugateGradient().prepare(make_curvature("ggn", objective), DAMPING)._guide is None


@pytest.mark.parametrize("memory_limit", [2**28, 0])
def test_streams_have_a_sample_too(memory_limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conjugate_gradient, "SAMPLE", 60)
    monkeypatch.setattr("fairij.scale.streaming.CHUNK_ROWS", 100)
    case = wide(600)
    streamed = StreamedEditable(adapt(case.module, memory_limit=memory_limit))
    rows = streamed.linearize(ArraySource(case.X.numpy()))
    objective = case.objective()
    found = []
    for model in (objective.model, rows):
        operator = make_curvature("ggn", replace(objective, model=model))
        inverse = ConjugateGradient().prepare(operator, DAMPING)
        assert isinstance(inverse._guide, ConjugateInverse)
        b = objective.model.vjp(drawn(600) / 600)
        found.append(inverse.solve(b, tolerance=1e-4).x)
    assert (found[0] - found[1]).norm() <= 1e-3 * found[0].norm()


@pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning")
def test_a_fit_with_the_sample_ranks_as_the_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conjugate_gradient, "SAMPLE", 150)
    case = wide(1200, torch.float32)
    given = {"X_val": case.X.float(), "y_val": case.y, "sensitive_features_val": case.X[:, 0] > 0}
    top = []
    for solver in ("cg", "exact"):
        fair = FairIJ(case.module, solver=solver, verbose=False).fit(
            case.X.float(), case.y, **given
        )
        top.append(set(fair.influence_.argsort()[-100:].tolist()))
    assert len(top[0] & top[1]) >= 98


def test_a_sample_is_a_number_of_rows_or_auto() -> None:
    with pytest.raises(InvalidInputError, match=r"whole number of at least 0, or 'auto'; got 'x'"):
        ConjugateGradient(sample_rows="x")
