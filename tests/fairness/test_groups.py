"""Sensitive attributes in every form that people hold them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairij.errors import InvalidInputError
from fairij.fairness import Groups, encode_groups
from group_reference import fixed

SEX = ["m", "f", "m", "f"]
FRAME = pd.DataFrame({"sex": SEX, "age": [30, 40, 40, 40]}, index=[7, 7, 3, 1])


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (SEX, ("f", "m")),
        (tuple(SEX), ("f", "m")),
        (np.array(SEX), ("f", "m")),
        (np.array(SEX, dtype=object)[:, None], ("f", "m")),
        (FRAME["sex"], ("f", "m")),
        (FRAME[["sex"]], ("f", "m")),
        (pd.Categorical(SEX, categories=["m", "f"]), ("f", "m")),
        (pd.Series(SEX, dtype="category"), ("f", "m")),
        (pd.Index(SEX), ("f", "m")),
        ({"sex": SEX}, ("f", "m")),
        (np.ma.array(SEX), ("f", "m")),
        ([True, False, True, False], ("False", "True")),
        (torch.tensor([1, 0, 1, 0]), ("0", "1")),
        (torch.tensor([9.5, -1.0, 9.5, -1.0], requires_grad=True), ("-1.0", "9.5")),
        (pd.Series([10, 2, 10, 2], dtype="Int64"), ("2", "10")),  # numbers in their own order
        (["x", 3, "x", 3], ("3", "x")),
        (["3", 3, "3", 3], ("3", "'3'")),  # unlike things stay apart
    ],
)
def test_one_column_in_any_container(values: Any, names: tuple[str, ...]) -> None:
    groups = encode_groups(values, expected_rows=4)
    assert groups.names == names
    assert groups.codes.tolist() == [1, 0, 1, 0]
    assert groups.codes.dtype == np.int64
    assert groups.sizes.tolist() == [2, 2]
    assert len(groups) == 4
    assert groups.absent == ()


@pytest.mark.parametrize(
    "values",
    [FRAME, FRAME.to_dict("list"), FRAME.to_numpy(), list(zip(SEX, FRAME["age"], strict=True))],
)
def test_several_columns_mean_their_intersection(values: Any) -> None:
    groups = encode_groups(values)
    assert groups.names == ("f & 40", "m & 30", "m & 40")  # nobody is f & 30
    assert groups.codes.tolist() == [1, 0, 2, 0]


@fixed
@given(st.lists(st.tuples(*[st.integers(-2, 2)] * 3), min_size=1, max_size=20))
def test_groups_are_the_distinct_rows_in_sorted_order(rows: list[tuple[int, ...]]) -> None:
    groups = encode_groups(rows)
    distinct = sorted(set(rows))
    assert groups.names == tuple(" & ".join(map(str, row)) for row in distinct)
    assert [distinct[code] for code in groups.codes] == rows
    assert groups.sizes.tolist() == [Counter(rows)[row] for row in distinct]


def test_many_levels_in_many_columns_need_only_the_groups_that_occur() -> None:
    values = np.arange(500)  # 500 ** 8 combinations overflow any table of them
    groups = encode_groups(np.stack([values] * 8, axis=1))
    assert groups.codes.tolist() == values.tolist()
    assert groups.names[3] == " & ".join(["3"] * 8)


def test_an_empty_name_is_a_name() -> None:
    assert encode_groups({"a": ["", "x"], "b": ["u", "u"]}).names == (" & u", "x & u")


def test_declared_categories_without_a_row_are_remembered() -> None:
    column = pd.Series(SEX, dtype=pd.CategoricalDtype(["other", "m", "f"]))
    groups = encode_groups(column)
    assert (groups.names, groups.absent) == (("f", "m"), ("other",))
    assert encode_groups(pd.DataFrame({"a": column, "b": 1})).absent == ("other",)


def test_part_of_the_rows_keeps_the_codes() -> None:
    part = encode_groups(["a", "b", "c", "b"]).take(np.array([3, 1]))
    assert part.codes.tolist() == [1, 1]
    assert part.names == ("a", "b", "c")
    assert part.sizes.tolist() == [0, 2, 0]


def test_groups_pass_through_if_their_length_fits() -> None:
    groups = encode_groups(SEX)
    assert encode_groups(groups, expected_rows=4) is groups
    assert encode_groups(groups) is groups
    with pytest.raises(InvalidInputError, match="expected 5, got 4"):
        encode_groups(groups, expected_rows=5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (SEX[:3], "one row per data point: expected 4, got 3"),
        (FRAME.iloc[:2], "expected 4, got 2"),
        (None, "one value or one row of values per data point, got an array of 0 dimensions"),
        (np.zeros((4, 1, 1)), "got an array of 3 dimensions"),
        (["m", None, "f", None], "2 missing value.*first in row 1: drop those rows"),
        (["m", "m", float("nan"), "f"], "1 missing value.*first in row 2"),  # not a group "nan"
        ([0.0, 1.0, 0.0, float("nan")], "first in row 3"),
        (np.ma.array([0, 1, 0, 1], mask=[0, 1, 0, 0]), "1 missing value.*first in row 1"),
        (np.ma.array(SEX, mask=[0, 0, 0, 1]), "first in row 3"),
        (pd.Series([0, 1, None, 1], dtype="Int64"), "first in row 2"),
        (pd.Categorical([*SEX[:3], None]), "1 missing value.*first in row 3"),
        (FRAME.assign(age=[1, None, 1, 1]), "1 missing value.*first in row 1"),
        ({"a": [1, 2, 3, 4], "b": [1]}, "is not a table: .*same length"),
        ([[1, 2], [3], [4], [5]], "cannot be grouped"),
        (np.zeros((4, 0)), "must not be empty"),
    ],
)
def test_what_cannot_be_groups_is_refused(values: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        encode_groups(values, expected_rows=4)


def test_no_rows_are_no_groups() -> None:
    with pytest.raises(InvalidInputError, match="must not be empty"):
        encode_groups([])


def test_groups_are_values() -> None:
    with pytest.raises(AttributeError):
        Groups(np.zeros(1, dtype=np.int64), ("a",)).names = ("b",)  # type: ignore[misc]
