"""The first paragraph, and what must be read first, for audits whose figures are known."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_cases import make_case

from fairij import Budget
from fairij.fairness import GAPS, audit
from fairij.fairness.paired import paired
from fairij.report.about import About
from fairij.report.comparisons import Comparison
from fairij.report.everyday import gap_sentences, per_hundred, quoted
from fairij.report.headline import opening, price
from fairij.report.outcome_checks import are_chances_true, does_it_hold, what_it_cost
from fairij.report.shortfalls import first_lines, shortfalls

Cells = dict[str, tuple[int, int, int, int]]  # group: true and found, true, false and said, false
LOANS = About(label="default")


def rows(cells: Cells) -> pd.DataFrame:
    """Rows of groups in which so many of the true and of the other cases are said to be true."""
    parts = [
        pd.DataFrame(
            {
                "group": name,
                "y": np.repeat([1, 0], [true, false]),
                "said": np.concatenate([np.arange(true) < found, np.arange(false) < wrong]).astype(
                    int
                ),
            }
        )
        for name, (found, true, wrong, false) in cells.items()
    ]
    return pd.concat(parts, ignore_index=True)


def shown(before: Cells, after: Cells, label: Any = "yes") -> Comparison:
    first, last = rows(before), rows(after)
    y, groups = first["y"], first["group"]
    said = first["said"], last["said"]
    names = {"class_names": ["no", label]}
    one, other = (audit(y, p, sensitive_features=groups, **names) for p in said)
    chances = tuple(np.where(p == 1, 0.8, 0.2) for p in said)
    found = paired(
        y,
        said,
        (one, other),
        sensitive_features=groups,
        chances=(chances[0], chances[1]),
        codes=y.to_numpy(),
    )
    return Comparison("test rows", one, other, found)


BEFORE: Cells = {"women": (40, 100, 40, 900), "men": (400, 500, 100, 500)}
AFTER: Cells = {"women": (60, 100, 110, 900), "men": (170, 500, 10, 500)}


def sentences(name: str, comparison: Comparison, about: About | None = None) -> list[str]:
    return gap_sentences(comparison, GAPS[name], about or About(), edited=True)


def test_closed_and_smaller_gaps() -> None:
    """80 of 1,000 and 500 of 1,000 before; 170 and 180 after."""
    assert sentences("demographic_parity", shown(BEFORE, AFTER)) == [
        "The model now says “yes” about as often for men as for women: for 18 and 17 of 100, "
        "instead of 50 and 8."
    ]
    less = AFTER | {"men": (250, 500, 50, 500)}
    assert sentences("demographic_parity", shown(BEFORE, less)) == [
        "The model now says “yes” for 30 of 100 men and for 17 of 100 women, instead of 50 and 8."
    ]


def test_sentences_of_other_rates() -> None:
    found = shown(BEFORE, AFTER)
    assert sentences("equalized_odds", found) == [
        "Where “yes” is true, the model now says so for 34 of 100 men and for 60 of 100 women, "
        "instead of 80 and 40.",
        "Where “yes” is not true, the model says it all the same for 2 of 100 men and for 12 of "
        "100 women, instead of 20 and 4.",
    ]
    assert sentences("demographic_parity_ratio", found)[1] == (
        "The lower share is 94% of the higher one, instead of 16%."
    )
    (text,) = sentences("worst_group_error", found)
    assert text.startswith(
        "The model is now wrong most often in the group men: for 34 of 100. Before, "
    )
    (text,) = sentences("predictive_parity", found)
    assert text.startswith(
        "Where the model says “yes”, it now is right for 94 of 100 men and for 35 of 100 women"
    )


def test_of_several_groups_the_highest_and_the_lowest_are_named() -> None:
    more: Cells = {"others": (30, 100, 10, 100)}
    assert sentences("demographic_parity", shown(BEFORE | more, AFTER | more)) == [
        "The model now says “yes” most often in the group others, for 20 of 100, and least often "
        "in the group women, for 17 of 100. Before, it was 50 of 100 in the group men and 8 of "
        "100 in the group women."
    ]


@pytest.mark.parametrize(
    ("label", "about", "words"),
    [
        (1, LOANS, "“default = 1”"),
        ("yes", LOANS, "“default = yes”"),
        ("0", LOANS, "“default = 0”"),
        (">50K", LOANS, "“>50K”"),
        (1, About(), "“1”"),
        (True, LOANS, "“default = True”"),
    ],
)
def test_a_label_that_says_little_alone_has_its_column(
    label: Any, about: About, words: str
) -> None:
    assert quoted(label, about) == words
    comparison = shown(BEFORE, AFTER, label)
    assert f"says {words} about as often" in sentences("demographic_parity", comparison, about)[0]


@pytest.mark.parametrize(
    ("shares", "texts"),
    [
        ((0.13, 0.148, 0.08), ["13", "15", "8"]),
        ((0.004, 0.25), ["0.4", "25.0"]),
        ((0.0, 0.25), ["0", "25"]),
        ((0.076, 0.084), ["7.6", "8.4"]),
        ((0.598, 0.601), ["60", "60"]),
        ((float("nan"), 0.5), ["an unknown number", "50"]),
    ],
)
def test_shares_have_decimals_only_where_they_are_needed(
    shares: tuple[float, ...], texts: list[str]
) -> None:
    assert per_hundred(*shares) == texts


def test_the_price() -> None:
    assert price(shown(BEFORE, AFTER)) == (
        "To get there, 20 of 100 decisions change, and 9 more of 100 are wrong."
    )
    assert price(shown(BEFORE, BEFORE)) == (
        "To get there, 0 of 100 decisions change, and no more of them are wrong than before."
    )


def as_if(**settings: Any) -> Any:
    """A result for demographic parity, with another rule of choice."""
    return copy.copy(make_case("binary").fitted).set_params(**settings)


FLAGS: Cells = {"a": (219, 1000, 60, 4000), "b": (110, 500, 25, 2000)}
FEWER: Cells = {"a": (134, 1000, 20, 4000), "b": (67, 500, 10, 2000)}


def test_an_edit_that_just_flags_fewer_people_is_told_first_and_is_red() -> None:
    """Recall .219 to .134 on credit cards, for next to nothing in the gap."""
    comparison = shown(FLAGS, FEWER, "1")
    (text,) = first_lines(as_if(), comparison, LOANS)
    assert text.startswith(
        "The edit mostly makes the model say “default = 1” less often, in every group. Where "
        "“default = 1” is true, it now says so for 13 of 100, instead of 22."
    )
    assert opening(as_if(), comparison, LOANS).startswith("The model now says “default = 1”")
    (found,) = (s for s in shortfalls(as_if(), comparison, LOANS) if s.is_one_sided)
    assert found.is_clear
    assert not found.is_promise
    mild = FLAGS | {"a": (170, 1000, 40, 4000)}
    (found,) = (s for s in shortfalls(as_if(), shown(FLAGS, mild), LOANS) if s.is_one_sided)
    assert not found.is_clear
    raised = FEWER | {"b": (120, 500, 60, 2000)}  # one group gains
    assert not any(s.is_one_sided for s in shortfalls(as_if(), shown(FLAGS, raised), LOANS))


def test_saying_more_to_everyone_is_told_too() -> None:
    more = FLAGS | {"a": (300, 1000, 900, 4000)}
    (found,) = (s for s in shortfalls(as_if(), shown(FEWER, more)) if s.is_one_sided)
    assert "say “yes” more often, in every group. Where “yes” is not true, it now" in found.text


@pytest.mark.parametrize("measure", ["auc", "balanced_accuracy", "brier", "log_loss"])
def test_every_budget_is_checked_on_test_rows(measure: str) -> None:
    comparison = shown(FLAGS, FEWER)
    tight = {"accuracy": None, "balanced_accuracy": None, "auc": None} | {measure: 1e-4}
    found = [
        s for s in shortfalls(as_if(selection=Budget(**tight)), comparison) if not s.is_one_sided
    ]
    before, after = comparison.values(measure) or (0.0, 0.0)
    worse = before - after if measure in ("auc", "balanced_accuracy") else after - before
    assert len(found) == (worse > 1e-4)
    for one in found:
        assert one.text.startswith("The budget is missed: ")
        assert f"from {before:.4f} to {after:.4f}" in one.text
    assert len(found) == 1 or measure in ("brier", "log_loss")


def test_a_default_budget_that_may_be_kept_is_a_check_and_no_headline() -> None:
    fitted, comparison = as_if(selection="budget"), shown(BEFORE, AFTER)
    values = comparison.values("accuracy")
    assert values is not None
    assert values[0] - values[1] > Budget().accuracy  # type: ignore[operator]
    assert any("more than the default allows" in t for t in first_lines(fitted, comparison))
    measures = comparison.changes.measures.copy()  # type: ignore[union-attr]
    measures.loc[["accuracy", "balanced_accuracy", "auc"], ["low", "high"]] = (-0.9, 0.1)
    unsure = replace(comparison, changes=replace(comparison.changes, measures=measures))  # type: ignore[type-var]
    assert not any("more than the default allows" in t for t in first_lines(fitted, unsure))


def test_a_gap_whose_change_may_be_chance_is_not_green() -> None:
    fitted = as_if()
    small = {name: tuple(n // 25 for n in cell) for name, cell in BEFORE.items()}
    later = small | {"women": (2, 4, 2, 36)}
    found = does_it_hold(fitted, shown(BEFORE, AFTER), shown(small, later))  # type: ignore[arg-type]
    assert found.verdict == "amber"
    assert found.reason == "The change of the gap on the test rows may be chance."
    found = does_it_hold(fitted, shown(BEFORE, AFTER), shown(BEFORE, AFTER))
    assert found.verdict == "green"
    assert "The change on the test rows is " in found.text


def test_lost_cases_and_chances_that_come_true_no_more_are_not_green() -> None:
    fitted, comparison = as_if(), shown(FLAGS, FEWER)
    cost = what_it_cost(fitted, comparison, LOANS)
    assert cost.verdict != "green"
    assert (
        "“default = yes” is true, the model now says so for 13 of 100, instead of 22."
        in cost.reason
    )
    assert [check.verdict for check in are_chances_true(fitted, comparison)] == ["green"]
    calibration = pd.DataFrame({"before": [0.02], "after": [0.2], "low": [0.15]}, index=["a"])
    off = replace(comparison, changes=replace(comparison.changes, calibration=calibration))  # type: ignore[type-var]
    (found,) = are_chances_true(fitted, off)
    assert (found.verdict, found.reason) == ("red", "Do not read the scores of a as chances.")
