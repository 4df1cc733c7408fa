"""The torch family: J r, J^T u and rows against dense Jacobians, and what must not be touched."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref

import pytest
import torch
from torch import Tensor, nn

from fairij.errors import InvalidInputError
from fairij.models import TorchEditable, adapt
from fairij.models.torch.autograd import Graph, central_difference, saved_bytes, working_mode
from fairij.models.torch.factored import FactoredGraph
from fairij.models.torch.linearization import TorchLinearization
from fairij.models.torch.module import choose_parameters
from reference import Case, make_case


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("batch_size", ["auto", 7, 40])
@pytest.mark.parametrize("memory_limit", [0, 2**30])
def test_products_equal_the_dense_jacobian(
    case: Case, batch_size: int | str, memory_limit: int
) -> None:
    model = TorchEditable(case.module, batch_size=batch_size, memory_limit=memory_limit)
    linear = model.linearize(case.X)
    J = case.jacobian()
    r, u = random(len(case.theta)), random(*linear.outputs.shape)
    assert torch.allclose(linear.outputs, case.outputs(case.theta))
    assert torch.allclose(linear.jvp(r).view(len(J), -1), J @ r, atol=1e-12)
    assert torch.allclose(
        linear.vjp(u), torch.einsum("ncd,nc->d", J, u.view(len(J), -1)), atol=1e-12
    )
    index = torch.tensor([3, 0, 17])
    assert torch.allclose(linear.rows(index), J[index], atol=1e-12)
    assert torch.allclose(linear.restrict(index).jvp(r).view(3, -1), J[index] @ r, atol=1e-12)


def test_second_order_equals_the_hessian_of_weighted_outputs(case: Case) -> None:
    linear = adapt(case.module).linearize(case.X)
    u, r = random(*linear.outputs.shape, seed=1), random(len(case.theta), seed=2)
    dense = torch.func.hessian(lambda t: (u * case.outputs(t)).sum())(case.theta)
    assert torch.allclose(linear.second_order(u, r), dense @ r, atol=1e-11)


def test_graphs_are_kept_within_the_memory_limit_only() -> None:
    case = make_case("mlp", n=64)
    none = TorchEditable(case.module, batch_size=8, memory_limit=0).linearize(case.X)
    all_ = TorchEditable(case.module, batch_size=8, memory_limit=2**30).linearize(case.X)
    assert len(none._kept) == 0
    assert len(all_._kept) == 8
    one_batch = TorchEditable(case.module, batch_size=8, memory_limit=1).linearize(case.X)
    assert len(one_batch._kept) == 0
    r = random(len(case.theta))
    assert torch.allclose(none.jvp(r), all_.jvp(r), atol=1e-14)


@pytest.mark.parametrize("room", [0, 1, 5])
def test_graphs_are_kept_in_the_memory_that_there_is(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """The limit may be more than the machine has."""
    case, graph_of, tries = make_case("mlp", n=64), TorchLinearization._graph_of, []

    def scarce(
        self: TorchLinearization, batch: Tensor, *, keep: bool = False
    ) -> Graph | FactoredGraph:
        if not keep:
            return graph_of(self, batch)
        tries.append(len(batch))
        if len(self._kept) >= room * 8 // len(batch):  # graphs of that many times 8 rows fit
            raise torch.OutOfMemoryError("CUDA out of memory")
        return graph_of(self, batch, keep=True)

    expected = TorchEditable(case.module, memory_limit=0).linearize(case.X)
    monkeypatch.setattr(TorchLinearization, "_graph_of", scarce)
    monkeypatch.setattr(TorchLinearization, "_bytes_kept", lambda self, batch: len(batch) * 2**12)
    model = TorchEditable(case.module, batch_size=8, memory_limit=2**19)
    if room == 0:
        with pytest.raises(torch.OutOfMemoryError):
            model.linearize(case.X)
    else:
        found = model.linearize(case.X)
        assert 0 < len(found._kept) <= room
        r = random(len(case.theta))
        assert torch.allclose(found.jvp(r), expected.jvp(r), atol=1e-14)
    assert len(tries) < 50


def test_graphs_are_freed_with_the_linearisation() -> None:
    """Without waiting for the garbage collector: they are most of the memory that is used."""
    case = make_case("mlp")
    gc.disable()
    try:
        linear = adapt(case.module).linearize(case.X)
        linear.vjp(linear.jvp(random(len(case.theta))))
        graph = weakref.ref(linear._kept[0])
        assert graph() is not None
        del linear
        assert graph() is None
    finally:
        gc.enable()


def test_a_linearisation_can_be_used_many_times(case: Case) -> None:
    linear = adapt(case.module).linearize(case.X)
    r = random(len(case.theta))
    first = linear.jvp(r)
    linear.vjp(first)
    assert torch.equal(linear.jvp(r), first)


@pytest.mark.parametrize("mode", ["double_backward", "forward", "differences"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-2)])
def test_the_fallbacks_agree_with_the_factors(
    case: Case, mode: str, dtype: torch.dtype, tolerance: float
) -> None:
    linear = adapt(case.module.to(dtype)).linearize(case.X.to(dtype))
    assert linear.mode == "factored"
    r = random(len(case.theta)).to(dtype)
    exact = linear.jvp(r)
    linear.mode, linear._kept = mode, {}
    assert (linear.jvp(r) - exact).norm() <= tolerance * exact.norm()


class OnceDifferentiable(torch.autograd.Function):
    """A step whose backward cannot be differentiated, nor run forward: as fused kernels are."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return torch.tanh(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (x,) = ctx.saved_tensors
        return grad * (1 - torch.tanh(x) ** 2)


