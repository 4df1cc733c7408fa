"""Constraints: the gradient of the smooth form, the value of the hard one, and users' own."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fairij import fairness
from fairij.errors import InvalidInputError
from fairij.fairness import CONSTRAINTS, GAPS, Constraint, encode_groups, get_constraint
from fairij.fairness.rates import confusion_counts
from fairij.models.losses import Loss, get_loss
from group_reference import gradient as gradient_of

BINARY = get_loss("binary_cross_entropy")
SOFTMAX = get_loss("softmax_cross_entropy")
SQUARED = get_loss("squared_error")

METRICS = {name: getattr(fairness, gap.metric_name) for name, gap in GAPS.items()}
CLASSIFICATION = [name for name, constraint in CONSTRAINTS.items() if constraint.is_classification]
REGRESSION = [name for name, made in CONSTRAINTS.items() if made.is_classification is False]


def data(loss: Loss, n: int = 72) -> tuple[Tensor, Tensor, fairness.Groups]:
    """Five candidate models' outputs on rows of which every label occurs in every group."""
    generator = torch.Generator().manual_seed(0)
    classes = 3 if loss is SOFTMAX else 2
    shape = (5, n, 3) if loss is SOFTMAX else (5, n)
    z = torch.randn(shape, generator=generator, dtype=torch.float64)
    y = (torch.arange(n) % classes).double()
    if loss is SQUARED:
        y = torch.randn(n, generator=generator, dtype=torch.float64)
    return z, y, encode_groups(np.arange(n) // classes % 3)


def table(loss: Loss, z: Tensor, y: Tensor, groups: fairness.Groups) -> np.ndarray:
    return confusion_counts(
        y.long().numpy(),
        loss.predict(z).numpy(),
        groups.codes,
        n_groups=len(groups.names),
        n_classes=3 if z.ndim == 3 else 2,
    )


def test_each_constraint_has_the_name_it_is_found_by() -> None:
    assert all(name == constraint.name for name, constraint in CONSTRAINTS.items())
    assert REGRESSION == ["mean_prediction", "mean_error"]


@pytest.mark.parametrize("loss", [BINARY, SOFTMAX])
@pytest.mark.parametrize("name", CLASSIFICATION)
def test_the_gap_of_each_candidate_is_the_metric_of_its_predictions(name: str, loss: Loss) -> None:
    z, y, groups = data(loss)
    gaps = CONSTRAINTS[name].gap(z, y, groups, table(loss, z, y, groups))
    expected = [METRICS[name](y, loss.predict(row), sensitive_features=groups) for row in z]
    np.testing.assert_allclose(gaps, expected, atol=1e-12)
    assert len(set(gaps)) > 1 or name == "worst_group_error"  # by chance all alike


@pytest.mark.parametrize("name", GAPS)
def test_a_group_that_a_part_of_the_rows_lacks_takes_no_part(name: str) -> None:
    loss = BINARY if name in CLASSIFICATION else SQUARED
    z, y, groups = data(loss)
    kept = np.flatnonzero(groups.codes != 1)
    part, z, y = groups.take(kept), z[:, kept], y[kept]
    seen = table(loss, z, y, part) if name in CLASSIFICATION else None
    gaps = CONSTRAINTS[name].gap(z, y, part, seen)
    fresh = encode_groups(part.codes)  # knows two groups only
    predicted = [loss.predict(row) for row in z]
    expected = [METRICS[name](y, row, sensitive_features=fresh) for row in predicted]
    np.testing.assert_allclose(gaps, expected, atol=1e-12)


def squared_gap(outputs: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    return (outputs[groups == 0].mean() - outputs[groups == 1].mean()) ** 2


def test_a_function_of_the_user_s_is_its_own_metric() -> None:
    z, y, groups = data(BINARY)
    constraint = Constraint.custom(squared_gap)
    assert (constraint.name, constraint.metric) == ("squared_gap", None)
    assert Constraint.custom(squared_gap, "mine").name == "mine"
    assert Constraint.custom(partial(squared_gap)).name == "custom"
    assert get_constraint(squared_gap) == constraint
    own = [float(row[groups.codes == 0].mean() - row[groups.codes == 1].mean()) for row in z]
    value, gradient = gradient_of(constraint, z[0], y, groups, BINARY, 7.0)  # outputs, not scores
    assert value == pytest.approx(own[0] ** 2)
    sign = np.select([groups.codes == 0, groups.codes == 1], [1.0, -1.0], 0.0) / 24
    np.testing.assert_allclose(gradient, 2 * own[0] * sign, atol=1e-12)
    gaps = constraint.gap(z, y, groups, table(BINARY, z, y, groups))
    np.testing.assert_allclose(gaps, np.square(own), atol=1e-12)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda z, y, g: z, r"must return a scalar tensor, got Tensor of shape \(72,\)"),
        (lambda z, y, g: z.sum()[None], r"got Tensor of shape \(1,\)"),
        (lambda z, y, g: 0.5, "got float of shape none"),
        (lambda z, y, g: np.array([0.5]), r"got ndarray of shape \(1,\)"),
    ],
)
def test_a_function_that_returns_no_scalar_is_refused(function: Any, message: str) -> None:
    z, y, groups = data(BINARY)
    constraint = Constraint.custom(function, "odd")
    with pytest.raises(InvalidInputError, match=f"The constraint 'odd' {'.*' + message}"):
        gradient_of(constraint, z[0], y, groups, BINARY, 1.0)
    with pytest.raises(InvalidInputError, match=message):
        constraint.gap(z, y, groups, None)


