"""Decisions: cut-offs, top shares and the favourable label, next to slow obvious references."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fairij import CONSTRAINTS, LOSSES
from fairij.errors import InvalidInputError
from fairij.fairness import Groups, TopShare
from fairij.fairness.decisions import (
    OWN,
    Decided,
    Decision,
    check_threshold,
    described,
    read_decisions,
)

LOSS = LOSSES["binary_cross_entropy"]
Z = torch.randn(3, 40, generator=torch.manual_seed(0), dtype=torch.float64)
CUTS = (None, 0.3, 0.8, TopShare(0.1), TopShare(0.625))


def chance(decision: Decision, z: Tensor) -> Tensor:
    """The probability of the favourable label."""
    p = torch.softmax(z, -1)[..., 1] if decision.has_two else torch.sigmoid(z)
    return 1 - p if decision.flipped else p


def accepted(decision: Decision, z: Tensor) -> Tensor:
    loss = LOSSES["softmax_cross_entropy"] if decision.has_two else LOSS
    return loss.predict(decision.outputs(z)).bool()


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("has_two", [False, True])
def test_rows_are_accepted_by_the_chance_of_the_favourable_label(
    cut: float | TopShare | None, flipped: bool, has_two: bool
) -> None:
    z = torch.stack([0.3 * Z, 1.3 * Z], -1) if has_two else Z
    decision = Decision(cut, flipped, has_two)
    p = chance(decision, z)
    if isinstance(cut, TopShare):
        first = round(cut.share * 40)
        expected = p > p.sort(-1, descending=True).values[:, first, None]
        assert (expected.sum(-1) == first).all()
    else:
        expected = p >= (0.5 if cut is None else cut)
    assert torch.equal(accepted(decision, z), expected)


def test_a_chance_equal_to_the_cut_off_is_accepted() -> None:
    z = torch.tensor([math.log(0.3 / 0.7)], dtype=torch.float64)
    for decision, at in ((Decision(0.3), z), (Decision(0.3, flipped=True), -z)):
        assert accepted(decision, at).all()
        assert not accepted(decision, at - 1e-12 * (1 - 2 * decision.flipped)).any()
    nothing = torch.zeros(1)  # what a model does: its second label above 0, else its first
    assert not accepted(OWN, nothing).any()
    assert accepted(Decision(flipped=True), nothing).all()


@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=30),
    st.floats(0.02, 0.98),
    st.integers(0, 2**31),
)
def test_rows_of_one_score_are_accepted_together_at_the_nearest_share(
    levels: list[int], share: float, seed: int
) -> None:
    z = torch.tensor(levels, dtype=torch.float32)
    weight = torch.as_tensor(np.random.default_rng(seed).integers(1, 9, len(levels)))
    taken = LOSS.predict(Decision(TopShare(share)).outputs(z, weight)).bool()
    if len(set(levels)) == 1:
        assert not taken.any()
        return
    shares = {cut: float(weight[z >= cut].sum() / weight.sum()) for cut in set(levels)}
    del shares[min(levels)]  # accepting all of them is no decision
    nearest = min(abs(value - share) for value in shares.values())
    assert abs(float(weight[taken].sum() / weight.sum()) - share) == pytest.approx(nearest)
    assert taken.any()
    assert z[taken].min() > z[~taken].max()


@pytest.mark.parametrize("constraint", ["demographic_parity", "equalized_odds", "accuracy_parity"])
@pytest.mark.parametrize("decision", [Decision(0.3), Decision(0.8, True), Decision(None, True)])
def test_gradients_are_those_of_outputs_that_are_shifted_and_turned(
    constraint: str, decision: Decision
) -> None:
    z, groups = Z[0], Groups(np.arange(40) % 3, ("a", "b", "c"))
    y = (torch.arange(40) % 5 > 1).double()
    sign, cut = (-1 if decision.flipped else 1), decision.cut_off
    turned, truth = sign * z - math.log(cut / (1 - cut)), (1 - y if decision.flipped else y)
    plain = CONSTRAINTS[constraint]
    made = Decided.by(decision, plain)
    for name in ("part_gradients", "group_gradients", "signed_gradients"):
        found = getattr(made, name)(z, y, groups, LOSS, 2.0)
        expected = getattr(plain, name)(turned, truth, groups, LOSS, 2.0)
        for one, other in zip(found, expected, strict=True):
            assert one[:-1] == pytest.approx(other[:-1])
            assert torch.allclose(one[-1], sign * other[-1])


def test_a_top_share_moves_with_the_scores() -> None:
    """The slope of the cut-off keeps the mean of the smooth scores; by central differences."""
    z, w, T = Z[0], torch.linspace(1, 3, 40, dtype=torch.float64), 2.0
    decision = replace(Decision(TopShare(0.2)), temperature=T)
    cut = float(decision.settled(z, w).cut or 0)
    share = (w * torch.sigmoid(T * (z - cut))).sum()

    def cut_of(z: Tensor) -> float:  # with that soft share, by bisection
        low, high = -20.0, 20.0
        for _ in range(80):
            middle = (low + high) / 2
            over = (w * torch.sigmoid(T * (z - middle))).sum() > share
            low, high = (middle, high) if over else (low, middle)
        return low

    u = torch.randn(40, generator=torch.manual_seed(1), dtype=torch.float64)
    slope = decision.pulled(u, z, w)
    for row in (0, 7, 23):
        step = torch.zeros(40, dtype=torch.float64)
        step[row] = 1e-4
        apart = (cut_of(z + step) - cut_of(z - step)) / 2e-4
        assert float(slope[row]) == pytest.approx(float(u[row] - apart * u.sum()), abs=1e-6)


def test_a_settled_share_stays_where_it_was() -> None:
    settled = Decision(TopShare(0.1)).settled(Z[0])
    assert torch.equal(accepted(settled, Z[0]), accepted(Decision(TopShare(0.1)), Z[0]))
    assert accepted(settled, Z[0] + 10).all()
    assert settled.cut_off == pytest.approx(1 / (1 + math.exp(-float(settled.cut or 0))))
    assert math.isnan(Decision(TopShare(0.1)).cut_off)
    assert OWN.cut_off == 0.5
    assert Decision(0.3).settled(Z[0]) == Decision(0.3)


def test_outputs_of_plain_decisions_are_not_touched() -> None:
    assert OWN.outputs(Z) is Z
    assert OWN.is_plain
    constraint = CONSTRAINTS["demographic_parity"]
    assert Decided.by(OWN, constraint) is constraint


@pytest.mark.parametrize("cut", CUTS)
def test_settings_of_an_edit_tell_its_decisions(cut: float | TopShare | None) -> None:
    pair = tuple(Decision(cut, True, True).settled(z) for z in (Z[:, :2], Z[:, 2:4]))
    found = read_decisions(described(pair[0], pair[1]))
    assert found == pair
    assert read_decisions({}) == (OWN, OWN)


@pytest.mark.parametrize(
    "wrong", [0, 1, -0.1, 1.5, math.nan, "0.3", True, [0.3], "top", np.array([0.2, 0.3])]
)
def test_cut_offs_that_are_none_are_refused(wrong: object) -> None:
    with pytest.raises(InvalidInputError, match="`threshold` must be a probability") as raised:
        check_threshold(wrong)
    assert raised.value.parameter == "threshold"


@pytest.mark.parametrize("wrong", [0, 1, 10, -1, math.nan, None, "0.1", True])
def test_shares_that_are_none_are_refused(wrong: object) -> None:
    with pytest.raises(InvalidInputError, match="`share` of TopShare"):
        TopShare(wrong)  # type: ignore[arg-type]
