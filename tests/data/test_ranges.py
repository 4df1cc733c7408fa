"""Columns that one table holds raw and another scaled are found, and chance is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from biased import fair, problem
from fairij.data.ranges import unlike_columns
from fairij.errors import FairIJWarning

RNG = np.random.default_rng(0)


def people(rows: int) -> pd.DataFrame:
    """Columns as in real tables: raw ages, gains of a few, codes, a rare flag, an amount."""
    return pd.DataFrame(
        {
            "age": RNG.integers(18, 80, rows),
            "gain": np.where(RNG.random(rows) < 0.05, RNG.lognormal(8, 2, rows), 0.0),
            "code": RNG.integers(0, 6, rows),
            "flag": (RNG.random(rows) < 0.05).astype(float),
            "amount": np.exp(2 * RNG.normal(size=rows)),
            "job": RNG.choice(["a", "b"], rows),
            "unknown": np.nan,
        }
    )


def test_tables_of_the_same_kind_are_no_mistake() -> None:
    for _ in range(50):
        assert unlike_columns("validation", "training", people(400), people(60)) is None


def test_a_scaled_table_next_to_a_raw_one_is_told_by_its_columns() -> None:
    raw, other = people(500), people(300)
    scaled = other.assign(age=(other["age"] - 49) / 18)
    told = unlike_columns("validation", "training", raw, scaled)
    assert told is not None
    assert "'age' is mostly between -1.6" in told
    assert "in the validation rows, and between 2" in told
    assert "amount" not in told
    assert unlike_columns("test", "training", scaled, raw) is not None


def test_a_column_without_values_is_told() -> None:
    told = unlike_columns("test", "training", people(200), people(200).assign(age=np.nan))
    assert told is not None
    assert "'age' has no values in the test rows. A model" in told
    told = unlike_columns("test", "training", people(200).assign(age=np.nan), people(200))
    assert "'age' has no values in the training rows" in (told or "")
    numbers = people(200)
    as_objects = people(200).astype(object)  # of which nothing is known
    assert unlike_columns("test", "training", as_objects, numbers) is None
    assert unlike_columns("test", "training", numbers, as_objects) is None
    assert unlike_columns("test", "training", numbers[[]], numbers[[]]) is None


@pytest.mark.parametrize("form", [np.asarray, torch.tensor, pd.DataFrame])
def test_another_scale_or_place_is_told_in_every_form(form: Any) -> None:
    X, other = RNG.normal(size=(200, 5)), RNG.normal(size=(100, 5))
    assert unlike_columns("test", "training", form(X), form(other)) is None
    assert unlike_columns("test", "training", form(X), form(3 * other + 1)) is None
    moved = form(other + np.array([0, 0, 0, 0, 15]))  # of the same scale
    assert "4" in (unlike_columns("test", "training", form(X), moved) or "")
    told = unlike_columns("test", "training", form(X), form(100 * other))
    assert "(and 2 more)" in (told or "")


@pytest.mark.parametrize(
    "rows", [{"a": RNG.normal(size=200)}, ["a text"] * 200, RNG.normal(size=9)]
)
def test_other_forms_are_passed_over(rows: Any) -> None:
    assert unlike_columns("test", "training", rows, rows) is None
    assert unlike_columns("test", "training", RNG.normal(size=(200, 3)), rows) is None


def test_a_fit_says_so() -> None:
    data = problem()
    with pytest.warns(FairIJWarning, match=r"Columns of the validation rows are not like"):
        data.fit(fair(), X_val=data.X_val * 100)
