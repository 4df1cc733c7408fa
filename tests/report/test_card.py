"""The model card: its metadata as the Hugging Face hub reads it, and its facts."""

from __future__ import annotations

import copy
import io
import pickle
import re
from typing import Any

import joblib
import numpy as np
import pytest
import skops.io
from huggingface_hub import ModelCard
from report_cases import HOSTILE, make_case

from fairij import FairIJ
from fairij.errors import InvalidInputError
from fairij.report.card import inline, library_of


@pytest.fixture(scope="module")
def lightgbm() -> Any:
    return make_case("lightgbm")


def card(case: Any, **about: Any) -> str:
    test = {name: value for name, value in case.arguments.items() if name.endswith("_test")}
    return str(case.fitted.model_card(**test, **about))


def test_the_metadata_is_what_the_hub_reads(lightgbm: Any) -> None:
    text = card(lightgbm, name="Loans", dataset="Made rows", license_name="mit", tags=["credit"])
    data = ModelCard(text).data
    assert (data.library_name, data.license) == ("lightgbm", "mit")
    assert data.pipeline_tag == "tabular-classification"
    assert data.tags == ["fairness", "fairij", "credit"]
    results = {result.metric_type: result.metric_value for result in data.eval_results}
    test = {name: value for name, value in lightgbm.arguments.items() if name.endswith("_test")}
    predicted = lightgbm.fitted.predict(test["X_test"])
    assert results["accuracy"] == np.mean(predicted == test["y_test"])
    assert data.eval_results[0].dataset_name == "Made rows"


def test_it_has_the_rates_of_all_groups_before_and_after(lightgbm: Any) -> None:
    text = card(lightgbm)
    sizes = lightgbm.fitted.after_.by_group.index
    assert all(re.search(rf"^\| {name} \|", text, re.MULTILINE) for name in sizes)
    assert "| figure | before | after |" in text
    assert "Of test rows" in text
    assert "()" not in text


def test_without_test_rows_it_says_which_rows_it_speaks_of(lightgbm: Any) -> None:
    assert "Of validation rows" in lightgbm.fitted.model_card()


def test_a_model_for_regression_is_one() -> None:
    data = ModelCard(card(make_case("real"))).data
    assert data.pipeline_tag == "tabular-regression"
    assert library_of(make_case("real").fitted.estimator_) == "pytorch"


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_users_stays_text(text: str, lightgbm: Any) -> None:
    shown = inline(text)
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)[<>|`*\[\]#]", shown)
    found = ModelCard(card(lightgbm, name=text, dataset=text))
    assert found.data.model_name == text


def test_bad_settings_are_refused(lightgbm: Any) -> None:
    with pytest.raises(InvalidInputError, match="list of words"):
        lightgbm.fitted.model_card(tags="credit")


def test_joblib_and_pickle_keep_a_result_and_skops_says_what_to_dump(lightgbm: Any) -> None:
    fitted, X = lightgbm.fitted, lightgbm.arguments["X_test"]
    kept = io.BytesIO()
    joblib.dump(fitted, kept)
    kept.seek(0)
    others = (joblib.load(kept), pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted))
    for other in others:
        np.testing.assert_array_equal(other.predict(X), fitted.predict(X))
        assert other._refits is None or other is fitted  # no rows travel
    with pytest.raises(InvalidInputError, match=r"skops\.io\.dump\(fair\.estimator_"):
        skops.io.dumps(fitted)
    assert skops.io.dumps(FairIJ(None))  # settings alone are no problem
