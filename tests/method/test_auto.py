"""`search="auto"`: which form is taken, and why."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from biased import fair, fitted, problem
from fairij import AccuracyBudget, Auto, Constrained, FairIJ, Grid, LowestGap
from fairij.errors import InvalidInputError
from fairij.method.preparation import check_settings
from fairij.method.settle import NAMES, better

DATA = problem()
pytestmark = pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
CHANCES = {"chances": True, "loss_on": "validation"}


def forest(X: Any = DATA.X, y: Any = DATA.y, kind: Any = LGBMClassifier) -> Any:
    settings = {"n_estimators": 8, "num_leaves": 5, "learning_rate": 0.3}
    return kind(verbose=-1, n_jobs=1, **settings).fit(X, y)


# --- chances and the loss of validation rows --------------------------------------------------


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds"])
@pytest.mark.parametrize("settings", [CHANCES, {"chances": True}, {"loss_on": "validation"}])
def test_every_form_closes_gaps(name: str, settings: dict[str, Any]) -> None:
    search = Constrained(steps=4, **settings)
    found = DATA.fit(FairIJ(forest(), constraints=name, search=search, selection="lowest_gap"))
    table = found.candidates_
    assert table["gap"].min() < 0.6 * table["gap"][0]
    assert found.search_ == search


@pytest.mark.parametrize("settings", [CHANCES, {"loss_on": "validation"}])
def test_groups_of_training_rows_take_part(settings: dict[str, Any]) -> None:
    search = Constrained(steps=3, **settings)
    fits = [
        DATA.fit(FairIJ(forest(), search=search, selection="lowest_gap"), **given)
        for given in ({}, {"sensitive_features": DATA.sex})
    ]
    assert not np.array_equal(fits[0].moves_, fits[1].moves_)
    assert fits[1].candidates_["gap"].min() < 0.7 * fits[1].candidates_["gap"][0]


def test_several_groups_and_classes() -> None:
    data = problem("three")
    found = data.fit(
        FairIJ(
            forest(data.X, data.y),
            constraints="demographic_parity_balanced",
            search=Constrained(steps=4, **CHANCES),
            selection="lowest_gap",
        ),
        sensitive_features_val=data.race_val,
    )
    assert found.candidates_["gap"].min() < 0.8 * found.candidates_["gap"][0]


def test_frames_with_categories_and_missing_values() -> None:
    def table(X: Any) -> pd.DataFrame:
        frame = pd.DataFrame(X, columns=list("abcd"))
        frame["b"] = pd.Categorical(np.where(frame["b"] > 0, "high", "low"))
        frame.loc[frame["c"] > 1, "c"] = np.nan
        return frame

    found = DATA.fit(
        FairIJ(
            forest(table(DATA.X)),
            search=Constrained(steps=4, **CHANCES),
            selection="lowest_gap",
        ),
        X=table(DATA.X),
        X_val=table(DATA.X_val),
    )
    assert found.candidates_["gap"].min() < 0.7 * found.candidates_["gap"][0]


def test_networks_can_have_chances_too() -> None:
    found = DATA.fit(fair(search=Constrained(steps=4, **CHANCES), validation_use="cross_fit"))
    assert found.candidates_["gap"].min() < 0.6 * found.candidates_["gap"][0]


@pytest.mark.parametrize("wrong", [{"chances": "yes"}, {"loss_on": "test"}])
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as met:
        Constrained(**wrong)
    assert met.value.parameter in wrong


# --- auto -------------------------------------------------------------------------------------


@cache
def of_trees() -> FairIJ:
    return DATA.fit(FairIJ(forest(), search="auto"))


def test_trees_take_the_form_that_holds_on_other_rows() -> None:
    found = of_trees()
    assert (
        found.search_ == Auto().forms(trained_together=False, drop="fairness", linear=True).search
    )
    assert found.search_.chances
    assert found.search_.loss_on == "validation"
    assert "chances of groups" in found.diagnostics_["search_reason"]
    assert found.edit_.settings["search"] == repr(found.search_)


def test_the_run_is_that_of_the_form_alone() -> None:
    found = of_trees()
    alone = DATA.fit(FairIJ(forest(), search=found.search_))
    np.testing.assert_array_equal(found.moves_, alone.moves_)
    assert "search_reason" not in alone.diagnostics_


@pytest.mark.parametrize(
    "model", [fitted, lambda: LogisticRegression().fit(DATA.X, DATA.y)], ids=["torch", "linear"]
)
def test_models_trained_together_keep_the_training_loss(model: Any) -> None:
    found = DATA.fit(fair(model(), search="auto", weight_decay=0.0))
    assert found.search_ == Constrained()
    assert "trained together" in found.diagnostics_["search_reason"]


@pytest.mark.filterwarnings("ignore:The model averages trees:fairij.errors.FairIJWarning")
@pytest.mark.parametrize(
    ("model", "weight_decay"),
    [(RandomForestClassifier(3, max_depth=3, random_state=0), 0.0), (forest(), 1e-3)],
    ids=["an average of trees", "a penalty"],
)
def test_few_directions_are_only_taken_where_they_may_stand_for_all(
    model: Any, weight_decay: float
) -> None:
    model.fit(DATA.X, DATA.y)
    found = DATA.fit(FairIJ(model, weight_decay=weight_decay, verbose=False))
    assert found.search_.directions is None
    assert len(found.moves_) > 2
    forms = Auto().forms(trained_together=False, drop="fairness", linear=True)
    assert forms.search.directions == 20


@pytest.mark.parametrize(
    "model",
    [pytest.param(forest, id="trees"), pytest.param(fitted, id="torch", marks=pytest.mark.slow)],
)
def test_two_forms_are_compared_if_that_is_asked_for(model: Any) -> None:
    found = DATA.fit(fair(model(), search=Auto(compare=True), selection="budget", weight_decay=0.0))
    why = found.diagnostics_["search_reason"]
    named = "chances of groups" if found.search_.chances else "groups as observed"
    assert why.startswith("This is the constrained search")
    assert named in why.split(".")[0]
    assert why.count("gap 0.") == 2
    assert found.diagnostics_["seconds"]["forms"] > 0
    alone = DATA.fit(fair(model(), search=found.search_, selection="budget", weight_decay=0.0))
    np.testing.assert_array_equal(found.moves_, alone.moves_)


def test_the_form_is_chosen_by_the_rule_of_choice() -> None:
    """Of two tables, by hand: the smaller gap; within a budget, the one that keeps to it."""
    tables = [
        pd.DataFrame({"k": [0, 5], "gap": [0.2, gap], "accuracy": [0.9, accuracy]})
        for gap, accuracy in [(0.02, 0.85), (0.05, 0.89)]
    ]
    for rule, expected in ((LowestGap(), 0), (AccuracyBudget(0.02), 1)):
        settings = check_settings(FairIJ(None, selection=rule).get_params(deep=False), 0)
        taken, why = better(tables, settings)
        assert taken == expected
        assert why.startswith(f"This is {NAMES[expected]}.")
    assert "gap 0.2000, accuracy 0.9000" in why
    assert "gap 0.0500, accuracy 0.8900" in why


@pytest.mark.parametrize("wrong", ["yes", 1.5])
def test_compare_is_true_or_false(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="`compare` must be"):
        Auto(compare=wrong)


def test_rows_are_dropped_if_they_are_asked_for() -> None:
    found = DATA.fit(fair(search="auto", drop="loss_aware"))
    assert found.search_ == Grid()
    assert "loss_aware" in found.diagnostics_["search_reason"]


def own_gap(z: Any, y: Any, groups: Any) -> Any:
    return (z[groups == 1].mean() - z[groups == 0].mean()).abs()


@pytest.mark.parametrize(("task", "constraint"), [("binary", own_gap), ("real", "mean_prediction")])
def test_without_chances_the_plain_form_is_taken_and_it_says_why(
    task: str, constraint: Any
) -> None:
    data = problem(task)
    kind = LGBMRegressor if task == "real" else LGBMClassifier
    found = data.fit(FairIJ(forest(data.X, data.y, kind), constraints=constraint, search="auto"))
    assert found.search_ == Constrained(directions=20)
    assert "needs a constraint that compares rates" in found.diagnostics_["search_reason"]
