"""Gaps that are derived from the table of rates equal those once written by hand, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairij.fairness import CONSTRAINTS, Groups
from group_reference import fixed
from reference_rates import FORMER

many = settings(fixed, max_examples=60)


@st.composite
def tables(draw: st.DrawFn) -> np.ndarray:
    """Confusion counts ``(S, G, C, C)``, some weighted, with groups and labels without rows."""
    classes, groups = draw(st.integers(2, 5)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (draw(st.integers(1, 3)), groups, classes, classes)
    table = rng.integers(0, draw(st.sampled_from([2, 5, 500])), shape).astype(np.float64)
    if draw(st.booleans()):
        table *= rng.exponential(size=shape) ** 3
    table[:, rng.random(groups) < 0.2] = 0  # groups without a row
    table[:, :, rng.random(classes) < 0.2] = 0  # labels without a row
    return table


@st.composite
def outputs(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores, labels and group codes; some groups and labels have no rows."""
    classes, rows = draw(st.integers(2, 5)), draw(st.sampled_from([1, 2, 7, 40, 333]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from([torch.float32, torch.float64]))
    shape = (rows,) if classes == 2 else (rows, classes)
    z = torch.randn(shape, generator=generator, dtype=kind)
    scores = torch.sigmoid(z) if classes == 2 else torch.softmax(z, -1)
    y = torch.randint(draw(st.integers(1, classes)), (rows,), generator=generator).to(kind)
    groups = 2 * torch.randint(draw(st.integers(1, 4)), (rows,), generator=generator)
    return scores, y, groups


def assert_same_bits(ours: Any, former: Any, name: str) -> None:
    ours, former = np.asarray(ours), np.asarray(former)
    assert ours.dtype == former.dtype, name
    np.testing.assert_array_equal(ours, former, err_msg=name)


@many
@given(tables())
def test_hard_gaps_are_the_former_ones(table: np.ndarray) -> None:
    for name, (_, hard, _) in FORMER.items():
        if CONSTRAINTS[name].is_classification:
            assert_same_bits(CONSTRAINTS[name].metric(table), hard(table), name)


@many
@given(outputs())
def test_smooth_gaps_and_their_gradients_are_the_former_ones(data: Any) -> None:
    scores, y, groups = data
    for name, (soft, _, parts) in FORMER.items():
        constraint = CONSTRAINTS[name]
        if not constraint.is_classification and scores.ndim > 1:
            continue
        pairs = [(constraint.surrogate, soft)]
        assert (constraint.parts is None) == (parts is None)
        if parts is not None:
            pairs += [
                (lambda *a, i=i, f=constraint.parts: f(*a)[i], lambda *a, i=i, f=parts: f(*a)[i])
                for i in range(len(parts(*data)))
            ]
        for functions in pairs:
            leaves = [scores.clone().requires_grad_() for _ in functions]
            values = [f(z, y, groups) for f, z in zip(functions, leaves, strict=True)]
            gradients = [torch.autograd.grad(v, z)[0] for v, z in zip(values, leaves, strict=True)]
            assert_same_bits(*(value.detach() for value in values), name)
            assert_same_bits(*gradients, name)


@many
@given(outputs())
def test_gaps_in_regression_are_the_former_ones(data: Any) -> None:
    scores, y, codes = data
    if scores.ndim > 1:
        return
    groups = Groups(codes.numpy(), tuple("abcdefgh"[: int(codes.max()) + 1]))
    values = np.stack([scores.double().numpy(), 3 * scores.double().numpy()])
    for name in ("mean_prediction", "mean_error"):
        truth = y.double().numpy()
        found = CONSTRAINTS[name].metric(values, truth, groups)
        assert_same_bits(found, FORMER[name][1](values, truth, groups), name)
