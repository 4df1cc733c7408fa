"""Modules that return probabilities: read as logits, as exactly as the module without its end."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from biased import fair, fitted, problem
from fairij.errors import InvalidInputError
from fairij.models import TorchEditable, adapt

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(3)).double()


class Ending(nn.Module):
    """A network whose outputs go through a function."""

    def __init__(self, body: nn.Module, end: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.body, self.end = body, end

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.body(x))


def network(
    outputs: int = 1, end: nn.Module | Callable[[Tensor], Tensor] | None = None
) -> nn.Module:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, outputs)).double()
    if end is None:
        return body
    return nn.Sequential(*body, end) if isinstance(end, nn.Module) else Ending(body, end)


# the number of outputs, what comes last, and whether it is found without a word
ENDS: dict[str, tuple[int, nn.Module | Callable[[Tensor], Tensor], bool]] = {
    "sigmoid layer": (1, nn.Sigmoid(), True),
    "softmax layer": (3, nn.Softmax(dim=1), True),
    "softmax over two": (2, nn.Softmax(dim=-1), True),
    "log-softmax layer": (3, nn.LogSoftmax(dim=1), True),
    "log-sigmoid layer": (1, nn.LogSigmoid(), True),
    "torch.sigmoid": (1, torch.sigmoid, True),
    "method": (1, lambda z: z.sigmoid().squeeze(-1), True),
    "F.softmax": (3, lambda z: F.softmax(z, dim=1), True),
    "F.log_softmax": (3, lambda z: F.log_softmax(z, 1), True),
    "torch.softmax": (2, lambda z: torch.softmax(input=z, dim=1), True),
    "clipped": (1, lambda z: torch.sigmoid(z).clamp(1e-7, 1 - 1e-7), False),
    "one of two": (2, lambda z: torch.softmax(z, 1)[:, 1], False),
    "by hand": (1, lambda z: 1 / (1 + torch.exp(-z)), False),
    "both columns": (1, lambda z: torch.cat([1 - z.sigmoid(), z.sigmoid()], 1), True),
}


@pytest.mark.parametrize("name", ENDS)
def test_outputs_and_products_are_those_of_the_logits(name: str) -> None:
    width, end, found = ENDS[name]
    module = network(width, end)
    model = TorchEditable(module, outputs="auto" if found else "probabilities", batch_size=16)
    plain = TorchEditable(network(width), outputs="logits")
    given, expected = model.linearize(X), plain.linearize(X)
    one = given.outputs.ndim == 1
    assert model.outputs_are == "probabilities"

    def p(z: Tensor) -> Tensor:  # of the positive class, or of all
        full = torch.stack([torch.zeros_like(z), z], 1) if z.ndim == 1 else z
        return torch.softmax(full, 1)

    assert torch.allclose(p(given.outputs), p(expected.outputs), atol=1e-12)
    r = torch.randn(len(model.theta), generator=torch.Generator().manual_seed(1)).double()
    # a constant shift of all classes does not count
    centred = [
        z if one or z.ndim == 1 else z - z.mean(1, keepdim=True)
        for z in (given.jvp(r), expected.jvp(r))
    ]
    if centred[0].shape == centred[1].shape:
        assert torch.allclose(*centred, atol=1e-9)
    u = torch.randn(given.outputs.shape, generator=torch.Generator().manual_seed(2)).double()
    dense = torch.func.jacrev(lambda t: model.call(model.split(t), X))(model.theta)
    assert torch.allclose(given.vjp(u), torch.einsum("...d,...->d", dense, u), atol=1e-10)
    assert torch.allclose(given.jvp(r), dense @ r, atol=1e-10)
    rows = given.rows(torch.tensor([5, 1]))
    assert torch.allclose(rows, dense[[5, 1]].reshape(2, -1, len(r)), atol=1e-10)
    assert given.mode == "factored"
    second = torch.func.hessian(lambda t: (u * model.call(model.split(t), X)).sum())(model.theta)
    assert torch.allclose(given.second_order(u, r), second @ r, atol=1e-8)
    moved = model.evaluator(X).along(r, torch.tensor([0.1, 1.0]))
    assert torch.allclose(moved[1], model.outputs(X, model.theta + r), atol=1e-9)


def test_an_edit_leaves_the_end_of_the_module_in_place() -> None:
    module = network(1, nn.Sigmoid())
    edited = adapt(module).edited(adapt(module).theta + 0.1)
    assert isinstance(edited[-1], nn.Sigmoid)
    assert bool(((edited(X) > 0) & (edited(X) < 1)).all())


def test_sure_outputs_keep_their_logits() -> None:
    module = network(1, nn.Sigmoid()).float()
    with torch.no_grad():
        module[2].bias += 60.0  # the probability is 1.0 to rounding
    model = TorchEditable(module)
    z = model.outputs(X)
    assert float(z.min()) > 40
    assert float(model.linearize(X).vjp(torch.ones(len(X))).norm()) > 1


LOGITS = {
    "a hidden sigmoid": network(),
    "a scaled sigmoid": network(1, lambda z: 8 * torch.sigmoid(z) - 4),
    "several sigmoids that are summed": network(3, lambda z: torch.sigmoid(z).sum(1) - 1.5),
    "a softmax of attention": network(3, lambda z: 3 * (torch.softmax(z, 1) * z).sum(1) - 1),
}


@pytest.mark.parametrize("name", LOGITS)
def test_logits_stay_as_they_are(name: str) -> None:
    model = TorchEditable(LOGITS[name])
    with torch.no_grad():
        expected = LOGITS[name](X).flatten()
    assert torch.equal(model.outputs(X), expected)
    assert model.outputs_are == "unknown"


def test_outputs_may_be_stated() -> None:
    module = network(1, nn.Sigmoid())
    as_they_are = TorchEditable(module, outputs="logits")
    with torch.no_grad():
        assert torch.equal(as_they_are.outputs(X), module(X)[:, 0])
    with pytest.raises(
        InvalidInputError, match=r"must be outputs between 0 and 1.*got outputs from"
    ):
        TorchEditable(network(), outputs="probabilities").outputs(X * 100)


def test_a_sigmoid_for_each_of_several_classes_is_refused() -> None:
    with pytest.raises(
        InvalidInputError, match=r"sigmoid for each of its 3 outputs.*end in a softmax"
    ):
        adapt(network(3, nn.Sigmoid())).outputs(X)


class Dropping(nn.Module):
    """Dropout that nothing turns off."""

    def __init__(self) -> None:
        super().__init__()
        self.top = nn.Linear(4, 1).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.top(F.dropout(x, 0.3, training=True))


RANDOM = {
    "dropout": Dropping(),
    "noise": network(1, lambda z: z + 0.05 * torch.randn_like(z)),
    "sampling": network(1, lambda z: torch.bernoulli(torch.sigmoid(z))),
}


@pytest.mark.parametrize("name", RANDOM)
def test_a_random_forward_pass_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"same outputs for the same rows.*self.training"):
        adapt(RANDOM[name]).outputs(X)


class Mixing(nn.Module):
    """Every row sees the mean of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4).double(), nn.Linear(4, 1).double()

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        return self.second(h * h.mean(0))


