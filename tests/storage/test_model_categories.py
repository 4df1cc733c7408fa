"""Categories that a model does not know are never ignored silently."""

from __future__ import annotations

import warnings
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import plain_files
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.storage.model_files.columns import check_categories, known_categories, prepared

TABLE = plain_files.make_table(120, 0)
ROWS, LABEL = TABLE[["job", "income"]], TABLE["repaid"]
NEW = ROWS.assign(job=["pilot", "smith", *ROWS["job"].iloc[2:]])


def _pipeline(**encoder: Any) -> Any:
    filled = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(**encoder))
    columns = make_column_transformer((filled, ["job"]), remainder="passthrough")
    return make_pipeline(columns, LogisticRegression())


MODELS = {
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=2, verbose=-1, n_jobs=1),
    "histogram": HistGradientBoostingClassifier(max_iter=2),
    "xgboost": xgboost.XGBClassifier(n_estimators=2, enable_categorical=True, n_jobs=1),
    "careless encoder": _pipeline(handle_unknown="ignore"),
    "strict encoder": _pipeline(),
}
TAKE_OTHERS = {"lightgbm": True, "histogram": True, "xgboost": False,
               "careless encoder": True, "strict encoder": False}  # fmt: skip


@pytest.fixture(params=MODELS)
def named(request: pytest.FixtureRequest) -> tuple[str, Any]:
    rows = ROWS if "encoder" in request.param else ROWS.astype({"job": "category"})
    return request.param, MODELS[request.param].fit(rows, LABEL)


def test_unknown_categories_are_told_by_column_and_value(named: tuple[str, Any]) -> None:
    name, model = named
    known = known_categories(model, ROWS)
    assert list(known) == ["job"]
    assert sorted(known["job"].listed) == ["clerk", "cook", "nurse"]
    expected = r"new.csv has 2 of 120 rows whose 'job' the model does not know.*'pilot', 'smith'"
    if TAKE_OTHERS[name]:
        with pytest.warns(FairIJWarning, match=expected):
            check_categories(model, [NEW], where="new.csv")
    else:
        with pytest.raises(InvalidInputError, match=expected + ".*cannot take them"):
            check_categories(model, [NEW], where="new.csv")


def test_known_and_missing_values_are_passed_over(named: tuple[str, Any]) -> None:
    gaps = ROWS.assign(job=ROWS["job"].where(np.arange(len(ROWS)) > 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_categories(named[1], [ROWS, gaps], where="t")


def test_parts_of_a_table_are_counted_together() -> None:
    model = MODELS["lightgbm"].fit(ROWS.astype({"job": "category"}), LABEL)
    strange, rest = NEW.iloc[:2], NEW.iloc[2:]
    with pytest.warns(FairIJWarning, match="t has 2 of 120 rows"):
        check_categories(model, iter([strange, rest]), where="t")
    with pytest.raises(InvalidInputError, match="none of its values in t is among them"):
        check_categories(model, [strange], where="t")


def test_an_encoder_behind_other_columns_is_not_taken_for_one_of_the_table() -> None:
    """The output of a column transformer has other columns, here of the same number."""
    swapped = make_column_transformer(
        ("passthrough", ["income"]), (SimpleImputer(strategy="most_frequent"), ["job"])
    )
    model = make_pipeline(swapped, OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
    model.fit(ROWS, LABEL)
    assert known_categories(model, ROWS) == {}


def test_an_xgboost_file_without_its_categories_is_refused() -> None:
    """Files of versions before 3.1: the codes could differ from those in training."""
    codes = pd.DataFrame(
        {"job": ROWS["job"].astype("category").cat.codes, "income": ROWS["income"]}
    )
    data = xgboost.DMatrix(
        codes.to_numpy(float), LABEL, feature_names=["job", "income"], feature_types=["c", "float"]
    )
    booster = xgboost.train({"max_depth": 2, "nthread": 1}, data, 2)
    with pytest.raises(InvalidInputError, match="does not keep the categories of 'job'"):
        prepared(booster, ROWS)
