"""Weights of any size: only their ratios count for a model without a penalty of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from biased import fair, fitted, problem
from fairij.method.objective import normalised_weights

DATA = problem()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [7.0, 1e306, 1e-300, 5e-324])
def test_equal_weights_give_the_edit_without_weights_to_the_bit(
    size: float, dtype: torch.dtype
) -> None:
    plain = DATA.fit(fair(fitted(dtype=dtype)))
    weighted = DATA.fit(fair(fitted(dtype=dtype)), sample_weight=np.full(len(DATA.y), size))
    assert torch.equal(weighted.edit_.after, plain.edit_.after)
    assert np.array_equal(weighted.influence_, plain.influence_)
    assert weighted.candidates_.equals(plain.candidates_)


@pytest.mark.parametrize("size", [2.0**1000, 2.0**-1000])
def test_a_power_of_two_changes_no_digit(size: float) -> None:
    weight = np.random.default_rng(0).uniform(0.5, 4, len(DATA.y))
    plain = DATA.fit(fair(), sample_weight=weight)
    scaled = DATA.fit(fair(), sample_weight=weight * size)
    assert torch.equal(scaled.edit_.after, plain.edit_.after)


def test_rows_next_to_huge_weights_weigh_nothing() -> None:
    weight = np.full(len(DATA.y), 1e300)
    weight[::4] = 1e-300
    none = DATA.fit(fair(), sample_weight=np.where(weight < 1, 0.0, 1.0))
    found = DATA.fit(fair(), sample_weight=weight)
    assert torch.allclose(found.edit_.after, none.edit_.after, atol=1e-3)


@pytest.mark.parametrize("size", [1.0, 1e-308, 1e306])
def test_weights_sum_to_one(size: float) -> None:
    weight = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64) * size
    for like in (torch.zeros(1), torch.zeros(1).double()):
        found = normalised_weights(weight, 3, like)
        assert found.tolist() == pytest.approx([0.125, 0.25, 0.625], rel=1e-6)
