"""A search in few directions: what it finds, and models that it is not for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from xgboost import XGBClassifier

from biased import problem
from fairij import Constrained, FairIJ
from fairij.errors import InvalidInputError
from fairij.method.search import reduced
from fairij.method.search.reduced import Table

DATA = problem()
pytestmark = pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
FORM: dict[str, Any] = {"chances": True, "loss_on": "validation", "cheapest_first": True}


def forest(X: Any = DATA.X, y: Any = DATA.y) -> Any:
    return LGBMClassifier(n_estimators=8, num_leaves=5, verbose=-1, n_jobs=1).fit(X, y)


def edited(model: Any, name: str = "equalized_odds", data: Any = DATA, **settings: Any) -> Any:
    search = Constrained(steps=4, **settings)
    given = {} if data is DATA else {"sensitive_features_val": data.race_val}
    fair = FairIJ(model, constraints=name, search=search, selection="lowest_gap", verbose=False)
    return data.fit(fair, **given)


def test_all_directions_give_the_path_of_the_whole_model() -> None:
    whole = edited(forest(), "demographic_parity", products=200, **FORM).candidates_
    small = edited(forest(), "demographic_parity", directions=1000, **FORM).candidates_
    np.testing.assert_allclose(small["accuracy"], whole["accuracy"], atol=0.02)
    np.testing.assert_allclose(small["gap"], whole["gap"], atol=0.03)


@pytest.mark.parametrize(
    "model",
    [
        lambda: forest(),
        lambda: XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1).fit(DATA.X, DATA.y),
        lambda: HistGradientBoostingClassifier(max_iter=8, max_leaf_nodes=5).fit(DATA.X, DATA.y),
        lambda: CatBoostClassifier(
            iterations=8, depth=3, verbose=False, thread_count=1, allow_writing_files=False
        ).fit(DATA.X, DATA.y),
    ],
    ids=["lightgbm", "xgboost", "histogram", "catboost"],
)
def test_ten_directions_close_the_gap_of_every_library(model: Any) -> None:
    found = edited(model(), directions=10, **FORM)
    table = found.candidates_
    assert table["gap"].min() < 0.6 * table["gap"][0]
    assert type(found.estimator_) is type(found.estimator)


def test_several_classes_and_groups() -> None:
    data = problem("three")
    model = forest(data.X, data.y)
    found = edited(model, "demographic_parity_balanced", data, directions=20, **FORM)
    assert found.candidates_["gap"].min() < 0.8 * found.candidates_["gap"][0]


def test_every_gap_has_five_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = list[int]()

    def spanned(*given: Any) -> Any:
        basis = whole(*given)
        widths.append(basis.shape[1])
        return basis

    whole = reduced.spanned
    monkeypatch.setattr(reduced, "spanned", spanned)
    for directions in (1, 12):
        edited(forest(), directions=directions, **FORM)  # equalized odds of two groups: two gaps
    assert widths == [10, 12]


def test_observed_groups_and_the_training_loss() -> None:
    table = edited(forest(), "demographic_parity", directions=10).candidates_
    assert table["gap"].min() < 0.5 * table["gap"][0]


def test_other_models_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="`directions` must be None"):
        edited(LogisticRegression().fit(DATA.X, DATA.y), directions=5)
    with pytest.raises(InvalidInputError, match="`directions`"):
        Constrained(directions=0)


@pytest.mark.parametrize("shape", [(7, 3), (7, 2, 3)])
def test_the_table_is_a_jacobian(shape: tuple[int, ...]) -> None:
    draws = torch.Generator().manual_seed(0)
    values = torch.randn(*shape, generator=draws, dtype=torch.float64)
    table = Table(values)
    rows = table.rows(torch.arange(7))  # (7, C, 3)
    c = torch.randn(3, generator=draws, dtype=torch.float64)
    u = torch.randn(*shape[:-1], generator=draws, dtype=torch.float64)
    torch.testing.assert_close(table.times(c), (rows @ c).reshape(u.shape))
    torch.testing.assert_close(table.transposed_times(u), u.reshape(-1) @ rows.flatten(0, 1))
    root = torch.randn(7, rows.shape[1], 2, generator=draws, dtype=torch.float64)
    middle = root @ root.mT
    torch.testing.assert_close(table.gram(middle), (rows.mT @ middle @ rows).sum(0))
    torch.testing.assert_close(table.take(torch.tensor([2, 0])).values, values[[2, 0]])
