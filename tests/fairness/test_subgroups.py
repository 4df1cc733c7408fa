"""The search for groups, also where attributes meet, and its correction for looking at many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact

from fairij import audit
from fairij.errors import InvalidInputError
from fairij.fairness.subgroups import MOST_ATTRIBUTES, Subgroups, holm


def people(seed: int, rows: int = 4000) -> tuple[np.random.Generator, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    columns = {"sex": rng.choice(["f", "m"], rows), "town": rng.choice(["n", "s", "w"], rows)}
    return rng, pd.DataFrame(columns | {"age": rng.integers(18, 80, rows)})


def search(frame: pd.DataFrame, y_pred: Any, **settings: Any) -> Subgroups:
    y_true = np.arange(len(frame)) % 2
    made = audit(
        y_true, y_pred, sensitive_features=frame["sex"], attributes=frame, **settings
    ).subgroups
    assert made is not None
    return made


def test_holm_multiplies_the_smallest_most() -> None:
    found = holm(np.array([0.01, 0.04, 0.03, 0.005]))
    np.testing.assert_allclose(found, [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm(np.array([0.5, 0.9])), [1, 1])


def test_a_group_that_differs_only_where_attributes_meet_is_found() -> None:
    rng, frame = people(0)
    is_meant = (frame["sex"] == "f") & (frame["town"] == "n")
    found = search(frame, (rng.random(len(frame)) < np.where(is_meant, 0.2, 0.5)).astype(int))
    first = found.found[found.found["rate"] == "selection_rate"]
    met = first[first["attributes"].map(len) > 1].iloc[0]
    assert met["group"] == "sex: f, town: n"
    assert met["value"] == pytest.approx(0.2, abs=0.03)
    assert met["rows"] == is_meant.sum()
    assert found.attributes == ("sex", "town", "age")
    assert found.compared > found.groups > 30


def test_an_effect_of_one_attribute_is_not_told_of_its_combinations() -> None:
    rng, frame = people(1)
    chance = np.where(frame["sex"] == "f", 0.2, 0.5)
    found = search(frame, (rng.random(len(frame)) < chance).astype(int)).found
    assert set(found["group"]) <= {"sex: f", "sex: m"}  # of two values, one says it all
    assert sorted(found["rate"]) == ["false_positive_rate", "selection_rate", "true_positive_rate"]


def test_chance_alone_is_seldom_found() -> None:
    """95 % of searches where nothing differs find nothing, of 300 comparisons and more each."""
    wrong = 0
    for seed in range(40):
        rng, frame = people(seed, 2000)
        wrong += len(search(frame, rng.integers(2, size=len(frame))).found) > 0
    assert wrong <= 5  # 2 are to be expected at most; more than 5 have a chance below 0.02


def test_p_values_are_fishers() -> None:
    rng, frame = people(2, 300)
    y_pred = (rng.random(300) < np.where(frame["sex"] == "f", 0.2, 0.6)).astype(int)
    found = search(frame[["sex"]], y_pred).found
    table = pd.crosstab(frame["sex"], y_pred).to_numpy()
    tails = [fisher_exact(table, alternative=side).pvalue for side in ("less", "greater")]
    expected = 2 * min(tails) * 6  # two values and three rates
    selected = found[found["rate"] == "selection_rate"].iloc[0]
    assert selected["p"] == pytest.approx(expected)


def test_weights_count_by_what_they_are_worth() -> None:
    rng, frame = people(3)
    chance = np.where(frame["sex"] == "f", 0.3, 0.5)
    y_pred = (rng.random(len(frame)) < chance).astype(int)
    plain = search(frame, y_pred).found
    same = search(frame, y_pred, sample_weight=np.full(len(frame), 7.0)).found
    pd.testing.assert_frame_equal(plain, same)
    first_half = (np.arange(len(frame)) < 2000).astype(float)
    half = search(frame, y_pred, sample_weight=first_half).found.iloc[0]
    assert half["rows"] < 0.6 * plain.iloc[0]["rows"]
    assert half["p"] > plain.iloc[0]["p"]


def test_missing_values_and_rare_ones_are_told() -> None:
    rng, frame = people(4)
    frame["town"] = frame["town"].where(frame.index > 100)
    frame["street"] = [f"street {i % 200}" for i in range(len(frame))]
    remarks = search(frame, rng.integers(2, size=len(frame))).remarks
    assert remarks[0].startswith("101 rows have no value of town")
    assert "street" in remarks[1]
    names = pd.DataFrame({"name": [f"person {i}" for i in range(len(frame))]})
    labels = np.arange(len(frame)) % 2
    nothing = audit(labels, labels, sensitive_features=frame["sex"], attributes=names).subgroups
    assert nothing is not None
    assert (nothing.compared, len(nothing.found)) == (0, 0)


def test_several_classes_have_rates_of_their_own() -> None:
    rng, frame = people(5)
    truth = rng.choice(["a", "b", "c"], len(frame))
    said = np.where(frame["sex"] == "f", "a", truth)
    found = audit(truth, said, sensitive_features=frame["sex"], attributes=frame).subgroups
    assert found is not None
    assert {"selection_rate[a]", "selection_rate[b]"} <= set(found.found["rate"])


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({f"c{i}": ["a", "b"] for i in range(MOST_ATTRIBUTES + 1)}, "must have at most 12 columns"),
        ({"c": ["a", "b", "a"]}, "3"),
        ({}, "`attributes` must have one row per data point: expected 2, got 0"),
    ],
)
def test_bad_attributes_are_refused(columns: dict[str, list[str]], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        audit([0, 1], [0, 1], sensitive_features=["a", "b"], attributes=pd.DataFrame(columns))