def with_statistics(of_batches: bool) -> nn.Module:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(6, track_running_stats=not of_batches)
    return nn.Sequential(nn.Linear(4, 6), norm, nn.SELU(), nn.Linear(6, 1)).double()


MIXING = {
    "a mean of the batch": Mixing(),
    "batch statistics": with_statistics(of_batches=True),
    "softmax over rows": network(2, lambda z: torch.softmax(z, 0)),
}


@pytest.mark.parametrize("name", MIXING)
def test_outputs_that_depend_on_the_other_rows_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"not depend on the other rows.*running stat"):
        adapt(MIXING[name]).outputs(X)


def test_statistics_of_the_training_rows_are_fine() -> None:
    assert adapt(with_statistics(of_batches=False)).outputs(X).shape == (40,)


class Later(nn.Module):
    """Uses the weights of its layer a second time, on rows that come late in the table."""

    def __init__(self) -> None:
        super().__init__()
        self.top = nn.Linear(4, 1).double()

    def forward(self, x: Tensor) -> Tensor:
        late = x[:, 3] > 1e3
        return self.top(x)[:, 0] + torch.where(
            late, (x[:, :3] * self.top.weight[0, :3]).sum(1), 0.0
        )


@pytest.mark.parametrize("share", [0.5, 0.1, 0.02])
def test_factors_are_tried_on_rows_from_all_over_the_table(share: float) -> None:
    rows = torch.randn(600, 4, generator=torch.Generator().manual_seed(0)).double()
    rows[-int(share * 600) :, 3] = 2e3
    model = TorchEditable(Later())
    linear, r = model.linearize(rows), torch.ones(5).double()
    assert linear.mode == "double_backward"
    moved = model.outputs(rows, model.theta + r) - model.outputs(rows)  # linear in theta
    assert torch.allclose(linear.jvp(r), moved)
    assert torch.allclose(linear.vjp(moved) @ r, moved @ moved)


@pytest.mark.parametrize("end", ["layer", "function", "softmax of two"])
def test_a_fit_on_probabilities_is_the_fit_on_logits(end: str) -> None:
    logits = fitted()
    if end == "softmax of two":
        logits = copy.deepcopy(logits)
        one = logits[2]
        two = nn.Linear(5, 2)
        with torch.no_grad():
            two.weight[0], two.bias[0] = 0, 0
            two.weight[1], two.bias[1] = one.weight[0], one.bias[0]
        logits[2] = two
        module: nn.Module = nn.Sequential(*logits, nn.Softmax(dim=1))
    else:
        module = (
            nn.Sequential(*logits, nn.Sigmoid())
            if end == "layer"
            else Ending(logits, torch.sigmoid)
        )
    data = problem()
    plain, found = data.fit(fair(logits)), data.fit(fair(module))
    assert found.before_["demographic_parity_difference"] > 0.1  # not 0.0, as for logits above 0
    assert np.array_equal(found.influence_, plain.influence_)
    assert found.candidates_.equals(plain.candidates_)
    assert np.array_equal(found.predict(data.X_val), plain.predict(data.X_val))
    assert type(found.estimator_) is type(module)
    with torch.no_grad():
        p = found.estimator_(torch.tensor(data.X_val)).numpy()
    assert np.allclose(
        p.reshape(len(p), -1)[:, -1], found.predict_proba(data.X_val)[:, 1], atol=1e-6
    )
