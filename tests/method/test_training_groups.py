"""Groups of training rows help to find the edit; the choice is made on validation rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from biased import fair, fitted, problem
from fairij import Constrained, Path, Reweight
from fairij.errors import InvalidInputError
from fairij.fairness import encode_groups
from fairij.models import adapt

DATA = problem()


# loose solves of the last one would end after another number of steps
SEARCHES = [Reweight(), Path(steps=3), Constrained(steps=3, products=60)]


@pytest.mark.filterwarnings("ignore::fairij.errors.SeenRowsWarning")  # pooled on purpose
@pytest.mark.parametrize("search", SEARCHES)
def test_the_gradient_is_that_of_all_rows_in_one_table(search: Any) -> None:
    """The same edits are tried as with all rows for validation; the choice sees fewer rows."""
    both = DATA.fit(fair(search=search), sensitive_features=DATA.sex)
    pooled = DATA.fit(
        fair(search=search),
        X_val=np.concatenate([DATA.X_val, DATA.X]),
        y_val=np.concatenate([DATA.y_val, DATA.y]),
        sensitive_features_val=np.concatenate([DATA.sex_val, DATA.sex]),
    )
    np.testing.assert_allclose(both.influence_, pooled.influence_, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(both.moves_, pooled.moves_, rtol=5e-3, atol=2e-4)
    assert both.candidates_["gap"][0] != pooled.candidates_["gap"][0]


def test_candidates_are_judged_on_validation_rows() -> None:
    found = DATA.fit(fair(search=Reweight()), sensitive_features=DATA.sex)
    alone = DATA.fit(fair(search=Reweight()))
    assert found.candidates_["gap"][0] == alone.candidates_["gap"][0]
    assert not np.array_equal(found.influence_, alone.influence_)
    theta = adapt(fitted()).theta
    codes = encode_groups(DATA.sex_val).codes
    z = adapt(fitted()).outputs(DATA.X_val, theta + torch.as_tensor(found.moves_[3]))
    rates = [(z.numpy()[codes == g] > 0).mean() for g in range(2)]
    assert found.candidates_["gap"][3] == pytest.approx(abs(rates[0] - rates[1]))


@pytest.mark.parametrize("validation", ["split", "cross_fit"])
def test_folds_use_them_too(validation: str) -> None:
    settings: Any = {"search": Reweight(), "validation_use": validation}
    with_groups = DATA.fit(fair(**settings), sensitive_features=DATA.sex)
    alone = DATA.fit(fair(**settings))
    assert not np.array_equal(with_groups.influence_, alone.influence_)


def test_loss_aware_dropping_looks_at_the_loss_of_validation_rows() -> None:
    both, alone = (
        DATA.fit(fair(drop="loss_aware", solver="exact"), **given)
        for given in ({"sensitive_features": DATA.sex}, {})
    )
    np.testing.assert_array_equal(both.loss_influence_, alone.loss_influence_)


@pytest.mark.parametrize(
    "known",
    [
        DATA.sex.tolist(),
        pd.Series(DATA.sex, dtype="category"),
        pd.DataFrame({"sex": DATA.sex}),
    ],
)
def test_groups_in_any_form(known: Any) -> None:
    plain = DATA.fit(fair(search=Reweight()), sensitive_features=DATA.sex)
    found = DATA.fit(fair(search=Reweight()), sensitive_features=known)
    np.testing.assert_array_equal(found.influence_, plain.influence_)


def test_training_rows_may_lack_a_group() -> None:
    men = np.full(len(DATA.y), "m")
    found = DATA.fit(fair(search=Reweight()), sensitive_features=men)
    assert np.isfinite(found.influence_).all()


def test_a_group_without_validation_rows_is_named() -> None:
    with pytest.raises(InvalidInputError, match="got also 'x'") as met:
        DATA.fit(fair(), sensitive_features=["x", *DATA.sex[1:]])
    assert met.value.parameter == "sensitive_features"


def test_too_few_groups_are_named() -> None:
    with pytest.raises(InvalidInputError, match="expected 240, got 239") as met:
        DATA.fit(fair(), sensitive_features=DATA.sex[1:])
    assert met.value.parameter == "sensitive_features"
