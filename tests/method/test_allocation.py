"""Which gaps to close first: against a search over all splits of the total."""

from __future__ import annotations

import pytest
import torch

from fairij.method.search.allocation import cheapest, within


def spent(u: torch.Tensor, centre: torch.Tensor, cost: torch.Tensor) -> float:
    return float((u - centre) @ cost @ (u - centre))


@pytest.mark.parametrize("seed", range(5))
def test_no_split_of_the_total_is_cheaper(seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    root = torch.randn(2, 2, generator=draws, dtype=torch.float64)
    cost, centre = root @ root.T + 0.1 * torch.eye(2), torch.randn(2, generator=draws).double()
    total = 0.5 * float(centre.abs().sum())
    found = cheapest(centre, cost, total)
    assert float(found.abs().sum()) <= total + 1e-9
    parts = torch.linspace(0, total, 201, dtype=torch.float64)
    tried = [
        spent(torch.stack([a * part, b * (total - part)]), centre, cost)
        for part in parts
        for a in (-1, 1)
        for b in (-1, 1)
    ]
    assert spent(found, centre, cost) <= min(tried) + 1e-6


def test_the_cheap_one_is_closed_first() -> None:
    found = cheapest(torch.tensor([0.1, 0.1]), torch.diag(torch.tensor([1.0, 100.0])), 0.1)
    torch.testing.assert_close(found, torch.tensor([0.0, 0.1]), atol=2e-3, rtol=0)


def test_the_nearest_within_a_total() -> None:
    v = torch.tensor([3.0, -1.0, 0.5])
    torch.testing.assert_close(within(v, 10.0), v)
    torch.testing.assert_close(within(v, 2.0), torch.tensor([2.0, 0.0, 0.0]))
    torch.testing.assert_close(within(v, 3.0), torch.tensor([2.5, -0.5, 0.0]))
    torch.testing.assert_close(within(v, 0.0), torch.zeros(3))


@pytest.mark.parametrize(("total", "dtype"), [(4e-18, torch.float64), (1e-9, torch.float32)])
def test_a_total_so_small_that_rounding_hides_it(total: float, dtype: torch.dtype) -> None:
    centre = torch.tensor([0.1, -0.05], dtype=dtype)
    assert within(centre, total).abs().sum() <= 1e-8
    assert cheapest(centre, torch.eye(2, dtype=dtype), total).abs().sum() <= 1e-8
