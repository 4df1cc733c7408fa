"""Which rows a constraint needs follows from the rates that it compares."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fairij.errors import InvalidInputError, SmallGroupWarning
from fairij.fairness import CONSTRAINTS, Constraint, Gap, encode_groups
from fairij.fairness.constraints import check_sizes, rows_compared
from fairij.fairness.rates import (
    ACCURACY,
    FALSE_NEGATIVE_RATE,
    FALSE_POSITIVE_RATE,
    SELECTION_RATE,
    TRUE_POSITIVE_RATE,
    Rate,
)

CLASSES = np.array(["no", "yes"])
ODDS = (TRUE_POSITIVE_RATE, FALSE_POSITIVE_RATE)
GROUPS = encode_groups(["a"] * 80 + ["b"] * 40)
NO_NEGATIVES = np.array([0] * 40 + [1] * 80)  # no row of "b" has the label "no"
NO_POSITIVES = 1 - NO_NEGATIVES


def constraint(*rates: Rate) -> Constraint:
    return Constraint.of(Gap("mine", rates))


@pytest.mark.parametrize(
    ("rates", "lacks"),
    [
        ((SELECTION_RATE,), None),
        ((ACCURACY,), None),
        ((TRUE_POSITIVE_RATE,), "yes"),
        ((FALSE_NEGATIVE_RATE,), "yes"),
        ((FALSE_POSITIVE_RATE,), "no"),
        (ODDS, "both"),
    ],
    ids=lambda value: "+".join(rate.name for rate in value) if isinstance(value, tuple) else None,
)
def test_a_group_needs_rows_of_the_labels_that_its_rates_are_taken_over(
    rates: tuple[Rate, ...], lacks: str | None
) -> None:
    for y, label in ((NO_NEGATIVES, "no"), (NO_POSITIVES, "yes")):
        if lacks in (label, "both"):
            text = f"of each label that the constraint looks at; found 0 of 'b with label {label}'"
            with pytest.raises(InvalidInputError, match=text):
                check_sizes(constraint(*rates), y, CLASSES, GROUPS)
        else:
            assert check_sizes(constraint(*rates), y, CLASSES, GROUPS) == []


def test_every_constraint_in_the_table_counts_rows_that_exist() -> None:
    y = np.arange(120) % 2
    for known in CONSTRAINTS.values():
        classes = CLASSES if known.is_classification else CLASSES[:0]
        cells = rows_compared(known, y, classes, GROUPS)
        assert set(cells.values()) <= {80, 40, 20}
        assert len(check_sizes(known, y, classes, GROUPS)) == (min(cells.values()) < 30)


def test_with_three_classes_a_rate_may_be_taken_over_two_labels() -> None:
    y, classes = np.arange(120) % 3, np.array(list("xyz"))
    cells = rows_compared(constraint(FALSE_POSITIVE_RATE), y, classes, GROUPS)
    assert list(cells)[:3] == ["a with label x or y", "a with label x or z", "a with label y or z"]
    assert cells["a with label x or y"] == 54
    cells = rows_compared(constraint(*ODDS), y, classes, GROUPS)
    assert list(cells)[:3] == ["a with label x", "a with label y", "a with label z"]
    assert len(cells) == 12


def test_few_rows_are_noted() -> None:
    groups = encode_groups(["a"] * 100 + ["b"] * 20)
    (notice,) = check_sizes(constraint(*ODDS), np.arange(120) % 2, CLASSES, groups)
    assert notice.category is SmallGroupWarning
    assert "10 of 'b with label no', 10 of 'b with label yes'. Rates over fewer" in notice.text
    many = encode_groups([f"g{i // 2}" for i in range(120)])
    (notice,) = check_sizes(constraint(SELECTION_RATE), NO_POSITIVES, CLASSES, many)
    assert "and 54 more like these" in notice.text


def test_what_cannot_be_compared_is_refused() -> None:
    one = encode_groups(["a"] * 120)
    with pytest.raises(InvalidInputError, match=r"at least two groups .* found only 'a'"):
        check_sizes(constraint(SELECTION_RATE), NO_POSITIVES, CLASSES, one)
    with pytest.raises(InvalidInputError, match=r"defined for regression: one of .'mean_error'"):
        check_sizes(constraint(SELECTION_RATE), NO_POSITIVES, CLASSES[:0], GROUPS)
    with pytest.raises(InvalidInputError, match=r"for classification: one of .*, got 'mean_error'"):
        check_sizes(CONSTRAINTS["mean_error"], NO_POSITIVES, CLASSES, GROUPS)
    own = Constraint.custom(lambda z, y, groups: z.mean())  # decides for itself
    assert check_sizes(own, NO_POSITIVES, CLASSES, one) == []


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ((SELECTION_RATE,), "40 rows of 'b' show its rate to within 0.15 only: about 683 val"),
        ((ACCURACY,), "40 rows of 'b' show its rate to within 0.15 only: about 769 val"),
        ((TRUE_POSITIVE_RATE,), "40 rows of 'a with label yes' .* 0.15 only: about 769"),
    ],
)
def test_a_gap_that_is_too_small_to_be_seen_is_noted(rates: tuple[Rate, ...], text: str) -> None:
    data = (constraint(*rates), NO_NEGATIVES, CLASSES, GROUPS)
    for target, found in ((0.05, True), (0.9, False), (None, False)):
        notices = check_sizes(*data, target)
        assert len(notices) == found
        for notice in notices:
            assert notice.category is SmallGroupWarning
            assert re.search(text, notice.text)
