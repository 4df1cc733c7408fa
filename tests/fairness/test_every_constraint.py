"""Each line of the table works everywhere: fits, audits, page, command line. None is named here."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from biased import fair, fitted, problem
from fairij.cli import app
from fairij.cli.console import audit_dict
from fairij.cli.folder import audit_from_dict
from fairij.errors import FairIJWarning
from fairij.fairness import CONSTRAINTS, GAPS, Rate
from fairij.report.checks import checks
from fairij.report.comparisons import gap_metric, metric_rows, on_test_rows, on_validation_rows
from fairij.report.everyday import PHRASES
from fairij.report.headline import answer


def said_of(rate: Rate, text: str) -> bool:
    """Whether a sentence tells the rate in everyday words."""
    if not rate.is_classification:
        return "On average the model now" in text
    among, verb = PHRASES[rate.name].among.partition("{}")[0], PHRASES[rate.name].verb
    return among in text and verb.partition("{}")[0] in text


@pytest.mark.parametrize("name", GAPS)
def test_a_fit_lowers_the_gap_and_the_page_has_words_for_it(name: str) -> None:
    gap = GAPS[name]
    task = "three" if gap.is_classification else "real"
    data, half = problem(task), np.arange(480) < 360
    real = {} if gap.is_classification else {"loss": "squared_error", "search": "path"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        result = data.fit(
            fair(fitted(task), constraints=name, validation_use="reuse", **real),
            X_val=data.X_val[half],
            y_val=data.y_val[half],
            sensitive_features_val=data.sex_val[half],
        )
    first, last = (result.candidates_["gap"].iloc[row] for row in (0, result.chosen_))
    assert last < 0.9 * first
    assert result.before_[gap.metric_name] == pytest.approx(first, abs=1e-5)
    assert result.after_[gap.metric_name] == pytest.approx(last, abs=1e-5)

    rest = (data.X_val[~half], data.y_val[~half], data.sex_val[~half])
    validation, unseen = on_validation_rows(result), on_test_rows(result, *rest)
    assert gap_metric(result) == gap.metric_name
    text = answer(result, unseen)
    assert f"{gap.words} {unseen.before[gap.metric_name]:.4f} → " in text
    assert all(said_of(rate, text) for rate in gap.rates) or gap.form == "highest"
    assert "To get there, " in text
    said = " ".join(check.text for check in checks(result, validation, unseen))
    defined = not np.isnan(unseen.after[gap.metric_name])  # nobody may be predicted as a class
    after = "went from" if defined else "on the test rows is not defined"
    assert f"{'On the test rows the' if defined else 'The'} {gap.words} {after}" in said
    assert "measured on validation rows only" not in said
    assert [row.name for row in metric_rows(result, unseen) if row.asked] == [gap.words]

    stored = audit_from_dict(audit_dict(result.after_))
    assert stored.interval(gap.metric_name) == result.after_.interval(gap.metric_name)


def test_the_command_line_offers_all_of_them() -> None:
    shown = CliRunner().invoke(app, ["mitigate", "--help"], env={"COLUMNS": "400"})
    assert shown.exit_code == 0
    assert [name for name in CONSTRAINTS if name not in shown.output] == []
