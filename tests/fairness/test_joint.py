"""Several gaps as one constraint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairij.errors import InvalidInputError
from fairij.fairness import CONSTRAINTS, Counterfactual, check_constraint
from fairij.fairness.joint import constraint_of

ROWS = Counterfactual([[0.0], [1.0]], ["a", "b"], [0, 0])


@pytest.mark.parametrize(
    "names",
    [
        ["demographic_parity", "equalized_odds"],
        ["equal_opportunity", "predictive_equality", "accuracy_parity"],
        ["demographic_parity_ratio", "equal_opportunity"],
        ["mean_prediction", "mean_error"],
    ],
)
def test_gaps_are_added_and_keep_every_rule(names: list[str]) -> None:
    both = constraint_of(names)
    check_constraint(both)
    assert both.name == " and ".join(names)
    assert constraint_of(names[:1]) == CONSTRAINTS[names[0]]
    if both.is_classification:
        counts = np.random.default_rng(0).integers(1, 30, (4, 3, 2, 2)).astype(float)
        apart = [CONSTRAINTS[name] for name in names]
        assert both.metric is not None
        np.testing.assert_allclose(
            both.metric(counts),
            sum(one.metric(counts) for one in apart if one.metric is not None),
        )
        told = both.uncertainty(counts) if both.uncertainty else {}
        each = [one.uncertainty(counts) for one in apart if one.uncertainty]
        assert (told["gap_p"] >= np.min([one["gap_p"] for one in each], axis=0)).all()
        assert (told["gap_error"] >= np.max([one["gap_error"] for one in each], axis=0)).all()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([], "must have a gap between groups"),
        ([ROWS], "must have a gap between groups"),
        (ROWS, "must have a gap between groups"),
        (["demographic_parity", "mean_error"], "all for regression"),
        (["demographic_parity", "worst_group_loss"], "'worst_group_loss' is none"),
        (["demographic_parity", lambda z, y, s: z.mean()], "is none"),
        (["demographic_parity"] * 2, "different names"),
        (["demographic_parity", ROWS, ROWS], "different names"),
        (["demographic_parity", "no such"], "must be one of"),
    ],
)
def test_bad_input(asked: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        constraint_of(asked)