def test_a_function_without_a_gradient_is_refused() -> None:
    z, y, groups = data(BINARY)
    hard = Constraint.custom(lambda z, y, g: (z > 0).double().mean(), "hard")
    with pytest.raises(InvalidInputError, match="'hard' must be differentiable in the outputs"):
        gradient_of(hard, z[0], y, groups, BINARY, 1.0)
    assert hard.gap(z, y, groups, None)[0] == (z[0] > 0).double().mean()


def test_constraints_are_looked_up_by_name() -> None:
    for name, constraint in CONSTRAINTS.items():
        assert get_constraint(name) is constraint
        assert get_constraint(constraint) is constraint
    for unknown in ("parity", None, 3, ["equalized_odds"]):
        with pytest.raises(InvalidInputError, match=r"one of \['accuracy_parity', .*; got "):
            get_constraint(unknown)


def test_the_parts_of_a_balanced_constraint_sum_to_its_surrogate() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(80, generator=generator, dtype=torch.float64)
    y = (torch.rand(80, generator=generator) < 0.5).double()
    groups = encode_groups(torch.arange(80) % 2)
    balanced = CONSTRAINTS["equalized_odds_balanced"]
    value, gradient = gradient_of(balanced, z, y, groups, BINARY, 2.0)
    parts = balanced.part_gradients(z, y, groups, BINARY, 2.0)
    assert len(parts) == 2
    assert sum(part for part, _ in parts) == pytest.approx(value)
    assert torch.allclose(sum(g for _, g in parts), gradient)
    alone = CONSTRAINTS["demographic_parity"]
    assert len(alone.part_gradients(z, y, groups, BINARY, 1.0)) == 1


def test_several_groups_are_closed_pair_by_pair_where_a_constraint_says_so() -> None:
    rng = np.random.default_rng(0)
    z = torch.tensor(rng.normal(size=60))
    y = torch.tensor(rng.integers(0, 2, 60)).double()
    groups = encode_groups(rng.choice(["a", "b", "c"], 60, p=[0.2, 0.5, 0.3]))  # "b" is largest
    for name in ("demographic_parity", "equal_opportunity", "equalized_odds"):
        parts = CONSTRAINTS[name].group_gradients(z, y, groups, BINARY, 1.0)
        assert len(parts) == 2
        for other, (gap, gradient) in zip((0, 2), parts, strict=True):
            pair = np.isin(groups.codes, (1, other))
            alone = gradient_of(
                CONSTRAINTS[name], z[pair], y[pair], groups.take(np.flatnonzero(pair)), BINARY, 1.0
            )
            assert gap == pytest.approx(alone[0])
            torch.testing.assert_close(gradient[pair], alone[1])
            assert not gradient[~pair].any()

    def first_and_last(scores: torch.Tensor, y: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return (scores[g == 0].mean() - scores[g == 2].mean()).abs()  # no pair has both

    own = Constraint("own", first_and_last, CONSTRAINTS["demographic_parity"].metric)
    ((gap, _),) = own.group_gradients(z, y, groups, BINARY, 1.0)
    assert gap == pytest.approx(gradient_of(own, z, y, groups, BINARY, 1.0)[0])
