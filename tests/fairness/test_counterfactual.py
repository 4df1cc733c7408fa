"""Rows that differ in one attribute alone: pairs, kinds, and the values that are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairij.errors import InvalidInputError
from fairij.fairness import Counterfactual

WHO = ["a", "b", "c"] * 4
PAIRS = np.repeat(["w", "x", "y", "z"], 3)
KINDS = np.repeat(["calm", "rude"], 6)


def made(**changes: Any) -> Counterfactual:
    given: dict[str, Any] = {"X": list(range(12)), "swapped": WHO, "pairs": PAIRS}
    return Counterfactual(**{**given, **changes})


def test_every_value_is_compared_with_every_other_one() -> None:
    (side,) = made().sides
    assert side.groups.names == ("a", "b", "c")
    assert side.groups.is_plain
    assert side.rows.tolist() == list(range(12))
    assert repr(made()) == "Counterfactual(protected=None, name='counterfactual')"


def test_protected_values_are_compared_with_the_rest_within_kinds() -> None:
    calm, rude = made(kinds=KINDS, protected="b").sides
    assert calm.groups.names == ("all others", "b")
    assert calm.groups.codes.tolist() == [0, 1, 0] * 2
    assert calm.groups.weight is not None
    assert calm.groups.weight.tolist() == [0.5, 1.0, 0.5] * 2
    assert rude.rows.tolist() == list(range(6, 12))
    (both,) = made(protected=["a", "b"]).sides
    assert both.groups.names == ("all others", "a or b")


def test_a_pair_counts_alike_however_many_rows_a_value_has() -> None:
    (side,) = made(X=range(5), swapped=["a", "a", "b", "a", "b"], pairs=[0, 0, 0, 1, 1]).sides
    assert side.groups.weight is not None
    assert side.groups.weight.tolist() == [0.5, 0.5, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"swapped": ["a"] * 12}, "`swapped` of Counterfactual must have at least two values"),
        ({"swapped": [None, *WHO[1:]]}, "`swapped` of Counterfactual has 1 missing"),
        ({"pairs": PAIRS[:5]}, "`pairs` of Counterfactual must have one row per data point"),
        ({"pairs": [*PAIRS[:11], "alone"]}, "the pair of row 11 has none with 'a'"),
        ({"kinds": KINDS[:5]}, "`kinds` of Counterfactual must have one row"),
        ({"protected": "nobody"}, "must be some of the values"),
        ({"protected": ["a", "b", "c"]}, "leave others to compare with"),
        ({"protected": []}, "must be some of the values"),
    ],
)
def test_bad_input(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        made(**changes).sides  # noqa: B018 - it is computed when it is asked for
