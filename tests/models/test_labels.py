"""Labels as a model takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fairij.errors import InvalidInputError
from fairij.models.base import EditableDefaults
from fairij.models.labels import encode_labels, known_classes, positive_label


def test_labels_of_one_class_are_refused_also_where_the_model_names_both() -> None:
    z, y = torch.zeros(4, dtype=torch.float64), np.array(["no"] * 4)
    both = np.array(["no", "yes"])
    with pytest.raises(InvalidInputError, match="both classes, found only no"):
        encode_labels(z, z, y, np.array(["no", "yes", "no", "no"]), "binary_cross_entropy", both)


def test_the_positive_label_is_the_second_of_two() -> None:
    assert positive_label(np.array(["no", "yes"], object)) == "yes"
    assert positive_label(np.array([0, 1])) == 1
    assert str(positive_label(np.array([0.0, 1.0]))) == "1"  # not 1.0, which no table has
    assert positive_label(np.array([0, 1, 2])) is None
    assert positive_label(np.empty(0)) is None


WORDS = np.array(["low", "high", "middle"])


def test_several_words_need_an_order_and_never_get_the_alphabet() -> None:
    z, y = torch.eye(3, dtype=torch.float64).repeat(4, 1), np.tile(WORDS, 4)
    with pytest.raises(InvalidInputError, match=r"words .'high', 'low', 'middle'.*order") as found:
        encode_labels(z, z, y, y, "auto")
    assert found.value.parameter == "classes"
    labels = encode_labels(z, z, y, y, "auto", WORDS)
    assert labels.train.tolist() == [0, 1, 2] * 4


@pytest.mark.parametrize("values", [(1, 2, 3), ("2", "9", "10"), (0.0, 1.0, 2.0), (10, 20, 30)])
def test_numbers_have_an_order_of_their_own(values: tuple[float | str, ...]) -> None:
    z, y = torch.eye(3, dtype=torch.float64).repeat(4, 1), np.array(values * 4)
    assert encode_labels(z, z, y, y, "auto").train.tolist() == [0, 1, 2] * 4


class Told(EditableDefaults):
    """A model that tells its classes."""

    classes = np.array(["no", "yes"])


def test_classes_that_are_given_must_be_the_models() -> None:
    model: Any = Told()
    assert known_classes(model, WORDS, ["no", "yes"]).tolist() == ["no", "yes"]
    with pytest.raises(InvalidInputError, match=r"own labels in its order, \['no', 'yes'\]"):
        known_classes(model, WORDS, ["yes", "no"])
    unknown: Any = EditableDefaults()
    assert known_classes(unknown, WORDS, (1, 0)).tolist() == [1, 0]
    for wrong in ("yes", ["yes"], ["yes", "yes"], 3, [["no", "yes"]], [1, "1"]):
        with pytest.raises(InvalidInputError, match="at least two and all different"):
            known_classes(unknown, WORDS, wrong)


def test_classes_must_be_as_many_as_the_outputs() -> None:
    z, y = torch.zeros(6, dtype=torch.float64), np.array([0, 1, 1, 0, 1, 0])
    with pytest.raises(InvalidInputError, match=r"1 output.*has 3 labels"):
        encode_labels(z, z, y, y, "auto", np.array([0, 1, 2]))
