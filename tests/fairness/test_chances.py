"""Gaps by chances: with the chances 0 and 1 of observed rows they are the signed gaps."""

from __future__ import annotations

import pytest
import torch

from fairij.fairness import GAPS
from fairij.fairness.chances import Chances, expected_parts, observed_weights
from fairij.fairness.constraints import CONSTRAINTS
from fairij.fairness.groups import encode_groups
from fairij.fairness.smooth import signed_parts
from fairij.models.losses import LOSSES

NAMES = [name for name, gap in GAPS.items() if gap.is_classification]


def rows(n_classes: int, n_groups: int, n: int = 60) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(n_classes + n_groups)
    shape = (n,) if n_classes == 2 else (n, n_classes)
    z = torch.randn(shape, generator=generator, dtype=torch.float64)
    y = torch.randint(n_classes, (n,), generator=generator)
    groups = torch.randint(n_groups, (n,), generator=generator)
    return z, y, groups


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_observed_rows_are_chances_of_zero_and_one(
    name: str, n_classes: int, n_groups: int
) -> None:
    z, y, groups = rows(n_classes, n_groups)
    scores = torch.sigmoid(z) if n_classes == 2 else torch.softmax(z, 1)
    weights = observed_weights(y, groups, n_groups, n_classes)
    found = expected_parts(GAPS[name], scores, weights, weights)
    torch.testing.assert_close(found, signed_parts(GAPS[name], scores, y, groups))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_and_so_are_their_gradients(name: str, n_classes: int) -> None:
    z, y, codes = rows(n_classes, 3)
    loss = LOSSES["binary_cross_entropy" if n_classes == 2 else "softmax_cross_entropy"]
    weights = observed_weights(y, codes, 3, n_classes)
    data = (z, y, encode_groups(codes.numpy()), loss, 1.0)
    plain = CONSTRAINTS[name].signed_gradients(*data)
    chances = CONSTRAINTS[name].signed_gradients(*data, Chances(weights, weights))
    for (soft, hard, slope), (soft_by, hard_by, slope_by) in zip(plain, chances, strict=True):
        assert (soft_by, hard_by) == pytest.approx((soft, hard))
        torch.testing.assert_close(slope_by, slope)


def test_the_mean_of_a_group_counts_every_row_by_its_chance() -> None:
    scores = torch.tensor([0.1, 0.4, 0.9], dtype=torch.float64)
    of_group = torch.tensor([[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]], dtype=torch.float64)
    weights = of_group[:, :, None] * torch.tensor([0.25, 0.75], dtype=torch.float64)
    observed = observed_weights(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), 2, 2)
    means = (of_group.T @ scores) / of_group.sum(0)
    found = expected_parts(GAPS["demographic_parity"], scores, weights, observed)
    assert found.tolist() == pytest.approx([float(means[1] - means[0])])
    # among positive rows: here every row is one with the same chance, so the means are the same
    found = expected_parts(GAPS["equal_opportunity"], scores, weights, observed)
    assert found.tolist() == pytest.approx([float(means[1] - means[0])])


def test_hard_gaps_stay_as_observed() -> None:
    z, y, codes = rows(2, 2)
    observed = observed_weights(y, codes, 2, 2)
    data = (z, y, encode_groups(codes.numpy()), LOSSES["binary_cross_entropy"], 1.0)
    even = Chances(torch.full_like(observed, 0.25), observed)
    ((soft, hard, slope),) = CONSTRAINTS["demographic_parity"].signed_gradients(*data, even)
    ((_, plain, _),) = CONSTRAINTS["demographic_parity"].signed_gradients(*data)
    assert soft == pytest.approx(0, abs=1e-12)
    assert hard == pytest.approx(plain)
    assert float(slope.abs().max()) < 1e-12
    assert abs(plain) > 0.01


def test_groups_that_do_not_occur_take_no_part() -> None:
    z, y, groups = rows(2, 2)
    weights = observed_weights(y, groups, 3, 2)  # a third group without rows
    scores = torch.sigmoid(z)
    found = expected_parts(GAPS["equalized_odds"], scores, weights, weights)
    torch.testing.assert_close(found, signed_parts(GAPS["equalized_odds"], scores, y, groups))
