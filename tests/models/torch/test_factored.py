"""Jacobians in factors: equal to dense ones, and given up where a layer is used otherwise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairij.models import TorchEditable, adapt


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Reader(nn.Module):
    """Reads T vectors a row: an edited layer that is applied at every one of them."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.below, self.top = nn.Linear(4, 5), nn.Linear(5, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.top(torch.tanh(self.below(x)).amax(1))


class Cut(Reader):
    """Reads some of the columns, which do not lie side by side."""

    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[..., :4])


def network(*, outputs: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 6), nn.SELU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, outputs)
    )


FACTORED = {
    "mlp": (lambda: network(), "all", (4,)),
    "classes": (lambda: network(outputs=3), "all", (4,)),
    "head": (lambda: network(), "4", (4,)),
    "biases": (lambda: network(outputs=3), "*.bias", (4,)),
    "weights": (lambda: network(), "*.weight", (4,)),
    "sequence, biases": (lambda: Reader(1), "below.bias", (3, 4)),
    "sequence, cut": (lambda: Cut(), "all", (3, 6)),
    "sequence": (lambda: Reader(1), "all", (3, 4)),
    "sequence with classes": (lambda: Reader(2), "all", (3, 4)),
}


@pytest.mark.parametrize("name", FACTORED)
@pytest.mark.parametrize("memory_limit", [0, 2**30])
def test_products_equal_the_dense_jacobian(name: str, memory_limit: int) -> None:
    make, parameters, width = FACTORED[name]
    torch.manual_seed(0)
    module, X = make().double(), random(23, *width)
    model = TorchEditable(module, parameters=parameters, batch_size=7, memory_limit=memory_limit)
    linear = model.linearize(X)
    assert linear.mode == "factored"
    J = torch.func.jacrev(lambda t: _outputs(model, X, t))(model.theta)
    J = J if J.ndim == 3 else J[:, None]
    r, u = random(J.shape[2], seed=1), random(*linear.outputs.shape, seed=2)
    assert torch.allclose(linear.jvp(r).view(23, -1), J @ r, atol=1e-12)
    expected = torch.einsum("ncd,nc->d", J, u.view(23, -1))
    assert torch.allclose(linear.vjp(u), expected, atol=1e-12)
    squares, exact = linear.row_squares(), J.square().sum((1, 2))
    if memory_limit == 0:
        assert squares is None
    elif len(width) == 1:
        assert torch.allclose(squares, exact)
    else:  # a bound
        assert bool((squares >= exact - 1e-12).all())
    index = torch.tensor([20, 3, 3])
    assert torch.allclose(linear.rows(index), J[index], atol=1e-12)


def _outputs(model: TorchEditable, X: Tensor, theta: Tensor) -> Tensor:
    return model.call(model.split(theta), X)


def test_it_is_exact_at_other_parameters_too() -> None:
    torch.manual_seed(0)
    model, X = adapt(network().double()), random(9, 4)
    by, r = 0.1 * random(len(model.theta), seed=3), random(len(model.theta), seed=4)
    moved = model.linearize(X).moved(by)
    fresh = adapt(model.edited(model.theta + by)).linearize(X)
    assert moved.mode == fresh.mode == "factored"
    assert torch.allclose(moved.jvp(r), fresh.jvp(r), atol=1e-13)


class InPlace(nn.Module):
    """Two layers, so that the second one's result is written to in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(torch.tanh(self.first(x))).relu_())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(x))).sum(1)


class Elsewhere(nn.Module):
    """Its weight is in a linear layer once, and in a penalty on the outputs as well."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[:, 0] + (x @ self.layer.weight.T)[:, 0] ** 2


class Columnwise(nn.Module):
    """A layer over the rows' columns: as many of those as there are rows would fool a count."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.unsqueeze(1).transpose(0, 1))[0, :, 0]


@pytest.mark.parametrize("kind", [InPlace, Tied, Elsewhere, Columnwise])
def test_what_has_no_factors_goes_another_way_and_is_right(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, X = adapt(kind().double()), random(12, 4)
    linear = model.linearize(X)
    assert linear.mode != "factored"
    r, h = random(len(model.theta), seed=1), 1e-6
    expected = (model.outputs(X, model.theta + h * r) - model.outputs(X, model.theta - h * r)) / (
        2 * h
    )
    assert torch.allclose(linear.jvp(r), expected, atol=1e-7)


def test_many_outputs_have_no_factors() -> None:
    torch.manual_seed(0)
    assert adapt(network(outputs=16).double()).linearize(random(9, 4)).mode == "factored"
    assert adapt(network(outputs=17).double()).linearize(random(9, 4)).mode == "double_backward"


class Moody(nn.Module):
    """Runs its layer twice on batches that hold a large value."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.top = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.layer(x))
        if float(x.abs().max()) > 50:
            h = torch.tanh(F.linear(h, self.layer.weight))
        return self.top(h)


def test_one_batch_without_factors_is_differentiated_by_itself() -> None:
    torch.manual_seed(0)
    model, X = TorchEditable(Moody().double(), batch_size=32), random(640, 4)
    X[42] = 60.0  # no row on which factors are tried
    linear = model.linearize(X)
    assert linear.mode == "factored"
    r, h = random(len(model.theta), seed=1), 1e-6
    theta = model.theta
    expected = (model.outputs(X, theta + h * r) - model.outputs(X, theta - h * r)) / (2 * h)
    assert torch.allclose(linear.jvp(r), expected, atol=1e-6)
    assert abs(float(linear.vjp(expected) @ r - expected @ expected)) < 1e-4


def test_a_frozen_part_below_the_edited_layers_is_run_once() -> None:
    calls = []

    class Encoder(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(len(x))
            return torch.sin(x)

    torch.manual_seed(0)
    model = adapt(nn.Sequential(Encoder(), nn.Linear(4, 1)).double())
    linear = model.linearize(random(40, 4))
    calls.clear()
    for seed in range(3):
        linear.vjp(linear.jvp(random(5, seed=seed)))
    assert calls == []


def test_the_data_are_not_counted_as_memory_of_the_factors() -> None:
    X = random(64, 400)
    one_layer = nn.Linear(400, 1).double()
    slopes = 64 * 8  # one number a row; the inputs are the rows themselves
    own = 401 * 8  # what a batch's sum takes
    enough = TorchEditable(one_layer, batch_size=64, memory_limit=slopes + own)
    assert len(enough.linearize(X)._kept) == 1
    short = TorchEditable(one_layer, batch_size=64, memory_limit=slopes + own - 1)
    assert len(short.linearize(X)._kept) == 0
