"""The table of gaps: what is derived from a line, for every line."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fairij import fairness
from fairij.errors import InvalidInputError
from fairij.fairness import CONSTRAINTS, GAPS, Gap
from fairij.fairness.rates import FALSE_NEGATIVE_RATE, FALSE_POSITIVE_RATE, MEAN_ERROR, markdown


@pytest.mark.parametrize("gap", GAPS.values(), ids=lambda gap: gap.name)
def test_every_gap_has_all_its_forms(gap: Gap) -> None:
    constraint = CONSTRAINTS[gap.name]
    assert constraint.rates == gap.rates
    assert (constraint.parts is not None) == gap.balanced
    assert f"| `{gap.name}` | {gap.rates_in_words}" in markdown()
    assert getattr(fairness, gap.metric_name).__name__ == gap.metric_name
    assert gap.metric_name in dir(fairness)
    rng = np.random.default_rng(0)
    y, predicted, groups = rng.integers(0, 2, (3, 200))
    take = fairness.audit if gap.is_classification else fairness.audit_regression
    audit = take(y, predicted, sensitive_features=groups, n_resamples=20)
    value, low, high = audit.interval(gap.metric_name)
    expected = getattr(fairness, gap.metric_name)(y, predicted, sensitive_features=groups)
    assert value == audit[gap.metric_name] == pytest.approx(expected)
    assert low < high
    assert gap.metric_name in audit
    shown = gap.metric_name in audit.metrics.index
    assert shown == any(g.audited for g in GAPS.values() if g.metric_name == gap.metric_name)


def test_words_are_those_that_people_use() -> None:
    assert {gap.metric_name: gap.words for gap in GAPS.values() if gap.audited} == {
        "demographic_parity_difference": "demographic parity gap",
        "equalized_odds_sum": "equalized odds gap (sum)",
        "equalized_odds_difference": "equalized odds gap (worst case)",
        "equal_opportunity_difference": "equal opportunity gap",
        "mean_prediction_difference": "gap of mean predictions",
        "mean_error_difference": "gap of mean errors",
    }
    assert GAPS["equal_opportunity"].formula == (
        "largest over c of (max_g - min_g) P(yhat = c given y = c, g)"
    )


def test_a_gap_that_is_not_in_the_table_has_its_own_name() -> None:
    own = Gap("errors", (FALSE_NEGATIVE_RATE, FALSE_POSITIVE_RATE), "sum")
    assert (own.family, own.metric_name) == ("errors", "errors_sum")
    assert own.words == "errors gap (sum)"
    assert fairness.get_constraint(own).rates == own.rates
    assert pickle.loads(pickle.dumps(own)) == own
    with pytest.raises(AttributeError, match="no attribute 'errors_sum'"):
        _ = fairness.errors_sum


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rates": ()}, r"`rates` of the gap 'mine' must be .*; got \[\]"),
        ({"rates": (FALSE_NEGATIVE_RATE, MEAN_ERROR)}, r"not both; got .*, 'mean_error'\]"),
        ({"rates": (FALSE_NEGATIVE_RATE,), "balanced": True}, "must be 'sum'.* got 'worst_case'"),
    ],
)
def test_a_gap_that_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Gap("mine", **settings)


def test_names_of_constraints_are_known_without_heavy_libraries() -> None:
    code = (
        "import sys, fairij.fairness.rates as table\n"
        "print(len(table.GAPS), {'torch', 'pandas'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(GAPS)), "set()"]
