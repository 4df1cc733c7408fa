"""`fairij audit` of predictions in a table, without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import demographic_parity_difference
from sklearn.metrics import roc_auc_score

from plain_files import Run

ASKED = ("audit", "--label", "repaid", "--sensitive", "sex", "--table")


@pytest.fixture
def table(files: Path) -> pd.DataFrame:
    frame = pd.read_csv(files / "test.csv")
    p = 1 / (1 + np.exp(-frame["income"] + frame["debt"])).round(6)
    words = np.where(frame["repaid"] == 1, "good", "bad")
    frame = frame.assign(p=p, yhat=(p > 0.5).astype(int), risk=1 - p, outcome=words)
    frame["said"] = np.where(p > 0.5, "good", "bad")
    frame.to_csv(files / "predictions.csv", index=False)
    return frame


def told(run: Run, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*ASKED, "predictions.csv", *options, "--json").stdout)
    return found


def test_scores_and_labels_of_any_model(run: Run, table: pd.DataFrame) -> None:
    gap = demographic_parity_difference(
        table["repaid"], table["yhat"], sensitive_features=table["sex"]
    )
    for options in (("--score", "p"), ("--prediction", "yhat"), ("--score", "p", "--prediction",
                    "yhat")):  # fmt: skip
        found = told(run, *options)
        assert found["metrics"]["demographic_parity_difference"]["value"] == pytest.approx(gap)
        assert ("auc" in found["scores"]) == ("p" in options)
        assert found["positive_label"] == "1"
    assert found["scores"]["auc"]["value"] == pytest.approx(
        roc_auc_score(table["repaid"], table["p"])
    )
    shown = run(*ASKED, "predictions.csv", "--score", "p").stdout
    for text in ("AUC", "calibration bias gap", "Positive label: 1."):
        assert text in shown


def test_a_cut_off_and_the_favourable_label(run: Run, table: pd.DataFrame) -> None:
    for options, accepted in (
        (("--threshold", "0.3"), table["p"] >= 0.3),
        (("--threshold", "top=0.1"), table["p"].rank(ascending=False) <= 30),
        (("--positive", "0", "--threshold", "0.6"), 1 - table["p"] >= 0.6),
    ):
        found = told(run, "--score", "p", *options)
        rate = accepted[table["sex"] == "f"].mean()
        assert found["by_group"]["f"]["selection_rate"] == pytest.approx(rate)


def test_labels_that_are_words(run: Run, table: pd.DataFrame) -> None:
    numbers = told(run, "--score", "p")
    asked = ("--label", "outcome")
    words = told(run, *asked, "--score", "p", "--positive", "good")
    assert words["metrics"] == numbers["metrics"]
    assert words["positive_label"] == "good"
    made = told(run, *asked, "--prediction", "said", "--positive", "good")
    assert made["metrics"] == numbers["metrics"]
    order = ("--classes", "good", "--classes", "bad")
    risk = told(run, *asked, "--score", "risk", *order, "--positive", "good")
    assert risk["metrics"] == numbers["metrics"]
    several = told(run, "--label", "job", "--prediction", "job")
    assert several["metrics"]["accuracy"]["value"] == 1


def test_predicted_numbers(run: Run, table: pd.DataFrame) -> None:
    found = told(run, "--label", "income", "--prediction", "debt", "--loss", "squared_error")
    error = ((table["income"] - table["debt"]) ** 2).mean()
    assert found["metrics"]["mean_squared_error"]["value"] == pytest.approx(error)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "needs a model (--model), or the column"),
        (("--score", "nothing"), "nothing"),
        (("--score", "income"), "must be chances from 0 to 1"),
        (("--score", "job"), "must be numbers from 0 to 1"),
        (("--score", "p", "--threshold", "3"), "--threshold must be a chance above 0"),
        (("--score", "p", "--threshold", "top=many"), "--threshold must be a chance above 0"),
        (("--prediction", "yhat", "--threshold", "0.3"), "leave one of the two out"),
        (("--score", "risk"), "must be the chance of '1', but it is higher for '0'"),
        (("--score", "p", "--positive", "9"), "--positive 9 is no value"),
        (("--score", "p", "--pos-label", "9"), "--pos-label 9 is no value"),
        (("--label", "job", "--prediction", "job", "--pos-label", "cook"), "for two labels"),
        (("--label", "outcome", "--score", "p"), "name the favourable one, --positive"),
        (("--label", "job", "--score", "p"), "has more"),
        (("--label", "outcome", "--prediction", "yhat", "--positive", "good"), "has '0', '1'"),
        (("--score", "p", "--model", "model.txt"), "leave one of the two out"),
        (("--label", "income", "--score", "p", "--loss", "squared_error"), "named by --prediction"),
    ],
)
def test_bad_tables_of_predictions(
    run: Run, table: pd.DataFrame, options: tuple[str, ...], said: str
) -> None:
    result = run(*ASKED, "predictions.csv", *options, code=2)
    assert said in " ".join(result.stderr.split())
