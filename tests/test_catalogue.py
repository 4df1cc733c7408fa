"""A catalogue of odd and bad input: each case does what is written beside it.

Either the fit is the same as on plain arrays, or one clear error names what is wrong.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biased import fair, fitted, problem
from fairij import FairIJ, audit
from fairij.errors import FairIJError, FairIJWarning, InvalidInputError

D = problem()
N = len(D.y)
X, y, X_val, y_val, sex_val = D.X, D.y, D.X_val, D.y_val, D.sex_val
WORDS, OTHER = np.array(["no", "yes"]), np.array(["否", "是"])


def put(values: Any, place: Any, value: Any, dtype: Any = None) -> np.ndarray:
    changed = np.array(values, dtype=dtype, copy=True)
    changed[place] = value
    return changed


def frame(columns: Any = ("a", "b", "c", "d"), values: Any = X) -> pd.DataFrame:
    return pd.DataFrame(values, columns=list(columns))


def wide(values: np.ndarray) -> np.ndarray:
    return np.repeat(values, 2, axis=1)[:, ::2]


# what is changed in the call of `fit` -> the fit on plain arrays
ALIKE: dict[str, dict[str, Any]] = {
    "Fortran order": {"X": np.asfortranarray(X), "X_val": np.asfortranarray(X_val)},
    "every second column of a wider array": {"X": wide(X), "X_val": wide(X_val)},
    "negative strides": {"X": X[::-1, ::-1].copy()[::-1, ::-1]},
    "big-endian features": {"X": X.astype(">f4"), "X_val": X_val.astype(">f8")},
    "big-endian labels": {"y": y.astype(">i8"), "y_val": y_val.astype(">i2")},
    "read-only arrays": {"X": np.frombuffer(X.tobytes(), np.float32).reshape(X.shape)},
    "float64": {"X": X.astype(np.float64), "X_val": X_val.astype(np.float64)},
    "long doubles": {"X": X.astype(np.longdouble)},
    "lists of lists": {"X": X.tolist(), "X_val": X_val.tolist()},
    "lists of labels": {"y": y.tolist(), "y_val": y_val.tolist()},
    "tensors": {"X": torch.tensor(X), "y": torch.tensor(y), "y_val": torch.tensor(y_val)},
    "a tensor that requires a gradient": {"X": torch.tensor(X, requires_grad=True)},
    "frames": {"X": frame(), "X_val": frame(values=X_val)},
    "a frame with duplicate column names": {"X": frame("aabb"), "X_val": frame("aabb", X_val)},
    "columns with names in other scripts": {
        "X": frame(["возраст", "年収", "δ", "🙂"]),
        "X_val": frame(["возраст", "年収", "δ", "🙂"], X_val),
    },
    "a frame of objects": {"X": frame().astype(object)},
    "nullable columns": {"X": frame().astype("Float32"), "X_val": frame(values=X_val)},
    "mixed widths of numbers": {"X": frame().astype({"a": np.float64, "b": np.float32})},
    "an index that is not 0, 1, 2": {"X": frame().set_index(np.arange(N)[::-1] * 7)},
    "labels with another index": {"y": pd.Series(y, index=np.arange(N)[::-1])},
    "a column of labels": {"y": y[:, None], "y_val": pd.DataFrame({"y": y_val})},
    "sparse rows": {"X": scipy.sparse.csr_array(X), "X_val": scipy.sparse.csc_array(X_val)},
    "sparse coordinates": {"X": scipy.sparse.coo_array(X)},
    "a masked array without a mask": {"X": np.ma.array(X), "y": np.ma.array(y)},
    "boolean labels": {"y": y.astype(bool), "y_val": y_val.astype(bool)},
    "labels as floats": {"y": y.astype(float), "y_val": y_val.astype(np.float32)},
    "labels as words": {"y": WORDS[y], "y_val": WORDS[y_val]},
    "labels as bytes of one width": {"y": WORDS[y].astype(object), "y_val": WORDS[y_val]},
    "labels as categories": {"y": pd.Categorical(WORDS[y]), "y_val": WORDS[y_val]},
    "nullable labels": {"y": pd.array(y, dtype="Int8")},
    "labels in other scripts": {
        "y": np.array(["否", "是"])[y],
        "y_val": np.array(["否", "是"])[y_val],
    },
    "labels -1 and 1": {"y": 2 * y - 1, "y_val": 2 * y_val - 1},
    "groups as categories": {"sensitive_features_val": pd.Categorical(sex_val)},
    "groups as numbers": {"sensitive_features_val": (sex_val == "m").astype(int)},
    "groups as tensors": {"sensitive_features_val": torch.tensor(sex_val == "m")},
    "groups in other scripts": {"sensitive_features_val": np.where(sex_val == "f", "ж", "м")},
    "groups as a dict of columns": {"sensitive_features_val": {"sex": sex_val}},
    "weights that are all the same": {"sample_weight": np.full(N, 3)},
    "weights as a list": {"sample_weight": [1] * N},
}


def is_like_plain(model: FairIJ) -> None:
    plain = PLAIN()
    np.testing.assert_allclose(model.influence_, plain.influence_, rtol=1e-3, atol=1e-9)
    np.testing.assert_array_equal(model.dropped_, plain.dropped_)


def PLAIN(kept: list[FairIJ] = []) -> FairIJ:  # noqa: B006, N802 - fitted once
    if not kept:
        kept.append(D.fit(fair()))
    return kept[0]


@pytest.mark.parametrize("case", ALIKE)
def test_forms_that_are_understood(case: str) -> None:
    is_like_plain(D.fit(fair(), **ALIKE[case]))


# what is changed in the call of `fit` -> what the error says
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "NaN": ({"X": put(X, (7, 2), np.nan)}, r"`X` must be finite: row 7, column 2 holds nan"),
    "infinity": ({"X_val": put(X_val, (0, 0), np.inf)}, r"`X_val` must be finite: row 0.*inf"),
    "a number beyond float32": (
        {"X": put(X, (1, 1), 1e39, np.float64)},
        r"row 1, column 1 holds 1e\+39 \(more than float32 can hold\)",
    ),
    "None among numbers": ({"X": put(X, (3, 1), None, object)}, r"row 3, column 1 holds nan"),
    "text features": ({"X": X.astype(str)[:, :3].tolist()}, r"as many columns|numeric|finite|take"),
    "dates": (
        {"X": frame(values=np.full(X.shape, np.datetime64("2026-01-01")))},
        r"`X` must be numeric",
    ),
    "decimals beside words": (
        {"X": put(X, (0, 0), "x", object)},
        r"`X` must be numeric for this model: encode text",
    ),
    "lists of unlike lengths": (
        {"X": [[1.0, 2.0]] * (N - 1) + [[1.0]]},
        r"must have equally many values in every row",
    ),
    "complex numbers": ({"X": X.astype(complex)}, r"`X` must be real numbers, got complex"),
    "masked values": ({"X": np.ma.masked_less(X, -1)}, r"`X` must not have masked values"),
    "a number instead of rows": ({"X": 5}, r"`X` must be a table"),
    "a word instead of rows": ({"X": "train.csv"}, r"`X` must be a table"),
    "a set": ({"X": {1, 2}}, r"`X` must be a table"),
    "a generator": ({"X": (row for row in X)}, r"`X` must be a table"),
    "no rows": ({"X": X[:0], "y": y[:0]}, r"`y` must be a non-empty vector"),
    "no columns": ({"X": X[:, :0], "X_val": X_val[:, :0]}, r"The model must take `X`"),
    "a column too few": ({"X": X[:, :3], "X_val": X_val[:, :3]}, r"The model must take `X`"),
    "another number of columns": ({"X_val": X_val[:, :2]}, r"expected 4, got 2"),
    "columns in another order": (
        {"X": frame(), "X_val": frame("badc", X_val)},
        r"expected 'a' at place 0, got 'b'; reorder",
    ),
    "three dimensions": ({"X": X[:, :, None]}, r"`X_val` must have as many columns"),
    "labels too few": ({"y": y[:-1]}, r"`y` must have one row per data point: expected 240"),
    "labels too many": ({"y_val": np.append(y_val, 0)}, r"expected 480, got 481"),
    "labels with NaN": ({"y": put(y, 4, np.nan, float)}, r"row 4 is nan"),
    "labels with None": ({"y": put(y, 4, None, object)}, r"`y` must not hold missing"),
    "labels with infinity": ({"y": put(y, 4, np.inf, float)}, r"row 4 is inf"),
    "one class": ({"y": np.zeros(N)}, r"must hold both classes, found only 0"),
    "three classes for one output": ({"y": put(y, 0, 2)}, r"takes two classes, found 3"),
    "fractions": ({"y": y + 0.5 * (y == 1) * (X[:, 0] > 0)}, r"got the fraction 1.5"),
    "a label that training lacks": ({"y_val": put(y_val, 8, 5)}, r"row 8 holds 5"),
    "words in training, numbers in validation": ({"y": WORDS[y]}, r"\['no', 'yes'\]"),
    "one-hot labels": ({"y": np.eye(2)[y]}, r"`y` must be a non-empty vector"),
    "no labels": ({"y": None}, r"`y` must be a non-empty vector"),
    "a word for labels": ({"y": "income"}, r"`y` must be a non-empty vector"),
    "no validation labels": ({"y_val": None}, r"got no `y_val`"),
    "no groups": ({"sensitive_features_val": None}, r"got no `sensitive_features_val`"),
    "groups too few": ({"sensitive_features_val": sex_val[:9]}, r"expected 480, got 9"),
    "missing groups": (
        {"sensitive_features_val": put(sex_val, 2, None, object)},
        r"1 missing value\(s\), the first in row 2",
    ),
    "one group": ({"sensitive_features_val": ["a"] * 480}, r"at least two groups"),
    "a group for every row": ({"sensitive_features_val": np.arange(480)}, r"at least two valid"),
    "a group of one row": (
        {"sensitive_features_val": put(sex_val.astype("U9"), 0, "other")},
        r"found 1 of 'other'",
    ),
    "a category without rows": (
        {"sensitive_features_val": pd.Categorical(sex_val, categories=["f", "m", "x"])},
        r"'x' has none",
    ),
    "groups of three dimensions": (
        {"sensitive_features_val": np.zeros((480, 1, 1))},
        r"an array of 3 dimensions",
    ),
    "columns of groups that do not fit": (
        {"sensitive_features_val": {"a": [1, 2], "b": [1]}},
        r"is not a table",
    ),
    "negative weights": ({"sample_weight": put(np.ones(N), 3, -1)}, r"row 3 holds -1"),
    "weights of zero": ({"sample_weight": np.zeros(N)}, r"must not be all zero"),
    "weights with NaN": ({"sample_weight": put(np.ones(N), 3, np.nan)}, r"row 3 is nan"),
    "weights as words": ({"sample_weight": ["a"] * N}, r"`sample_weight` must be numbers"),
    "weights too few": ({"sample_weight": np.ones(5)}, r"expected 240, got 5"),
    "an empty tuple": ({"X": ()}, r"must hold at least one array"),
    "parts of unlike lengths": ({"X": (X, X[:5])}, r"must have equally many rows"),
    "objects": ({"X": put(X, (0, 0), object(), object)}, r"`X` must be numeric"),
    "times": (
        {"X": put(X, (0, 0), datetime.timedelta(1), object)},
        r"`X` must be numeric",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_input_that_is_refused(case: str) -> None:
    changes, said = REFUSED[case]
    model = fair()
    with pytest.raises(InvalidInputError, match=said) as caught:
        D.fit(model, **changes)
    assert not hasattr(model, "estimator_")
    assert str(caught.value).endswith((".", ".)"))


def test_the_catalogue_is_long_enough() -> None:
    assert len(REFUSED) + len(ALIKE) >= 60


@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
def test_features_that_say_nothing() -> None:
    constant = X.copy()
    constant[:, 3] = 7.0
    model = D.fit(fair(), X=constant, X_val=put(X_val, (slice(None), 3), 7.0))
    assert np.isfinite(model.influence_).all()


def test_extreme_scales_are_answered_or_refused() -> None:
    for factor in (1e-30, 1e-6, 1e6, 1e30):
        scaled = (X.astype(np.float64) * factor).astype(np.float32)
        check(lambda scaled=scaled: D.fit(fair(), X=scaled))


def check(call: Callable[[], Any]) -> None:
    """The call gives an answer, or an error or warning that is fairij's own."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FairIJWarning)
        try:
            call()
        except FairIJError as error:
            assert len(str(error)) > 20  # noqa: PT017


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(10**20, 10**21),
    st.floats(),
    st.text(max_size=3),
    st.decimals(allow_nan=True),
    st.dates(),
    st.binary(max_size=3),
)
columns = st.one_of(
    st.lists(values, max_size=12),
    st.lists(st.integers(0, 1), min_size=12, max_size=12),
    st.lists(st.sampled_from(["f", "m", "é", ""]), min_size=12, max_size=12),
    st.lists(st.floats(0, 1), min_size=12, max_size=12),
    values,
)
some_rows = st.one_of(
    st.just(X[:12]),
    st.lists(st.lists(st.floats(width=32), min_size=4, max_size=4), min_size=12, max_size=12),
    st.lists(st.lists(values, min_size=4, max_size=4), min_size=12, max_size=12),
    st.lists(values, max_size=12),
    values,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.tuples(some_rows, columns, some_rows, columns, columns, st.one_of(st.none(), columns)))
