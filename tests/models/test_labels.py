"""Which rows a constraint needs is said by the constraint, not by its name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fairij import CONSTRAINTS
from fairij.data.labels import (
    Labels,
    check_constraint,
    encode_labels,
    positive_label,
    warn_if_reversed,
)
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.fairness.groups import encode_groups
from fairij.models.losses import get_loss

TRUTH = torch.tensor([0] * 40 + [1] * 80, dtype=torch.float64)
GROUPS = encode_groups(["a"] * 80 + ["b"] * 40)  # no row of "b" has the label 0
LABELS = Labels(get_loss("binary_cross_entropy"), np.array(["no", "yes"]), TRUTH, TRUTH)


@pytest.mark.parametrize("name", ["equal_opportunity", "equal odds of being chosen"])
def test_equal_opportunity_asks_for_the_positive_label_alone(name: str) -> None:
    constraint = replace(CONSTRAINTS["equal_opportunity"], name=name)
    check_constraint(constraint, LABELS, GROUPS, stacklevel=1)


@pytest.mark.parametrize("name", [n for n in CONSTRAINTS if n.startswith("equalized_odds")])
def test_equalized_odds_asks_for_every_label(name: str) -> None:
    constraint = replace(CONSTRAINTS[name], name="separation")
    with pytest.raises(InvalidInputError, match="0 of 'b with label no'"):
        check_constraint(constraint, LABELS, GROUPS, stacklevel=1)


def test_labels_of_one_class_are_refused_also_where_the_model_names_both() -> None:
    z, y = torch.zeros(4, dtype=torch.float64), np.array(["no"] * 4)
    both = np.array(["no", "yes"])
    with pytest.raises(InvalidInputError, match="both classes, found only no"):
        encode_labels(z, z, y, np.array(["no", "yes", "no", "no"]), "binary_cross_entropy", both)


def test_outputs_that_speak_for_the_other_label_are_warned_of() -> None:
    z = torch.where(TRUTH == 1, 1.0, -1.0)
    for sound in (z, z + 9):  # the second says yes to everything, and ranks well
        warn_if_reversed(LABELS, sound, stacklevel=1)
    with pytest.warns(FairIJWarning, match="speak for 'yes' against 'no', but .* curve 0.00"):
        warn_if_reversed(LABELS, -z, stacklevel=1)


def test_the_positive_label_is_the_second_of_two() -> None:
    assert positive_label(np.array(["no", "yes"], object)) == "yes"
    assert positive_label(np.array([0, 1])) == 1
    assert str(positive_label(np.array([0.0, 1.0]))) == "1"  # not 1.0, which no table has
    assert positive_label(np.array([0, 1, 2])) is None
    assert positive_label(np.empty(0)) is None
