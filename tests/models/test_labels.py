"""Labels as a model takes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fairij.errors import InvalidInputError
from fairij.models.labels import Labels, encode_labels, positive_label, reversed_labels
from fairij.models.losses import get_loss

TRUTH = torch.tensor([0] * 40 + [1] * 80, dtype=torch.float64)
LABELS = Labels(get_loss("binary_cross_entropy"), np.array(["no", "yes"]), TRUTH, TRUTH)


def test_labels_of_one_class_are_refused_also_where_the_model_names_both() -> None:
    z, y = torch.zeros(4, dtype=torch.float64), np.array(["no"] * 4)
    both = np.array(["no", "yes"])
    with pytest.raises(InvalidInputError, match="both classes, found only no"):
        encode_labels(z, z, y, np.array(["no", "yes", "no", "no"]), "binary_cross_entropy", both)


def test_outputs_that_speak_for_the_other_label_are_noticed() -> None:
    z = torch.where(TRUTH == 1, 1.0, -1.0)
    for sound in (z, z + 9):  # the second says yes to everything, and ranks well
        assert reversed_labels(LABELS, sound) == []
    (notice,) = reversed_labels(LABELS, -z)
    assert "ranks 'no' above 'yes'" in notice.text
    assert "curve 0.00" in notice.text


def test_the_positive_label_is_the_second_of_two() -> None:
    assert positive_label(np.array(["no", "yes"], object)) == "yes"
    assert positive_label(np.array([0, 1])) == 1
    assert str(positive_label(np.array([0.0, 1.0]))) == "1"  # not 1.0, which no table has
    assert positive_label(np.array([0, 1, 2])) is None
    assert positive_label(np.empty(0)) is None