def test_no_unexpected_kind_of_error_in_fit(data: tuple[Any, ...]) -> None:
    train, labels, validation, labels_val, groups, weights = data
    check(
        lambda: fair().fit(
            train,
            labels,
            X_val=validation,
            y_val=labels_val,
            sensitive_features_val=groups,
            sample_weight=weights,
        )
    )


settings_of = st.fixed_dictionaries(
    {},
    optional={
        name: st.one_of(values, st.lists(values, max_size=2))
        for name in (
            "constraints",
            "solver",
            "damping",
            "curvature",
            "search",
            "selection",
            "drop",
            "validation",
            "temperature",
            "loss",
            "weight_decay",
            "parameters",
            "batch_size",
            "memory_limit",
            "confidence",
            "random_state",
            "holdout_fraction",
        )
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(settings_of)
def test_no_unexpected_kind_of_error_in_settings(asked: dict[str, Any]) -> None:
    check(lambda: D.fit(fair(fitted(), **asked)))


@settings(max_examples=60, deadline=None)
@given(columns, columns, columns, st.one_of(st.none(), columns))
def test_no_unexpected_kind_of_error_in_an_audit(
    truth: Any, predicted: Any, groups: Any, weights: Any
) -> None:
    check(
        lambda: audit(
            truth, predicted, sensitive_features=groups, sample_weight=weights, n_resamples=5
        )
    )


@settings(max_examples=40, deadline=None)
@given(some_rows)
def test_no_unexpected_kind_of_error_in_prediction(rows: Any) -> None:
    check(lambda: PLAIN().predict(rows))
    check(lambda: PLAIN().predict_proba(rows))


def test_prediction_on_rows_of_another_shape() -> None:
    for rows in ([False], X[:, 0], X[:2, :, None]):
        with pytest.raises(InvalidInputError, match=r"The model must take `X`|as many columns"):
            PLAIN().predict(rows)


def test_decimals_are_numbers() -> None:
    exact = frame().astype(object).map(decimal.Decimal)
    is_like_plain(D.fit(fair(), X=exact))
