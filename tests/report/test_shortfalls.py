"""A gap that grew, and a target or a budget that is missed, are said first and are not green."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_cases import make_case

from biased import fair, problem
from fairij import AccuracyBudget, FairIJ, LowestGap, TargetGap
from fairij.fairness import Audit
from fairij.report import write_report
from fairij.report.checks import checks
from fairij.report.comparisons import Comparison, on_test_rows, on_validation_rows
from fairij.report.shortfalls import shortfalls
from fairij.report.verdicts import reasons

GAP = "demographic_parity_difference"


def fitted(rule: Any) -> FairIJ:
    """A result as if this rule had made the choice."""
    found = copy.copy(make_case("binary").fitted)
    return found.set_params(selection=rule)


def rows(**after: tuple[float, float, float]) -> Comparison:
    """Test rows on which measures have these values and intervals after the edit."""
    shown = on_validation_rows(make_case("binary").fitted)
    metrics = shown.after.metrics.copy()
    for name, values in after.items():
        metrics.loc[name, ["value", "low", "high"]] = values
    changed: Audit = copy.copy(shown.after)
    object.__setattr__(changed, "metrics", metrics)
    return Comparison("test rows", shown.before, changed)


def verdict(model: FairIJ, shown: Comparison) -> str:
    found = checks(model, on_validation_rows(model), shown)
    return next(check.verdict for check in found if check.name.startswith("Was what you asked"))


def test_a_target_that_is_missed_on_test_rows_is_not_green() -> None:
    """The validation rows reach it."""
    model = fitted(TargetGap(0.2))
    reached, missed = rows(**{GAP: (0.1, 0.0, 0.2)}), rows(**{GAP: (0.3, 0.25, 0.35)})
    unsure = rows(**{GAP: (0.21, 0.1, 0.3)})
    assert not shortfalls(model, reached)
    assert [verdict(model, r) for r in (reached, unsure, missed)] == ["green", "amber", "red"]
    (found,) = shortfalls(model, unsure)
    assert found.text == (
        "The target is missed: a demographic parity gap of at most 0.2 was asked for, and on the "
        "test rows it is 0.2100 (0.1000 to 0.3000)."
    )


def test_a_target_that_only_test_rows_reach_by_luck_is_missed() -> None:
    model = fitted(TargetGap(1e-6))
    (found,) = shortfalls(model, rows(**{GAP: (0.0, 0.0, 0.1)}))
    assert "on the validation rows it is" in found.text
    assert found.is_clear


def test_a_budget_that_is_missed_on_test_rows_is_not_green() -> None:
    model = fitted(AccuracyBudget(0.01))
    before = rows().before["accuracy"]
    lost = {"accuracy": (before - 0.05, before - 0.07, before - 0.03)}
    (found,) = shortfalls(model, rows(**lost))
    assert "at most 0.01 of accuracy was to be lost" in found.text
    assert "a loss of 0.0500" in found.text
    assert verdict(model, rows(**lost)) == "red"
    kept = {"accuracy": (before - 0.005, before - 0.05, before)}
    assert verdict(model, rows(**kept)) == "green"


def test_a_gap_that_grew_gets_an_unfriendly_headline(tmp_path: Path) -> None:
    """The fitted model and the edited one are exchanged, so that the edit raises the gap."""
    case, model = make_case("binary"), fitted(LowestGap())
    model.estimator, model.estimator_ = model.estimator_, model.estimator
    arguments = {name: case.arguments[name] for name in ("X_test", "y_test")}
    test = on_test_rows(model, *arguments.values(), case.arguments["sensitive_features_test"])
    assert test is not None
    (found,) = shortfalls(model, test)
    before, after = test.before[GAP], test.after[GAP]
    assert after > before
    assert found.text == (
        "The edit did harm: the demographic parity gap, which it was to lower, GREW on the test "
        f"rows, from {before:.4f} to {after:.4f}. Do not use it."
    )
    assert not found.is_promise
    page = write_report(model, tmp_path / "page.html", **case.arguments).read_text()
    assert page.index('<p class="missed">The edit did harm') < page.index('<p class="answer">')


def test_the_reason_stands_beside_the_badge(tmp_path: Path) -> None:
    model = fitted(AccuracyBudget(0.01))
    found = checks(model, on_validation_rows(model), None)
    reason = reasons(found)
    assert "Was what you asked for reached? The budget is missed" in reason
    text = write_report(model, tmp_path / "page.html", X=problem().X).read_text()
    badge = text.index("red: serious concern")
    assert "The budget is missed" in text[badge : badge + 2000]
    assert "The budget is missed" in model._html_repr()


def test_predicted_refits_are_on_the_page(tmp_path: Path) -> None:
    model = problem().fit(fair())
    page = tmp_path / "page.html"
    assert "trained again without" not in write_report(model, page, X=problem().X).read_text()
    first, second = model.predict_refit(k=[5, 20])
    text = write_report(model, page, X=problem().X, overwrite=True).read_text()
    for one in (first, second):
        assert f"gap, trained again without {one.k} rows" in text
        assert f"{one.gap:.4f}" in text
        assert f"{one.performance:.4f} without {one.k} rows" in text
    told = "second step of the prediction would have raised" in text
    assert told == (not (first.further_step and second.further_step))


def test_with_three_groups_the_page_says_which_score_drops_rows(tmp_path: Path) -> None:
    case = make_case("three")
    text = write_report(case.fitted, tmp_path / "page.html", **case.arguments).read_text()
    assert "So it drops rows by another score" in text
    assert "Shaded:" not in text


@pytest.mark.parametrize("rule", [LowestGap(), TargetGap(0.9), AccuracyBudget(0.9)])
def test_what_is_reached_is_not_mentioned(rule: Any) -> None:
    assert not shortfalls(fitted(rule), rows())


def test_groups_of_test_rows_that_no_validation_row_has_are_said() -> None:
    case = make_case("binary")
    given = {name: case.arguments[f"{name}_test"] for name in ("X", "y", "sensitive_features")}
    X, y, groups = (np.asarray(values) for values in given.values())
    assert not any("Groups that" in text for text in _said(case.fitted, X, y, groups))
    other, first = groups.astype(object).copy(), groups[0]
    other[[3, 5, 8]] = "another"
    told = next(text for text in _said(case.fitted, X, y, other) if "Groups that" in text)
    assert told.startswith("Groups that no validation row has: 'another' (3) of the test rows.")
    alone = groups == first
    told = next(t for t in _said(case.fitted, X[alone], y[alone], other[alone]) if "none of" in t)
    names = {str(name) for name in np.unique(groups)} - {str(first)}
    assert all(f"{name!r}" in told for name in names)
    many = np.array([f"town {n % 30}" for n in range(len(y))])
    assert any("and 22 more of the test rows" in text for text in _said(case.fitted, X, y, many))


def _said(model: FairIJ, *rows: Any) -> list[str]:
    shown = on_test_rows(model, *rows)
    assert shown is not None
    return shown.said