class Opaque(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return OnceDifferentiable.apply(x)


class Stretch(nn.Module):
    """A parameter that belongs to no linear layer, so that the Jacobian has no factors."""

    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.full((3,), 1.5, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.by


def test_an_operator_without_second_derivative_falls_back_to_differences() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), Stretch(), nn.Linear(3, 1)).double()
    opaque = nn.Sequential(plain[0], Opaque(), *plain[2:])
    X, r = random(20, 4), random(22)
    linear = adapt(opaque).linearize(X)
    expected = adapt(plain).linearize(X)
    assert linear.mode == "differences"
    assert torch.allclose(linear.jvp(r), expected.jvp(r), rtol=1e-6, atol=1e-9)
    assert torch.allclose(linear.vjp(X[:, 0]), expected.vjp(X[:, 0]))
    index = torch.arange(5)
    assert torch.allclose(linear.rows(index), expected.rows(index))


class WrongBackward(torch.autograd.Function):
    """Its backward forgets the incoming gradient, so differentiating it gives nonsense."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return 2 * x

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return 2 * grad.detach()


def test_a_backward_that_cannot_be_trusted_is_found_out() -> None:
    weight = torch.ones(3, 1, dtype=torch.float64)

    def function(parameters: list[Tensor]) -> Tensor:
        return WrongBackward.apply(random(5, 3) @ parameters[0])[:, 0]

    assert working_mode(function, [weight]) == "differences"


def test_fused_attention_works() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).view(len(x), 5, 3, 1, 8).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
            return self.out(mixed.mean((1, 2)))

    torch.manual_seed(0)
    module = Attention()
    X = random(12, 5, 8).float()
    linear = adapt(module).linearize(X)
    r = random(len(adapt(module).theta)).float()
    reference = copy.deepcopy(module).double()
    exact = adapt(reference)
    theta, direction = exact.theta, r.double()
    h = 1e-6
    ahead, behind = (
        exact.outputs(X.double(), theta + h * direction),
        exact.outputs(X.double(), theta - h * direction),
    )
    expected = (ahead - behind) / (2 * h)
    assert (linear.jvp(r).double() - expected).norm() <= 1e-2 * expected.norm()


def test_central_difference_of_a_zero_direction_is_zero() -> None:
    out = central_difference(lambda p: p[0] ** 2, [random(3)], [torch.zeros(3).double()])
    assert torch.equal(out, torch.zeros(3).double())


def test_the_users_module_is_never_touched() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.SELU(), nn.Linear(6, 1)
    )
    module(torch.randn(30, 4))  # moves the running statistics
    module.train()
    before = copy.deepcopy(module.state_dict())
    model = adapt(module)
    X = torch.randn(30, 4)
    linear = model.linearize(X)
    linear.vjp(linear.jvp(torch.randn(len(model.theta))))
    edited = model.edited(model.theta + 1)
    assert module.training
    assert all(m.training for m in module.modules())
    assert all(p.grad is None for p in module.parameters())
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    # evaluation mode: no dropout, fixed statistics, the same answer each time
    module.eval()
    with torch.no_grad():
        assert torch.allclose(linear.outputs, module(X)[:, 0], atol=1e-6)
        assert not torch.allclose(edited.eval()(X), module(X))
    assert all(
        torch.equal(edited.state_dict()[f"1.{name}"], before[f"1.{name}"])
        for name in ("running_mean", "running_var")
    )


class LazyWarned(nn.LazyLinear):
    """A lazy layer, without torch's warning that lazy layers are experimental."""

    def __init__(self, outputs: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().__init__(outputs)


def test_parameters_are_chosen_by_name_pattern_module_or_all() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.SELU(), nn.Linear(3, 1))
    assert choose_parameters(module, "all") == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert choose_parameters(module, "2") == ["2.weight", "2.bias"]
    assert choose_parameters(module, "*.bias") == ["0.bias", "2.bias"]
    assert choose_parameters(module, ["2", "0.bias"]) == ["0.bias", "2.weight", "2.bias"]
    module[0].requires_grad_(False)
    assert choose_parameters(module, "trainable") == ["2.weight", "2.bias"]
    module.requires_grad_(False)
    with pytest.raises(InvalidInputError, match="leaves no parameter to edit: set requires_grad"):
        choose_parameters(module, "trainable")
    with pytest.raises(InvalidInputError, match=r"'head.\*' matches no parameter.*0.weight"):
        choose_parameters(module, "head.*")
    with pytest.raises(InvalidInputError, match="no floating-point parameters"):
        choose_parameters(nn.ReLU(), "all")
    for nonsense in (None, 3, [], ["2", 3]):
        with pytest.raises(InvalidInputError, match=r"`parameters` must be 'trainable', 'all'"):
            choose_parameters(module, nonsense)
    with pytest.raises(InvalidInputError, match="run the module once on a row of data"):
        choose_parameters(nn.Sequential(LazyWarned(1)), "all")
    with pytest.raises(InvalidInputError, match=r"float32 or all float64.*part.float\(\)"):
        choose_parameters(module.half(), "all")


