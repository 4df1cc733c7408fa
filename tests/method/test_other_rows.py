"""A gap on rows of its own is closed together with that between groups."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from biased import fair, fitted, problem
from fairij import Constrained, Counterfactual, FairIJ, TopShare, adapt
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.fairness.decisions import OWN
from fairij.method.other_rows import other_rows
from fairij.models.losses import get_loss

SEARCH = Constrained(steps=4, newton=1, products=20)
ROWS = 60


def swapped_rows(**more: Any) -> Counterfactual:
    """Rows of the problem, each once as it is and once with another value in one column."""
    X = problem().X_val[:ROWS]
    other = X.copy()
    other[:, 1] += 1.0
    kinds = np.tile(np.arange(ROWS) % 2, 2)
    given: dict[str, Any] = {"kinds": kinds, "pairs": [*range(ROWS)] * 2} | more
    return Counterfactual(np.concatenate([X, other]), np.repeat(["x", "y"], ROWS), **given)


def closed(**settings: Any) -> FairIJ:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        given = {"constraints": ["demographic_parity", swapped_rows()], "search": SEARCH}
        chosen = {"selection": "lowest_gap", "damping": 1e-3}
        return problem().fit(fair(fitted(dtype=torch.float64), **(given | chosen | settings)))


def test_both_gaps_are_closed() -> None:
    table = (model := closed()).candidates_
    first, last = table.iloc[0], table.iloc[model.chosen_]
    for column in ("gap[groups]", "gap[counterfactual]"):
        assert first[column] > 0.05
        assert last[column] < 0.5 * first[column]
    np.testing.assert_allclose(table["gap"], table["gap[groups]"] + table["gap[counterfactual]"])
    # what the table says is so: the scores of the edited model
    p = torch.sigmoid(model.estimator_(torch.tensor(swapped_rows().X).double())).detach().flatten()
    apart = (p[:ROWS] - p[ROWS:]).numpy()
    kinds = np.arange(ROWS) % 2
    gap = np.mean([abs(apart[kinds == kind].mean()) for kind in (0, 1)])
    assert last["gap[counterfactual]"] == pytest.approx(gap, abs=1e-4)
    alone = closed(constraints="demographic_parity")
    assert "gap[groups]" not in alone.candidates_
    assert model.edit_.settings["constraint"] == "demographic_parity and counterfactual"


@pytest.mark.parametrize(
    "settings",
    [
        {"validation_use": "cross_fit"},
        {"search": Constrained(steps=4, newton=1, loss_on="validation", chances=True)},
        {"threshold": 0.4, "pos_label": 0},
        {"search": "auto"},
        {"damping": (1e-3, 1e-2), "validation_use": "split"},
    ],
)
def test_in_every_form_of_the_search(settings: dict[str, Any]) -> None:
    table = (model := closed(**settings)).candidates_
    gaps = table["gap[counterfactual]"]
    assert gaps.iloc[model.chosen_] < 0.7 * gaps.iloc[0]


def test_gradients_are_those_of_finite_differences() -> None:
    editable = adapt(fitted(dtype=torch.float64))
    (one,) = other_rows(editable, (swapped_rows(),), get_loss("binary_cross_entropy"), 2.0, OWN)
    move = 0.1 * torch.randn(len(editable.theta), generator=torch.Generator().manual_seed(0))
    move, step = move.double(), 1e-5 * torch.ones(len(editable.theta), dtype=torch.float64)
    found = one.signed_at(move)
    assert len(found) == 2
    up, down = one.signed_at(move + step), one.signed_at(move - step)
    for (_, pull), (high, _), (low, _) in zip(found, up, down, strict=True):
        assert float(pull() @ step) == pytest.approx((high - low) / 2, rel=1e-3, abs=1e-12)


def test_a_search_that_cannot_close_it_says_so() -> None:
    model = fair(fitted(), constraints=["demographic_parity", swapped_rows()])
    with pytest.warns(FairIJWarning, match="'grid' does not close the gap 'counterfactual'"):
        found = problem().fit(model)
    assert np.isfinite(found.candidates_["gap[counterfactual]"]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": TopShare(0.2)}, "`threshold` must be a number"),
        ({"constraints": ["demographic_parity", swapped_rows(pairs=[0, 1] * 59)]}, "`pairs`"),
        (
            {
                "constraints": [
                    "demographic_parity",
                    Counterfactual([[0.0] * 4], ["a", "b"], [0, 0]),
                ]
            },
            "expected 1, got 2",
        ),
        (
            {
                "constraints": [
                    "demographic_parity",
                    Counterfactual(np.zeros((2, 7)), ["a", "b"], [0, 0]),
                ]
            },
            "`Counterfactual.X",
        ),
    ],
)
def test_bad_input(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        closed(**settings)
