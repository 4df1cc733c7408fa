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

from fairij.fairness import GAPS, Gap
from fairij.fairness.rates import Rate
from fairij.fairness.smooth import smooth_gap, smooth_parts
from group_reference import fixed

FOLDS: dict[str, Callable[[list[float]], float]] = {
    "worst_case": max,
    "mean": lambda gaps: sum(gaps) / len(gaps),
    "sum": sum,
}
CLASSIFICATION = [gap for gap in GAPS.values() if gap.is_classification]
FAMILIES = [gap for gap in CLASSIFICATION if gap.family == gap.name]


FORMS: dict[str, Callable[[float, float], float]] = {
    "difference": lambda low, high: high - low,
    "ratio": lambda low, high: 1 - low / max(high, 1e-12),
    "highest": lambda low, high: high,
}


def difference(form: str, values: Any, groups: Any, rows: list[int], weights: Any = None) -> float:
    """The largest and the smallest group mean of these rows compared."""
    means = []
    for group in {groups[i] for i in rows}:
        some = [i for i in rows if groups[i] == group]
        weight = [1.0 if weights is None else weights[i] for i in some]
        total = sum(w * values[i] for w, i in zip(weight, some, strict=True))
        means.append(total / sum(weight) if sum(weight) else 0.0)
    return float(FORMS[form](min(means), max(means))) if means else 0.0


def differences(form: str, rate: Rate, scores: Any, y: Any, groups: Any) -> list[float]:
    """One for each class, by loops over rows."""
    rows, scores = range(len(y)), np.asarray(scores)
    by_class = {1: scores} if scores.ndim == 1 else dict(enumerate(scores.T))
    if rate.counted in ("the true class", "a wrong class"):
        both = {0: 1 - scores, 1: scores} if scores.ndim == 1 else by_class
        right = np.array([both[int(y[i])][i] for i in rows])
        values = right if rate.counted == "the true class" else 1 - right
        return [difference(form, values, groups, list(rows))]
    found = []
    for c, column in by_class.items():
        if rate.given == "predicted as the class":
            found.append(difference(form, [bool(t == c) for t in y], groups, list(rows), column))
            continue
        if rate.given == "predicted as another":
            found.append(
                difference(form, [bool(t != c) for t in y], groups, list(rows), 1 - column)
            )
            continue
        among = {"any label": lambda _: True, "the class": lambda t, c=c: t == c}.get(
            rate.given, lambda t, c=c: t != c
        )
        values = 1 - column if rate.counted == "another class" else column
        found.append(difference(form, values, groups, [i for i in rows if among(y[i])]))
    return found


def reference(gap: Gap, scores: Any, y: Any, groups: Any) -> float:
    data = (scores, y, groups)
    return FOLDS[gap.fold]([d for rate in gap.rates for d in differences(gap.form, rate, *data)])


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
    for gap in CLASSIFICATION:
        ours = smooth_gap(gap, *data)
        assert ours.shape == ()
        assert ours.item() == pytest.approx(reference(gap, *rows), abs=1e-12), gap.name


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("gap", CLASSIFICATION, ids=lambda gap: gap.name)
def test_gradients_are_finite_differences(gap: Gap, classes: int) -> None:
    z, y, groups = case(n=18, classes=classes)
    z = z.sigmoid().requires_grad_()
    (gradient,) = torch.autograd.grad(smooth_gap(gap, z, y, groups), z)
    assert gradient.abs().max() > 1e-3
    step = 1e-6
    numeric = np.zeros(z.shape)
    start = z.detach().numpy()
    for place in np.ndindex(*z.shape):
        up, down = start.copy(), start.copy()
        up[place] += step
        down[place] -= step
        rise, fall = (reference(gap, end, y, groups.tolist()) for end in (up, down))
        numeric[place] = (rise - fall) / (2 * step)
    np.testing.assert_allclose(gradient.numpy(), numeric, atol=2e-8)


@pytest.mark.parametrize("name", ["mean_prediction", "mean_error"])
def test_gradients_in_regression(name: str) -> None:
    z, _, groups = case(n=12)
    y = torch.linspace(-3, 4, 12, dtype=torch.float64)
    z.requires_grad_()
    assert torch.autograd.gradcheck(lambda v: smooth_gap(GAPS[name], v, y, groups), (z,))
    (gradient,) = torch.autograd.grad(smooth_gap(GAPS[name], z, y, groups), z)
    assert sorted({round(value, 12) for value in gradient.tolist()}) == [-0.25, 0, 0.25]


def test_gaps_of_opposite_sign_do_not_cancel() -> None:
    """The definition sums absolute gaps; the absolute value of the sum would be zero here."""
    scores = torch.tensor([0.9, 0.5, 0.1, 0.5], dtype=torch.float64)
    y, groups = torch.tensor([1, 1, 0, 0]), torch.tensor([0, 1, 0, 1])
    total, mean = (
        smooth_gap(GAPS[name], scores, y, groups).item()
        for name in ("equalized_odds", "equalized_odds_mean")
    )
    assert total == pytest.approx(0.8)
    assert mean == pytest.approx(0.4)


def test_a_group_without_rows_of_a_label_is_not_compared_there() -> None:
    scores = torch.tensor([0.9, 0.2, 0.4, 0.3, 0.1], dtype=torch.float64, requires_grad=True)
    y, groups = torch.tensor([1, 1, 1, 0, 0]), torch.tensor([0, 1, 1, 0, 2])
    value = smooth_gap(GAPS["equalized_odds"], scores, y, groups)
    assert value.item() == pytest.approx((0.9 - 0.3) + (0.3 - 0.1))
    (gradient,) = torch.autograd.grad(value, scores)
    torch.testing.assert_close(gradient, torch.tensor([1, -0.5, -0.5, 1, -1]).double())


def test_a_label_without_rows_has_no_gap_and_no_gradient() -> None:
    opportunity = GAPS["equal_opportunity"]
    scores = torch.rand(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores.requires_grad_()
    y, groups = torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    value = smooth_parts(opportunity, scores, y, groups).sum()
    (gradient,) = torch.autograd.grad(value, scores)
    assert gradient[:, 2].tolist() == [0, 0, 0, 0]  # class 2 has no rows
    assert gradient[:, :2].abs().sum() > 0
    none = smooth_gap(opportunity, scores[:, 0], torch.zeros(4), groups)
    assert none.item() == 0
    (gradient,) = torch.autograd.grad(none, scores)
    assert not gradient.any()


def test_one_group_has_no_gap_and_single_precision_stays_single() -> None:
    z, y, groups = case()
    for gap in filter(lambda gap: gap.is_zero_if_equal, FAMILIES):
        assert smooth_gap(gap, z.sigmoid(), y, torch.zeros_like(y)).item() == pytest.approx(0)
        assert smooth_gap(gap, z.float(), y.float(), groups).dtype == torch.float32
