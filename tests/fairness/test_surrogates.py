"""Smooth gaps against loops in numpy, finite differences and the hard metrics they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairij import fairness
from fairij.errors import InvalidInputError
from fairij.fairness import surrogates
from fairij.method.losses import get_loss
from group_reference import fixed

GIVEN_TRUTH: dict[str, tuple[bool, ...]] = {
    "equalized_odds": (True, False),
    "equal_opportunity": (True,),
}
NAMES = ("demographic_parity", *GIVEN_TRUTH)
FOLDS: dict[str, Callable[[list[float]], float]] = {
    "worst_case": max,
    "mean": lambda gaps: sum(gaps) / len(gaps),
    "sum": sum,
}


def gap(scores: Any, groups: Any, rows: list[int]) -> float:
    """The largest less the smallest group mean of these rows."""
    means = [
        np.mean([scores[i] for i in rows if groups[i] == group])
        for group in {groups[i] for i in rows}
    ]
    return float(max(means) - min(means)) if means else 0.0


def reference(name: str, scores: Any, y: Any, groups: Any, agg: str) -> float:
    scores = np.asarray(scores)
    by_class = {1: scores} if scores.ndim == 1 else dict(enumerate(scores.T))
    gaps = []
    for c, column in by_class.items():
        for truth in GIVEN_TRUTH.get(name, (None,)):
            rows = [i for i in range(len(y)) if truth is None or (y[i] == c) == truth]
            gaps.append(gap(column, groups, rows))
    return FOLDS[agg](gaps)


def case(n: int = 60, classes: int = 2, groups: int = 3, seed: int = 0) -> tuple[Tensor, ...]:
    """Scores, labels and groups of which every combination occurs."""
    generator = torch.Generator().manual_seed(seed)
    shape = (n,) if classes == 2 else (n, classes)
    z = torch.randn(shape, generator=generator, dtype=torch.float64)
    y = torch.arange(n) % classes
    return z, y, (torch.arange(n) // classes) % groups


@st.composite
def drawn(draw: st.DrawFn) -> tuple[list[Any], list[int], list[int]]:
    n, classes = draw(st.integers(1, 10)), draw(st.sampled_from([2, 3, 4]))
    score = st.floats(0, 1, allow_subnormal=False)
    row = score if classes == 2 else st.lists(score, min_size=classes, max_size=classes)

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    return column(row), column(st.integers(0, classes - 1)), column(st.sampled_from([0, 2, 5]))


@fixed
@given(drawn())
def test_values_are_gaps_of_group_means(rows: tuple[list[Any], list[int], list[int]]) -> None:
    scores, y, groups = rows
    data = torch.tensor(scores, dtype=torch.float64), torch.tensor(y), torch.tensor(groups)
    for name in NAMES:
        for agg in FOLDS:
            ours = getattr(surrogates, name)(*data, agg=agg)
            assert ours.shape == ()
            assert ours.item() == pytest.approx(reference(name, *rows, agg), abs=1e-12)


@pytest.mark.parametrize("agg", FOLDS)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_finite_differences(name: str, classes: int, agg: str) -> None:
    z, y, groups = case(n=24, classes=classes)
    z.requires_grad_()
    surrogate = getattr(surrogates, name)
    (gradient,) = torch.autograd.grad(surrogate(z, y, groups, agg=agg), z)
    assert gradient.abs().max() > 1e-3
    step = 1e-6
    numeric = np.zeros(z.shape)
    start = z.detach().numpy()
    for place in np.ndindex(*z.shape):
        up, down = start.copy(), start.copy()
        up[place] += step
        down[place] -= step
        rise = reference(name, up, y, groups.tolist(), agg)
        fall = reference(name, down, y, groups.tolist(), agg)
        numeric[place] = (rise - fall) / (2 * step)
    np.testing.assert_allclose(gradient.numpy(), numeric, atol=1e-8)


@pytest.mark.parametrize("given_error", [False, True])
def test_regression_gaps_and_gradients(given_error: bool) -> None:
    z, _, groups = case(n=12)
    y = torch.linspace(-3, 4, 12, dtype=torch.float64)
    surrogate = surrogates.mean_error if given_error else surrogates.mean_prediction
    metric = fairness.mean_error_difference if given_error else fairness.mean_prediction_difference
    assert surrogate(z, y, groups).item() == pytest.approx(
        metric(y, z, sensitive_features=groups), abs=1e-12
    )
    z.requires_grad_()
    assert torch.autograd.gradcheck(lambda v: surrogate(v, y, groups), (z,))
    (gradient,) = torch.autograd.grad(surrogate(z, y, groups), z)
    assert sorted({round(value, 12) for value in gradient.tolist()}) == [-0.25, 0, 0.25]


def test_gaps_of_opposite_sign_do_not_cancel() -> None:
    """The definition sums absolute gaps; the absolute value of the sum would be zero here."""
    scores = torch.tensor([0.9, 0.5, 0.1, 0.5], dtype=torch.float64)
    y, groups = torch.tensor([1, 1, 0, 0]), torch.tensor([0, 1, 0, 1])
    assert surrogates.equalized_odds(scores, y, groups).item() == pytest.approx(0.8)
    assert surrogates.equalized_odds(scores, y, groups, agg="mean").item() == pytest.approx(0.4)


@pytest.mark.parametrize("agg", FOLDS)
@pytest.mark.parametrize(("loss", "classes"), [("binary", 2), ("softmax", 3)])
@pytest.mark.parametrize("name", NAMES)
def test_a_high_temperature_gives_the_hard_metric(
    name: str, loss: str, classes: int, agg: str
) -> None:
    model = get_loss(f"{loss}_cross_entropy")
    z, y, groups = case(classes=classes)
    metric = getattr(fairness, f"{name}_difference")
    hard = metric(y, model.predict(z), sensitive_features=groups, agg=agg)
    surrogate = getattr(surrogates, name)
    far = [
        abs(surrogate(model.scores(z, t), y, groups, agg=agg).item() - hard) for t in (1, 3, 1e5)
    ]
    assert far[2] < 1e-6 < far[1]
    assert far[1] < far[0]


def test_a_group_without_rows_of_a_label_is_not_compared_there() -> None:
    scores = torch.tensor([0.9, 0.2, 0.4, 0.3, 0.1], dtype=torch.float64, requires_grad=True)
    y, groups = torch.tensor([1, 1, 1, 0, 0]), torch.tensor([0, 1, 1, 0, 2])
    value = surrogates.equalized_odds(scores, y, groups)
    assert value.item() == pytest.approx((0.9 - 0.3) + (0.3 - 0.1))
    (gradient,) = torch.autograd.grad(value, scores)
    torch.testing.assert_close(gradient, torch.tensor([1, -0.5, -0.5, 1, -1]).double())


def test_a_label_without_rows_has_no_gap_and_no_gradient() -> None:
    scores = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    y, groups = torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    value = surrogates.equal_opportunity(scores, y, groups, agg="sum")
    (gradient,) = torch.autograd.grad(value, scores)
    assert gradient[:, 2].tolist() == [0, 0, 0, 0]  # class 2 has no rows
    assert gradient[:, :2].abs().sum() > 0
    none = surrogates.equal_opportunity(scores[:, 0], torch.zeros(4), groups)
    assert none.item() == 0
    (gradient,) = torch.autograd.grad(none, scores)
    assert not gradient.any()


def test_one_group_has_no_gap() -> None:
    z, y, _ = case()
    for name in NAMES:
        assert getattr(surrogates, name)(z, y, torch.zeros_like(y)).item() == 0


def test_single_precision_stays_single() -> None:
    z, y, groups = case()
    for name in NAMES:
        assert getattr(surrogates, name)(z.float(), y.float(), groups).dtype == torch.float32


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_fold_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"\['worst_case', 'mean', 'sum'\], got 'max'"):
        getattr(surrogates, name)(*case(), agg="max")