def test_a_part_of_the_parameters_gives_a_part_of_the_jacobian() -> None:
    case = make_case("mlp")
    whole, head = case.jacobian(), adapt(case.module, parameters="2")
    size = len(head.theta)
    assert size == 6
    u = random(len(case.X))
    assert torch.allclose(head.linearize(case.X).vjp(u), (u @ whole[:, 0])[-size:])
    edited = head.edited(head.theta + 1)
    assert torch.equal(edited[0].weight, case.module[0].weight)
    assert torch.allclose(edited[2].bias, case.module[2].bias + 1)


def test_the_evaluator_equals_running_each_edited_module(case: Case) -> None:
    model = TorchEditable(case.module, batch_size=16)
    scales = torch.tensor([0.1, 1.0, 5.0])
    evaluator = model.evaluator(case.X)
    for seed in (1, 2):  # the second direction must not meet products of the first
        d = random(len(case.theta), seed=seed)
        z = evaluator.along(d, scales)
        for scale, found in zip(scales.tolist(), z, strict=True):
            with torch.no_grad():
                expected = model.edited(case.theta + scale * d)(case.X)
            assert torch.allclose(found.view_as(expected), expected, atol=1e-10)


def test_inputs_in_many_forms_give_the_same_outputs() -> None:
    import pandas as pd

    case = make_case("mlp")
    model = adapt(case.module)
    expected = model.outputs(case.X)
    array = case.X.numpy()
    for form in (
        array,
        pd.DataFrame(array),
        array.astype(">f8"),
        array[::-1][::-1],
        array.tolist(),
        (case.X,),
        {"input": case.X},
    ):
        assert torch.equal(model.outputs(form), expected)


def test_outputs_of_a_wrong_shape_are_refused() -> None:
    class Cube(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            return self.p * x[:, None, None]

    with pytest.raises(InvalidInputError, match=r"\(N,\) or \(N, C\); got shape \(3, 1, 1\)"):
        adapt(Cube()).outputs(torch.ones(3))


def test_the_fingerprint_covers_what_an_edit_leaves_alone() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.SELU(), nn.Linear(3, 1))
    head = adapt(module, parameters="2")
    same = adapt(head.edited(head.theta + 1), parameters="2")
    assert head.frame_fingerprint() == same.frame_fingerprint()
    other = copy.deepcopy(module)
    with torch.no_grad():
        other[0].bias += 1e-3
    assert head.frame_fingerprint() != adapt(other, parameters="2").frame_fingerprint()


