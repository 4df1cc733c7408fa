"""Losses against autograd, and against fifty-digit arithmetic where autograd itself cancels."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import hessian

from fairij.errors import InvalidInputError
from fairij.models.losses import LOSSES, Loss, get_loss, infer_loss

BINARY = get_loss("binary_cross_entropy")
SOFTMAX = get_loss("softmax_cross_entropy")
SQUARED = get_loss("squared_error")

fixed = settings(derandomize=True, deadline=None, max_examples=25)
logits = st.floats(-60, 60, allow_subnormal=False)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@st.composite
def rows(draw: st.DrawFn) -> tuple[Loss, Tensor, Tensor]:
    """A loss, outputs and labels of its domain."""
    loss = draw(st.sampled_from([BINARY, SOFTMAX, SQUARED]))
    n = draw(st.integers(1, 4))
    if loss is SOFTMAX:
        c = draw(st.integers(2, 5))
        z = draw(st.lists(st.lists(logits, min_size=c, max_size=c), min_size=n, max_size=n))
        y = draw(st.lists(st.integers(0, c - 1), min_size=n, max_size=n))
    else:
        z = draw(st.lists(logits, min_size=n, max_size=n))
        label = st.integers(0, 1) if loss is BINARY else st.floats(-100, 100)
        y = draw(st.lists(label, min_size=n, max_size=n))
    return loss, tensor(z), tensor(y)


def curvature(loss: Loss, z: Tensor, y: Tensor) -> Tensor:
    """l'' of each row by autograd, (N, C, C)."""
    width = z[0].numel()
    by_row = [
        hessian(lambda v, n=n: loss.value(v[None], y[n : n + 1])[0])(z[n]) for n in range(len(z))
    ]
    return torch.stack(by_row).reshape(len(z), width, width)


@fixed
@given(rows())
def test_the_slope_is_the_gradient_of_the_value(case: tuple[Loss, Tensor, Tensor]) -> None:
    loss, z, y = case
    loss.check(z, y)
    z.requires_grad_()
    value = loss.value(z, y)
    assert value.shape == (len(z),)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    torch.testing.assert_close(loss.slope(z, y), gradient, rtol=1e-12, atol=1e-14)


@fixed
@given(rows())
def test_the_curve_and_its_root_are_the_second_derivative(
    case: tuple[Loss, Tensor, Tensor],
) -> None:
    loss, z, y = case
    expected = curvature(loss, z, y)
    v = torch.linspace(-1, 2, z.numel(), dtype=torch.float64).view_as(z)
    product = (expected @ v.reshape(len(z), -1, 1)).view_as(z)
    torch.testing.assert_close(loss.curve(z, v), product, rtol=1e-12, atol=1e-14)
    root = loss.curve_root(z)
    torch.testing.assert_close(root @ root.mT, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("y", [0, 1])
@pytest.mark.parametrize("z", [-690.0, -50.0, -21.0, -1.5, 0.0, 1e-9, 3.0, 21.0, 40.0, 690.0])
def test_binary_cross_entropy_keeps_every_digit_of_a_sure_model(z: float, y: int) -> None:
    with localcontext() as context:
        context.prec = 700  # 1 + exp(-690) must not round
        wrong = 1 / (1 + (Decimal(z) * (2 * y - 1)).exp())  # the probability of the other label
        value, slope, curve = -(1 - wrong).ln(), (1 - 2 * y) * wrong, wrong * (1 - wrong)
    output, label = tensor([z]), tensor([y])
    one = torch.ones_like(output)
    assert BINARY.value(output, label).item() == pytest.approx(float(value), rel=1e-12, abs=0)
    assert BINARY.slope(output, label).item() == pytest.approx(float(slope), rel=1e-12, abs=0)
    assert BINARY.curve(output, one).item() == pytest.approx(float(curve), rel=1e-12, abs=0)
    root = BINARY.curve_root(output).item()
    assert root**2 == pytest.approx(float(curve), rel=1e-12, abs=0)


@pytest.mark.parametrize("shift", [0.0, 1e6, -1e6])
@pytest.mark.parametrize("spread", [1.0, 30.0, 1e4])
def test_softmax_survives_extreme_logits(shift: float, spread: float) -> None:
    steps = [0.0, -1.0, 0.5, 1.0]
    z = tensor([[shift + spread * step for step in steps]] * 4)
    y = torch.arange(4)
    with localcontext() as context:
        context.prec = 60
        parts = [(Decimal(spread) * Decimal(step)).exp() for step in steps]
        p = [part / sum(parts) for part in parts]
        value = tensor([float(-q.ln()) for q in p])
        curve = tensor([[float((i == j) * q - q * r) for j, r in enumerate(p)]
                        for i, q in enumerate(p)])  # fmt: skip
        slope = tensor([[float(q - (i == label)) for i, q in enumerate(p)] for label in range(4)])
    near = {"rtol": 1e-9, "atol": 1e-14}
    torch.testing.assert_close(SOFTMAX.value(z, y), value, **near)
    torch.testing.assert_close(SOFTMAX.slope(z, y), slope, **near)
    root = SOFTMAX.curve_root(z)
    torch.testing.assert_close(root @ root.mT, curve.expand(4, 4, 4), **near)
    torch.testing.assert_close(SOFTMAX.curve(z, torch.eye(4).double()), curve, **near)


def test_a_sure_and_right_row_still_has_a_slope_in_single_precision() -> None:
    z, y = torch.tensor([40.0, -40.0]), torch.tensor([1.0, 0.0])
    expected = torch.exp(torch.tensor(-40.0))
    torch.testing.assert_close(
        BINARY.slope(z, y), torch.stack([-expected, expected]), atol=0, rtol=1e-5
    )
    torch.testing.assert_close(BINARY.value(z, y), expected.expand(2), atol=0, rtol=1e-5)


def test_two_logits_are_one_logit_of_their_difference() -> None:
    z = tensor([[0.3, 1.0], [2.0, -1.0], [0.0, 5.0]])
    y = tensor([0, 1, 1])
    margin = z[:, 1] - z[:, 0]
    torch.testing.assert_close(SOFTMAX.value(z, y), BINARY.value(margin, y))
    torch.testing.assert_close(SOFTMAX.slope(z, y)[:, 1], BINARY.slope(margin, y))
    torch.testing.assert_close(SOFTMAX.scores(z, 3.0), BINARY.scores(margin, 3.0))
    torch.testing.assert_close(SOFTMAX.predict(z), BINARY.predict(margin))


def test_scores_sharpen_with_the_temperature() -> None:
    z = tensor([-1.0, 0.0, 2.0])
    torch.testing.assert_close(BINARY.scores(z), 1 / (1 + torch.exp(-z)))
    torch.testing.assert_close(BINARY.scores(z, 3.0), 1 / (1 + torch.exp(-3 * z)))
    wide = tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    powers = torch.exp(2 * wide)
    torch.testing.assert_close(SOFTMAX.scores(wide, 2.0), powers / powers.sum(1, keepdim=True))
    torch.testing.assert_close(SQUARED.scores(z, 3.0), z)


def test_predictions_keep_leading_axes() -> None:
    z = tensor([[[1.0, 2.0, 0.0], [3.0, 2.0, 0.0]], [[0.0, 0.0, 1.0], [1.0, 2.0, 3.0]]])
    assert SOFTMAX.predict(z).tolist() == [[1, 0], [2, 2]]
    assert BINARY.predict(tensor([[-1.0, 0.0], [1e-9, 5.0]])).tolist() == [[0, 0], [1, 1]]
    torch.testing.assert_close(SQUARED.predict(z), z)


@pytest.mark.parametrize(
    ("loss", "z", "y", "message"),
    [
        (BINARY, [[0.0, 1.0]], [1], r"one logit per row, got outputs of shape \(1, 2\); use loss="),
        (BINARY, [0.0, 1.0], [0, 2], "labels 0 and 1, got 0, 2; encode"),
        (BINARY, [0.0], [float("nan")], "labels 0 and 1, got nan"),
        (BINARY, [0.0, 0.0], [0.5, 1], "got 0.5, 1;"),
        (BINARY, [0.0] * 6, range(6), "got 0, 1, 2, 3, 4, 5; encode"),
        (BINARY, [0.0] * 7, range(7), r"got 0, 1, 2, 3, 4, 5, \.\.\.; encode"),
        (BINARY, [0.0, 0.0], [[0], [1]], r"one label per row of outputs: expected shape \(2,\)"),
        (SOFTMAX, [0.0, 1.0], [0, 1], r"at least two outputs per row, got outputs of shape \(2,\)"),
        (SOFTMAX, [[0.0], [1.0]], [0, 0], "use loss='binary_cross_entropy'"),
        (SOFTMAX, [[0.0, 1.0, 2.0]], [3], "labels 0 to 2 for a model with 3 outputs, got 3"),
        (SOFTMAX, [[0.0, 1.0, 2.0]], [-1], "got -1; encode the labels"),
        (SOFTMAX, [[0.0, 1.0, 2.0]], [1.5], r"got 1\.5"),
        (SOFTMAX, [[0.0, 1.0]], [0, 1], r"expected shape \(1,\), got \(2,\)"),
        (SQUARED, [[0.0, 1.0]], [0.0], r"one output per row, got outputs of shape \(1, 2\)"),
        (SQUARED, [0.0, 1.0], [0.0], r"expected shape \(2,\), got \(1,\)"),
        (SQUARED, [0.0, 1.0], [0.0, float("inf")], "finite labels, got inf; drop"),
    ],
)
def test_labels_outside_the_domain_are_refused(
    loss: Loss, z: list[object], y: list[object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        loss.check(tensor(z), tensor(list(y)))


def test_losses_are_looked_up_by_name() -> None:
    for name, loss in LOSSES.items():
        assert get_loss(name) is loss
        assert get_loss(loss) is loss
    for unknown in ("hinge", None, 3, ["squared_error"]):
        with pytest.raises(InvalidInputError, match=r"one of .*'squared_error'.*, got .*"):
            get_loss(unknown)  # type: ignore[arg-type]


def test_the_loss_is_inferred_from_outputs_and_labels() -> None:
    assert infer_loss(torch.zeros(2, 3), tensor([0, 2])) is SOFTMAX
    assert infer_loss(torch.zeros(2), tensor([0, 1])) is BINARY
    with pytest.raises(InvalidInputError, match=r"labels are 0\.5, 3, .*pass loss='squared_error'"):
        infer_loss(torch.zeros(2), tensor([3, 0.5]))
    assert [loss.is_classification for loss in (BINARY, SOFTMAX, SQUARED)] == [True, True, False]
