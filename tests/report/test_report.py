"""What the page says, checked without a browser."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from report_cases import HOSTILE, make_case

from biased import fair, problem
from fairij import FairIJ
from fairij.errors import InvalidInputError
from fairij.method.search.base import Account, Proposal, SearchContext, SearchDefaults
from fairij.report import checks as checks_module
from fairij.report import slices, write_report
from fairij.report.candidates import MOST_POINTS, shown_candidates
from fairij.report.checks import checks
from fairij.report.comparisons import on_test_rows, on_validation_rows, rate_rows, unedited
from fairij.report.headline import answer, costs, opening
from fairij.report.render import script_json
from fairij.report.training_table import harmful_rows
from fairij.report.verdicts import Check, worst


def compared(name: str) -> tuple[FairIJ, Any, Any]:
    case = make_case(name)
    names = ("X_test", "y_test", "sensitive_features_test")
    test = on_test_rows(case.fitted, *(case.arguments.get(part) for part in names))
    return case.fitted, on_validation_rows(case.fitted), test


@pytest.mark.parametrize(
    "name", ["binary", "three", "real", "lightgbm", "unedited", "path", "reweight"]
)
def test_candidates_carry_the_rates_that_the_audit_finds(name: str) -> None:
    fitted = make_case(name).fitted
    shown = shown_candidates(fitted)
    for row, audit in ((0, fitted.before_), (fitted.chosen_, fitted.after_)):
        found = shown.of_group[shown.place(row)]  # (groups, rates)
        known = [rate for rate in shown.rates if rate in audit.by_group]
        places = [shown.rates.index(rate) for rate in known]
        np.testing.assert_allclose(found[:, places], audit.by_group[known], atol=1e-6)
        # audits know labels only
        assert set(shown.rates) - set(known) <= {"calibration_error"}


def test_many_candidates_are_thinned_but_not_the_ones_that_matter() -> None:
    fitted = copy.copy(make_case("binary").fitted)
    rng = np.random.default_rng(0)
    rows = fitted.candidates_.iloc[rng.integers(1, len(fitted.candidates_), 5000)]
    table = pd.concat([fitted.candidates_, rows], ignore_index=True)
    table["pareto"] = [*fitted.candidates_["pareto"], *([False] * 5000)]
    fitted.candidates_ = table
    shown = shown_candidates(fitted)
    assert len(shown.table) == MOST_POINTS
    assert shown.left_out == len(table) - MOST_POINTS
    assert {0, fitted.chosen_, *table.index[table["pareto"]]} <= set(shown.table.index)
    assert shown.table["gap"].is_monotonic_increasing


def test_test_rows_are_audited_for_both_models() -> None:
    case = make_case("lightgbm")
    arguments, fitted = case.arguments, case.fitted
    found = compared("lightgbm")[2]
    y = arguments["y_test"]
    before = (fitted.estimator.predict(arguments["X_test"]) == y).mean()
    after = (fitted.estimator_.predict(arguments["X_test"]) == y).mean()
    assert found.before["accuracy"] == pytest.approx(before)
    assert found.after["accuracy"] == pytest.approx(after)
    assert unedited(fitted) is not fitted
    assert fitted.estimator_ is not fitted.estimator


def test_the_answer_begins_in_everyday_words_and_ends_with_figures_of_the_test_rows() -> None:
    fitted, _, test = compared("binary")
    text = answer(fitted, test)
    selected = [100 * test.after.by_group["selection_rate"][group] for group in ("f", "m")]
    before = [100 * test.before.by_group["selection_rate"][group] for group in ("f", "m")]
    assert text.startswith(
        "The model now says “1” about as often for f as for m: for {:.0f} and {:.0f} of 100, "
        "instead of {:.0f} and {:.0f}. To get there, ".format(*selected, *before)
    )
    assert f"as if {len(fitted.dropped_)} of the 240 training rows" in text
    for name in ("demographic_parity_difference", "accuracy"):
        assert f"{test.before[name]:.4f} → {test.after[name]:.4f}" in text
    assert "AUC {:.4f} → {:.4f}".format(*test.changes.values("auc")) in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("path", ("in small steps", "% of the way", "rows that were held out of the edit")),
        (
            "reweight",
            (
                "had counted less",
                "the gap to expect on new rows is",
                "Only held-out rows show that.",
                "rows that count less",
            ),
        ),
        ("unedited", ("The model was left as it was", "the model is as it was")),
    ],
)
def test_edits_that_drop_no_row_are_told_as_they_are(
    name: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    case = make_case(name)
    assert len(case.fitted.dropped_) == 0
    text = write_report(case.fitted, tmp_path / "page.html", **case.arguments).read_text()
    for word in words:
        assert word in text
    assert "left out</button>" not in text  # no column that says "no" in every row


@dataclass(frozen=True)
class Nudge(SearchDefaults):
    """A search that only this test knows: along the gradient, to where the gap should be zero."""

    name: ClassVar[str] = "nudge"

    def count(self, context: SearchContext) -> int:
        return 1

    def propose(self, context: SearchContext) -> Iterator[Proposal]:
        direction = -context.inverse.solve(context.gradient).x
        fall = -float(context.gradient @ direction)
        yield Proposal(7, direction * (abs(context.gap) / fall), (0.5, 1.0))

    def account(self, k: int, scale: float, rows: int) -> Account:
        return Account(
            f"nudged the model {k} times at {rows} places.",
            "strength of the nudge",
            f"{scale:g} bars",
            "on the scale of nudges",
            "It is a gentle nudge.",
        )


def test_a_model_that_stays_as_it_was_has_no_decisions_to_list(tmp_path: Path) -> None:
    case = make_case("unedited")
    text = write_report(case.fitted, tmp_path / "page.html", **case.arguments).read_text()
    assert "None. The two models decide alike about all " in text
    assert "Decisions that changed, by group" not in text
    assert "`" not in opening(case.fitted, on_validation_rows(case.fitted))


def test_of_many_groups_whole_groups_are_listed_and_the_rest_is_counted() -> None:
    shown = on_validation_rows(make_case("binary").fitted)
    rows, left_out = rate_rows(shown, 7)
    assert left_out == len(shown.before.by_group) - 1
    assert len({row.group for row in rows}) == 1
    assert len(rows) == len(rate_rows(shown, 10**6)[0]) // len(shown.before.by_group)


@pytest.mark.parametrize("recomputes", [False, True])
def test_a_search_describes_its_own_edit(
    recomputes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nudge, "recomputes_gradient", recomputes)
    data = problem()
    fitted = data.fit(fair(search=Nudge()))
    assert fitted.chosen_ > 0
    text = write_report(fitted, tmp_path / "page.html", X=data.X).read_text()
    for words in (
        "The edit nudged the model 7 times at 240 places.",
        "<dt>strength of the nudge</dt>",
        f"<b>{fitted.edit_.settings['scale']:g} bars</b><small>on the scale of nudges</small>",
        "<p>It is a gentle nudge. It ",
    ):
        assert words in text
    assert "training rows would" not in text
    assert ("made in steps, with a new estimate for each" in text) == recomputes
    assert ("Did the model move as predicted?" in text) != recomputes


def test_the_default_account_of_a_search_makes_a_whole_page(tmp_path: Path) -> None:
    data = problem()

    class Plain(Nudge):
        account = SearchDefaults.account

    text = write_report(data.fit(fair(search=Plain())), tmp_path / "p.html", X=data.X).read_text()
    assert "The edit moves the numbers inside the model. The model was not trained again." in text
    assert "<dt>size of the edit</dt>" in text


def test_what_was_not_asked_for_and_grew_is_said() -> None:
    fitted, validation, _ = compared("binary")
    worse = copy.deepcopy(validation)
    assert "equal opportunity" not in costs(fitted, validation)
    worse.after.metrics.loc["equal_opportunity_difference", "value"] += 1
    assert "equal opportunity gap" in costs(fitted, worse)


def test_an_own_constraint_has_its_gap_from_the_search(tmp_path: Path) -> None:
    case = make_case("binary")
    fitted = copy.copy(case.fitted)
    fitted.edit_ = copy.copy(fitted.edit_)
    object.__setattr__(fitted.edit_, "settings", {**fitted.edit_.settings, "constraint": "own<b>"})
    text = write_report(fitted, tmp_path / "own.html", **case.arguments).read_text()
    before, gap = fitted.candidates_["gap"].iloc[[0, fitted.chosen_]]
    assert f"went from {before:.4f} to {gap:.4f}. To get there" in text
    assert "own&lt;b&gt; gap" in text


def verdict(found: list[Check], name: str) -> str:
    return next(check.verdict for check in found if name in check.name)


def moved(*, predicted: float, actual: float) -> dict[str, float]:
    return {
        "surrogate_before": 1.0,
        "surrogate_predicted": predicted,
        "surrogate_after": actual,
    }


@pytest.mark.parametrize(
    ("changes", "check", "expected"),
    [
        ({"influence_residual": 0.001, "edit_residual": 0.001}, "solved", "green"),
        ({"edit_residual": 0.1}, "solved", "amber"),
        ({"influence_residual": 0.9}, "solved", "red"),
        ({"influence_residual": float("nan")}, "solved", "red"),
        ({"drift": 0.0}, "trained", "green"),
        ({"drift": -0.3, "surrogate_weighted": 1.0}, "trained", "amber"),
        ({"drift": 0.6, "surrogate_weighted": 1.0}, "trained", "red"),
        ({"drift": 0.6, "surrogate_weighted": 0.0}, "trained", "red"),
        (moved(predicted=0, actual=0.1), "move as", "green"),
        (moved(predicted=0, actual=0.8), "move as", "amber"),
        (moved(predicted=0, actual=1.1), "move as", "red"),
        (moved(predicted=1, actual=1), "move as", "red"),
    ],
)
def test_verdicts_follow_the_diagnostics(
    changes: dict[str, float], check: str, expected: str
) -> None:
    fitted, validation, test = compared("binary")
    changed = copy.copy(fitted)
    changed.diagnostics_ = fitted.diagnostics_ | changes
    assert verdict(checks(changed, validation, test), check) == expected


def test_a_weighted_sum_of_gaps_is_not_called_the_gap() -> None:
    fitted, validation, test = compared("binary")
    changed = copy.copy(fitted)
    gap = fitted.diagnostics_["surrogate_before"]
    for level, named in ((gap, "change the smooth gap by"), (2 * gap, "the weighted sum of the")):
        changed.diagnostics_ = fitted.diagnostics_ | {"surrogate_weighted": level}
        (found,) = (c for c in checks(changed, validation, test) if "trained" in c.name)
        assert named in found.text


def test_what_an_edit_cannot_keep_is_told() -> None:
    fitted, validation, test = compared("binary")
    name = "cannot keep"
    assert not any(name in check.name for check in checks(fitted, validation, test))
    changed = copy.copy(fitted)
    changed.diagnostics_ = fitted.diagnostics_ | {"caveats": ["Not monotone.", "Nor else."]}
    (found,) = (c for c in checks(changed, validation, test) if name in c.name)
    assert (found.verdict, found.text) == ("amber", "Not monotone. Nor else.")


def test_verdicts_follow_the_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, validation, test = compared("binary")
    assert verdict(checks(fitted, validation, None), "played no part") == "amber"
    worse = replace(copy.deepcopy(test), changes=None)  # as in folders of 0.1.0
    worse.after.metrics.loc["demographic_parity_difference", "value"] = 0.99
    worse.after.metrics.loc["accuracy", "value"] = 0.1
    worse.after.metrics.loc["equal_opportunity_difference", "low"] = 0.99
    found = checks(fitted, validation, worse)
    assert verdict(found, "played no part") == "red"
    assert verdict(found, "cost") == "red"
    assert verdict(found, "other gaps") == "amber"
    assert worst(found) == "red"
    for size, expected in ((1, "green"), (20, "amber"), (100, "red")):
        monkeypatch.setattr(checks_module, "SMALL_CELL", size)  # the smallest group has about 95
        assert verdict(checks(fitted, validation, test), "large enough") == expected


@pytest.mark.parametrize("rows", [250_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_the_page_of_many_rows_stays_small(tmp_path: Path, rows: int) -> None:
    """More rows than are compared; the rest is sampled."""
    assert rows > 1.1 * slices.MOST_ROWS
    rng = np.random.default_rng(0)
    fitted = copy.copy(make_case("binary").fitted)
    fitted.influence_ = rng.normal(size=rows)
    fitted.dropped_ = harmful_rows(fitted, rows // 20)
    X = pd.DataFrame({"text": pd.Categorical(rng.choice(["x" * 300, "y"], rows))})
    X["id"], X["amount"] = np.arange(rows), rng.normal(size=rows)
    path = write_report(
        fitted, tmp_path / "large.html", X=X, y=rng.integers(0, 2, rows), show_rows=200
    )
    assert path.stat().st_size < 2_000_000  # the charting library alone is 0.9 MB
    text = path.read_text()
    assert 200 < text.count("<tr>") < 600
    np.testing.assert_array_equal(
        harmful_rows(fitted, 200), np.argsort(-fitted.influence_, kind="stable")[:200]
    )


@pytest.mark.parametrize("kind", ["tensor", "list", "mapping", "image", "frame of text"])
def test_rows_in_any_form_are_listed_or_passed_over(tmp_path: Path, kind: str) -> None:
    case = make_case("binary")
    X = case.arguments["X"]
    given: Any = {
        "tensor": torch.tensor(X),
        "list": ["a comment <b>"] * len(X),
        "mapping": {"a": X, "b": X},
        "image": X[:, :, None, None],
        "frame of text": pd.DataFrame({"x": [["a list"]] * len(X), "label": pd.NA}),
    }[kind]
    text = write_report(case.fitted, tmp_path / "page.html", X=given, show_rows=5).read_text()
    assert text.count("<tbody>") > 5
    assert ("a comment &lt;b&gt;" in text) == (kind == "list")


def test_feature_names_are_taken_where_given(tmp_path: Path) -> None:
    case = make_case("binary")
    names = ["age", "income", "debt", "years"]
    path = tmp_path / "named.html"
    write_report(case.fitted, path, **case.arguments, feature_names=names, show_rows=1)
    assert all(f'<button type="button">{name}</button>' in path.read_text() for name in names)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.zeros((3, 4))}, "`X` must be the 240 rows that `fit` was given.*got 3 rows"),
        ({"y": [1, 2]}, "`y` must have one"),
        ({"y_test": None}, "pass `X_test`, `y_test`.*got no `y_test`"),
        ({"y_test": np.full(240, 7)}, r"`y_test` must hold the labels that the model knows.*\[7\]"),
        ({"X_test": np.zeros((240, 9))}, "`X_test` must have the columns of the training rows"),
        ({"sensitive_features_test": ["a"]}, "`sensitive_features_test` must have one row"),
        ({"sensitive_features": ["a"]}, "`sensitive_features` must have one row"),
        ({"feature_names": ["a"]}, "`feature_names` must name the 4 columns"),
        ({"show_rows": -1}, "`show_rows` must be a whole number of at least 0"),
        ({"show_columns": ["age"]}, "`show_columns` must name columns of .*got 'age'"),
        ({"show_columns": "label"}, "`show_columns` must be a sequence of names, got 'label'"),
    ],
)
def test_wrong_input_is_named_and_nothing_is_written(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    case = make_case("binary")
    with pytest.raises(InvalidInputError, match=message):
        write_report(case.fitted, tmp_path / "page.html", **(case.arguments | changes))
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_only_when_told_to(tmp_path: Path) -> None:
    case, path = make_case("unedited"), tmp_path / "page.html"
    path.write_text("years of work")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_report(case.fitted, path, **case.arguments)
    assert path.read_text() == "years of work"
    write_report(case.fitted, path, **case.arguments, overwrite=True)
    assert "Fairness report" in path.read_text()


def test_no_name_from_data_reaches_the_file_unescaped(tmp_path: Path) -> None:
    case = make_case("hostile")
    path = tmp_path / "page.html"
    text = write_report(case.fitted, path, **case.arguments, show_rows=9).read_text()
    for value in HOSTILE[:6]:
        assert value not in text
    assert "{{ 7 * 7 }}" in text  # text from data is never taken for a template
    assert len(re.findall(r"<script>", text)) == 2
    assert "Content-Security-Policy" in text


def test_json_in_a_script_element_cannot_end_it() -> None:
    text = script_json({"<a>": ["</script>", "<!--", "\u2028\u2029", "&amp;"]})
    assert not set("<>&\u2028\u2029") & set(text)