class Twice(nn.Module):
    """One weight with two biases, which a cache by weight alone would confuse."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(random(3, 4))
        self.a, self.b = nn.Parameter(random(3, seed=1)), nn.Parameter(random(3, seed=2))

    def forward(self, x: Tensor) -> Tensor:
        linear = nn.functional.linear
        hidden = linear(x, self.w, self.a).tanh() * linear(x, self.w, self.b) + linear(x, self.w)
        return hidden.sum(1)


def test_the_evaluator_tells_one_weight_with_two_biases_apart() -> None:
    model, X = adapt(Twice()), random(10, 4)
    d = random(len(model.theta), seed=4)
    z = model.evaluator(X).along(d, torch.tensor([0.0, 2.0]))
    assert torch.allclose(z[0], model.outputs(X))
    assert torch.allclose(z[1], model.outputs(X, model.theta + 2 * d))


class Careless(nn.Module):
    """Squeezes its row axis away, works in place on its input, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1).double()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x -= 1
        return self.layer(x).squeeze()


def test_a_careless_module_does_no_harm() -> None:
    module, X = Careless(), random(21, 4)
    before = X.clone()
    model = TorchEditable(module, batch_size=10)  # the last batch has one row
    linear = model.linearize(X)
    assert linear.vjp(linear.jvp(random(5))).shape == (5,)
    with torch.no_grad():
        expected = module.layer(X - 1)[:, 0]
    assert torch.allclose(linear.outputs, expected)
    assert torch.allclose(model.evaluator(X).along(random(5), torch.zeros(1))[0], expected)
    assert torch.equal(X, before)
    assert module.calls == 0


def test_a_backward_that_is_wrong_is_refused() -> None:
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return 5 * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            return grad

    class Wrong(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1).double()

        def forward(self, x: Tensor) -> Tensor:
            return Straight.apply(self.layer(x))

    with pytest.raises(InvalidInputError, match="backward pass must match its forward pass"):
        adapt(Wrong()).linearize(random(8, 4))


def test_the_fingerprint_sees_another_activation() -> None:
    layers = [nn.Linear(4, 3), nn.SELU(), nn.Linear(3, 1)]
    selu, tanh = nn.Sequential(*layers), nn.Sequential(layers[0], nn.Tanh(), layers[2])
    assert adapt(selu).frame_fingerprint() != adapt(tanh).frame_fingerprint()


def test_products_of_the_data_are_kept_while_there_is_room() -> None:
    X = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    direction, scales = torch.ones(49), torch.tensor([0.5, 2.0])
    whole = TorchEditable(module, batch_size=10).evaluator(X)
    expected = whole.along(direction, scales)
    assert all(whole._fitted_products)
    for limit, kept in ((0, 0), (3 * 10 * 8 * 4, 3)):
        small = TorchEditable(module, batch_size=10, memory_limit=limit).evaluator(X)
        for _ in range(2):
            torch.testing.assert_close(small.along(direction, scales), expected)
        assert sum(map(bool, small._fitted_products)) == kept


class Cramped(nn.Module):
    """Has no room for more than four rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1).double()

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 4:
            raise MemoryError
        return self.layer(x)


def test_outputs_go_on_in_smaller_batches_when_memory_runs_out() -> None:
    module, X = Cramped(), random(21, 4)
    with torch.no_grad():
        expected = module.layer(X)[:, 0]
    assert torch.allclose(TorchEditable(module, batch_size=16).outputs(X), expected)


def test_a_graph_whose_memory_was_counted_is_let_go_of() -> None:
    """A function that saves its own result must not keep it alive for ever."""
    x, made = torch.randn(1000, requires_grad=True), []

    def build() -> Tensor:
        y = torch.softmax(x, 0)
        made.append(weakref.ref(y))
        return y.square().sum()

    assert saved_bytes(build, [x]) == 4000  # the result of softmax, which the square saves too
    gc.collect()
    assert made[0]() is None
