"""Bad and odd input: one table of what `fit` understands, and one of what it refuses and says.

Each refusal names the requirement, the value found and the cure, and carries the parameter's name,
from which the command line makes its own sentence.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

from biased import L2, QUICK, fair, fitted, mlp, problem
from fairij import (
    CONSTRAINTS,
    CURVATURES,
    LOSSES,
    SOLVERS,
    AccuracyBudget,
    FairIJ,
    Grid,
    Woodbury,
    audit,
)
from fairij.cli.errors import as_options
from fairij.errors import (
    FairIJError,
    FairIJWarning,
    InvalidInputError,
    NothingToDropWarning,
    NotStationaryWarning,
    SmallGroupWarning,
)
from fairij.method.search import SEARCHES
from fairij.models.losses import SquaredError
from fairij.report import write_report

DATA, THREE, REAL = problem(), problem("three"), problem("real")
X, y, X_val, y_val, sex_val = DATA.X, DATA.y, DATA.X_val, DATA.y_val, DATA.sex_val
N = len(y)
WORDS = np.array(["no", "yes"])
NO_VALIDATION = dict.fromkeys(("X_val", "y_val", "sensitive_features_val"))


def put(values: Any, place: Any, value: Any, dtype: Any = None) -> np.ndarray:
    changed = np.array(values, dtype=dtype, copy=True)
    changed[place] = value
    return changed


def frame(columns: Any = ("age", "income", "hours", "debt"), values: Any = X) -> pd.DataFrame:
    return pd.DataFrame(values, columns=list(columns))


def wide(values: np.ndarray) -> np.ndarray:
    return np.repeat(values, 2, axis=1)[:, ::2]


@cache
def plain() -> FairIJ:
    """The fit on plain arrays."""
    return DATA.fit(fair())


def says(message: str, *parts: object) -> None:
    for part in parts:
        assert str(part) in message, f"{part!r} is not in: {message}"


# --- what is understood -----------------------------------------------------------------------

# what is changed in the call of `fit` -> the fit on plain arrays
UNDERSTOOD: dict[str, dict[str, Any]] = {
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
    "mixed widths of numbers": {"X": frame().astype({"age": np.float64, "income": np.float32})},
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
    "decimals": {"X": frame().astype(object).map(decimal.Decimal)},
}


@pytest.mark.parametrize("case", UNDERSTOOD)
def test_forms_that_are_understood(case: str) -> None:
    model = DATA.fit(fair(), **UNDERSTOOD[case])
    np.testing.assert_allclose(model.influence_, plain().influence_, rtol=1e-3, atol=1e-9)
    np.testing.assert_array_equal(model.dropped_, plain().dropped_)


# --- what is refused --------------------------------------------------------------------------


@dataclass(frozen=True)
class Refused:
    """A call that `fit` must refuse, with all these words."""

    said: tuple[object, ...]
    changes: dict[str, Any]
    settings: dict[str, Any]


def refused(*said: object, settings: dict[str, Any] | None = None, **changes: Any) -> Refused:
    return Refused(said, changes, settings or {})


def complaint(case: Refused) -> InvalidInputError:
    """The error of this call; the user's model must survive it."""
    asked = dict(case.settings)
    make = asked.pop("make", fitted)  # models are trained when they are needed
    module = asked.pop("estimator") if "estimator" in asked else make()
    before = copy.deepcopy(module.state_dict()) if isinstance(module, nn.Module) else {}
    model = fair(module, **asked)
    with pytest.raises(InvalidInputError) as caught:
        DATA.fit(model, **case.changes)
    assert not hasattr(model, "estimator_")
    assert not hasattr(model, "classes_")
    for name, value in before.items():
        assert torch.equal(module.state_dict()[name].nan_to_num(), value.nan_to_num())
    return caught.value


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.body(torch.cat([left, right], 1))


class Cube(nn.Linear):
    def forward(self, X: Tensor) -> Tensor:
        return super().forward(X)[:, None]


class Fragile(nn.Module):
    """Infinite where the first feature is large."""

    def __init__(self) -> None:
        super().__init__()
        self.body = copy.deepcopy(fitted())

    def forward(self, X: Tensor) -> Tensor:
        return self.body(X) + torch.where(X[:, :1] > 50, torch.inf, 0.0)


class Positive(SquaredError):  # noqa: N818
    name = "positive"

    def check(self, z: Tensor, y: Tensor) -> None:
        if bool((y < 0).any()):
            raise InvalidInputError(f"positive needs labels of at least 0, got {y.min()}.")


def broken_module() -> nn.Module:
    module = copy.deepcopy(fitted())
    with torch.no_grad():
        module[2].bias[:] = torch.nan
    return module


def logarithm(outputs: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    return torch.log(outputs - outputs.max()).sum()


def kink(outputs: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    return (outputs - outputs).sum().sqrt()  # 0, with an infinite slope


def one_left(group: str, label: int) -> np.ndarray:
    """Validation rows without those of a group and label, but for one."""
    kept = (sex_val != group) | (y_val != label)
    kept[np.flatnonzero(~kept)[0]] = True
    return kept


FEATURES = {
    "the first of several places": refused(
        "row 30, column 1 holds inf; there are 5 such",
        X=put(put(X, (30, 1), np.inf), (40, slice(None)), np.nan),
    ),
    "too large for float32": refused(
        "row 3, column 0 holds 1e+300 (more than float32 can hold)",
        X=put(X, (3, 0), 1e300, np.float64),
    ),
    "a part of a collection": refused(
        "`X['right']` must be finite, without NaN or infinity: row 4, column 1",
        settings={"estimator": Two()},
        X={"left": X[:, :2], "right": put(X[:, 2:], (4, 1), np.nan)},
        X_val={"left": X_val[:, :2], "right": X_val[:, 2:]},
    ),
    "masked": refused(
        "`X` must not have masked values", "`X.filled(...)`", X=np.ma.masked_greater(X, 2.0)
    ),
    "complex": refused("`X` must be real numbers, got complex", "as separate columns", X=X + 1j),
    "one word among numbers": refused(
        "`X` must be numeric for this model", "many", "encode text and categories first",
        "OneHotEncoder", X=put(X, (0, 2), "many", object),
    ),
    "dates": refused("`X` must be numeric", X=put(X, ..., np.datetime64("2026-01-01"), "M8[s]")),
    "times": refused("`X` must be numeric", X=put(X, (0, 0), datetime.timedelta(1), object)),
    "objects": refused("`X` must be numeric", X=put(X, (0, 0), object(), object)),
    "unlike rows": refused(
        "must have equally many values in every row", X=[[1.0, 2.0]] * (N - 1) + [[1.0]]
    ),
    "no validation table": refused("`X_val` must be a table", "got 'str'", X_val="rows"),
    "an empty dict": refused("`X` must hold at least one array", X={}),
    "an empty tuple": refused("`X` must hold at least one array", X=()),
    "fewer validation columns": refused(
        "`X_val` must have as many columns as the training rows: expected 4, got 3",
        "prepare both in the same way", X_val=X_val[:, :3],
    ),
    "three dimensions": refused("`X_val` must have as many columns", X=X[:, :, None]),
    "another order of columns": refused(
        "`X_val` must have the columns of the training rows in the same order",
        "expected 'income' at place 1, got 'hours'", "reorder them",
        X=frame(), X_val=frame(values=X_val)[["age", "hours", "income", "debt"]],
    ),
    "columns that the model does not take": refused(
        "The model must take `X` as it is given, but it says: mat1 and mat2 shapes",
        "Give the features that it was trained on", X=X[:, :3], X_val=X_val[:, :3],
    ),
    "no columns": refused("The model must take `X`", X=X[:, :0], X_val=X_val[:, :0]),
    "nothing but words": refused("`X` must be numeric", X=np.full(X.shape, "many").tolist()),
    "other names of inputs": refused(
        "keyword argument 'rows'", X={"rows": X}, X_val={"rows": X_val}
    ),
    "training parts of unlike lengths": refused(
        "All parts of `X` must have equally many rows, got [7, 240]", X=(X, X[:7])
    ),
    "validation parts of unlike lengths": refused(
        "All parts of `X_val` must have equally many rows, got [7, 480]",
        X=(X, X), X_val=(X_val, X_val[:7]),
    ),
}  # fmt: skip


def sparse(**wrong: tuple[int, int]) -> Any:
    """Sparse rows with one wrong number in these arrays."""
    rows = scipy.sparse.csr_array(X)
    for name, (place, value) in wrong.items():
        setattr(rows, name, put(getattr(rows, name), place, value))
    return rows


def coordinates(place: int, value: int) -> Any:
    rows = scipy.sparse.coo_array(X)
    rows.coords = (put(rows.coords[0], place, value), rows.coords[1])
    return rows


def objects() -> Any:
    """Sparse rows whose entries are objects."""
    rows = scipy.sparse.csr_array(X)
    rows.data = rows.data.astype(object)
    return rows


def nested() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls them a prototype
        return torch.nested.nested_tensor([torch.tensor(row) for row in X])


PLAIN_TENSOR = "`X` must be a plain tensor, got a"
FEATURES |= {
    "sparse objects": refused("`X` must be a sparse matrix of numbers", X=objects()),
    "a nested tensor": refused(PLAIN_TENSOR, "nested one", X=nested()),
    "a sparse tensor": refused(PLAIN_TENSOR, ".to_dense()", X=torch.tensor(X).to_sparse()),
    "a tensor without numbers": refused(PLAIN_TENSOR, "meta", X=torch.tensor(X, device="meta")),
    "eight bits": refused(
        PLAIN_TENSOR, "float8_e4m3fn", ".float()", X=torch.tensor(X).to(torch.float8_e4m3fn)
    ),
    "masked rows in a list": refused(
        "`X` must not have masked values",
        X=[np.ma.array(row, mask=[True, False, False, False]) for row in X],
    ),
}  # fmt: skip
DAMAGED = "must be a sparse matrix whose entries lie inside it, but it is damaged:"
FEATURES |= {
    "a sparse index too high": refused(f"`X` {DAMAGED} indices", X=sparse(indices=(5, 1000))),
    "a negative sparse index": refused(f"`X` {DAMAGED} indices", X=sparse(indices=(5, -3))),
    "a sparse row beyond the end": refused(f"`X` {DAMAGED} ind", X=sparse(indptr=(3, 10**6))),
    "sparse rows that go back": refused(f"`X_val` {DAMAGED} ind", X_val=sparse(indptr=(3, 0))),
    "sparse coordinates outside": refused(
        f"`X` {DAMAGED} indices must be from 0 to 239", X=coordinates(0, 10**6)
    ),
    "a sparse part of a collection": refused(
        f"`X['right']` {DAMAGED} indices", "Make it again from its source",
        settings={"estimator": Two()},
        X={"left": X[:, :2], "right": sparse(indices=(5, 1000))},
        X_val={"left": X_val[:, :2], "right": X_val[:, 2:]},
    ),
}  # fmt: skip
FORMS = {
    "array": (np.asarray, "column 2"),
    "tensor": (torch.tensor, "column 2"),
    "frame": (lambda X: frame(values=X), "column 'hours'"),
    "sparse": (scipy.sparse.csr_array, "column 2"),
    "lists": (lambda X: X.tolist(), "column 2"),
}
FEATURES |= {
    f"{value} in the {form} {name}": refused(
        f"`{name}` must be finite", "row 17", column, f"holds {value}",
        "there are 1 such value(s)", "impute them, or drop those rows",
        **{name: make(put(getattr(DATA, name), (17, 2), value))},
    )
    for name in ("X", "X_val")
    for form, (make, column) in FORMS.items()
    for value in ([np.nan, np.inf, -np.inf] if form == "array" else [np.nan])
}  # fmt: skip
FEATURES |= {
    f"{missing!r} in a frame": refused(
        "`X` must be finite, without NaN or infinity: row 5, column 'income' holds nan",
        X=frame(values=put(X, (5, 1), missing, object)),
    )
    for missing in (None, pd.NA, pd.NaT)
}
FEATURES |= {
    f"{type(given).__name__} for rows": refused(
        "`X` must be a table with one row per data point", "an array, frame", X=given
    )
    for given in (None, 3.0, "rows", {1, 2}, (row for row in X), torch.tensor(1.0), object())
}
FEATURES |= {
    f"{how}: rows of a split validation set": refused(
        "`X_val` must be finite, without NaN or infinity: row 401",
        settings={"validation_use": how}, X_val=put(X_val, (401, 3), np.nan),
    )
    for how in ("split", "cross_fit")
}  # fmt: skip

FEATURES |= {
    "a complex tensor": refused(
        "`X` must be real numbers, got torch.complex64", X=torch.tensor(X) * 1j
    ),
}  # fmt: skip
LABELS = {
    "a tensor without numbers": refused("must be plain tensors", y=torch.empty(N, device="meta")),
    "an array for a setting": refused(
        "`verbose` must be one of", settings={"verbose": np.array(["a", "b"])}
    ),
    "complex": refused("`y` must hold plain numbers or text, got complex128", y=y + 0j),
    "unseen in training": refused(
        "`y_val` must hold only the labels [0, 1]", "row 33 holds 2",
        "drop such rows, or encode both tables alike", y_val=put(y_val, 33, 2),
    ),
    "unseen words": refused(
        "['no', 'yes']", "row 5 holds 'perhaps'",
        y=WORDS[y], y_val=put(WORDS[y_val].astype("U9"), 5, "perhaps"),
    ),
    "words and numbers": refused("`y_val` must hold only the labels ['no', 'yes']", y=WORDS[y]),
    "three of them": refused(
        "A model with one output takes two classes, found 3 label values (0, 1, 7",
        "loss='squared_error'", y=put(y, 3, 7),
    ),
    "fractions": refused(
        "`y` must hold class labels, got the fraction 0.5", "loss='squared_error'",
        y=put(y, 3, 0.5, float),
    ),
    "four for three outputs": refused(
        "The model has 3 outputs, so labels must be 0 to 2", "found [0, 1, 2, 3]",
        settings={"make": lambda: fitted("three")}, y=put(THREE.y, 0, 3), y_val=THREE.y_val,
    ),
    "four other ones for three outputs": refused(
        "labels must be 0 to 2 or have as many distinct values", "found [5, 6, 7, 8]",
        settings={"make": lambda: fitted("three")}, y=put(THREE.y, 0, 3) + 5, y_val=THREE.y_val + 5,
    ),
    "one class": refused(
        "The training labels must hold both classes, found only 1",
        "give all the rows that the model was trained on", y=np.ones_like(y),
    ),
    "two columns": refused("`y` must be a non-empty vector", "(240, 2)", y=np.eye(2)[y]),
    "none": refused("`y` must be a non-empty vector", y=None),
    "a word for all": refused("`y` must be a non-empty vector", y="income"),
    "text in regression": refused(
        "`y` must be numbers", "'", y=WORDS[y], y_val=REAL.y_val,
        settings={"loss": "squared_error", "constraints": "mean_prediction"},
    ),
    "one value in regression": refused(
        "`y_val` must vary so that R^2 is defined, but all of it is 2.5", "add validation rows",
        y=REAL.y, y_val=np.full(480, 2.5),
        settings={"loss": "squared_error", "constraints": "mean_prediction"},
    ),
}  # fmt: skip
HALF = np.array(["a", "\ud800"], dtype=object)
LABELS |= {
    "unlike lengths": refused("`y` must hold one plain number or text", y=[[1], [1, 2]] * (N // 2)),
    "half of a character": refused("`y` must hold whole characters", y=HALF[y].tolist()),
    "a masked value in a list": refused(
        "`y` must not hold missing", "row 0", y=[np.ma.masked, *y[1:]]
    ),
    "a NUL at the end": refused("ends with NUL", y=[["a", "a\0"][label] for label in y]),
    "numbers of people in bytes": refused(
        "ends with NUL", y=[b"person" + bytes([label]) for label in y]
    ),
}  # fmt: skip
LABELS |= {
    f"{value} in {name} ({kind})": refused(
        f"`{name}` must not", "row 9", said, "drop",
        **{name: put(WORDS[getattr(DATA, name)] if kind == "words" else getattr(DATA, name),
                     9, value, float if kind == "numbers" else object)},
    )
    for name in ("y", "y_val")
    for kind, value, said in (("numbers", np.nan, "nan"), ("numbers", np.inf, "inf"),
                              ("objects", None, "nan"), ("objects", pd.NA, "<NA>"),
                              ("words", np.nan, "nan"))
}  # fmt: skip
LABELS |= {
    f"outside the domain of a loss of one's own, {name}": refused(
        "positive needs labels",
        settings={"make": lambda: fitted("real"), "loss": Positive(),
                  "constraints": "mean_prediction"},
        **({"y": abs(REAL.y), "y_val": abs(REAL.y_val)} | {name: getattr(REAL, name)}),
    )
    for name in ("y", "y_val")
}  # fmt: skip

GIVEN = {"y": y, "y_val": y_val, "sample_weight": np.ones(N), "sensitive_features_val": sex_val}
ROWS = {
    f"{name} {'too short' if off < 0 else 'too long'}": refused(
        f"`{name}` must have one row per data point: expected {len(value)}, got {len(value) + off}",
        **{name: value[:-1] if off < 0 else np.concatenate([value, value[:1]])},
    )
    for name, value in GIVEN.items()
    for off in (-1, 1)
}
ROWS |= {
    f"no rows{end}": refused(
        f"`y{end}` must be a non-empty vector", "(0,)",
        **{f"X{end}": getattr(DATA, f"X{end}")[:0], f"y{end}": y[:0]},
    )
    for end in ("", "_val")
}  # fmt: skip
ROWS |= {  # groups of the training rows do not stand in for validation rows
    f"no {name}, {len(more)} more": refused(
        "Validation rows need features, labels and groups", f"got no `{name}`",
        **{name: None}, **more,
    )
    for name in NO_VALIDATION
    for more in ({}, {"sensitive_features": DATA.sex})
}  # fmt: skip
ROWS |= {
    "no groups at all": refused(
        "Groups are needed on some rows, got none", "`sensitive_features_val`",
        "`sensitive_features` for the training rows", **NO_VALIDATION,
    ),
    "too few groups of training rows": refused(
        "`sensitive_features` must", "expected 240, got 9",
        **NO_VALIDATION, sensitive_features=DATA.sex[:9],
    ),
    "nothing left to train on": refused(
        "`validation_fraction`=0.9 would split off all 4 rows; lower it",
        settings={"validation_fraction": 0.9}, **NO_VALIDATION,
        X=X[:4], y=np.array([0, 1, 0, 1]), sensitive_features=["a", "a", "b", "b"],
    ),
    "negative weights": refused(
        "`sample_weight` must not be negative: row 8 holds -0.5", "use 0 to leave a row out",
        sample_weight=put(np.ones(N), 8, -0.5),
    ),
    "weights of zero": refused(
        "`sample_weight` must not be all zero", "pass None", sample_weight=np.zeros(N)
    ),
    "weights with NaN": refused(
        "`sample_weight` must not", "row 8 is nan", sample_weight=put(np.ones(N), 8, np.nan)
    ),
    "weights as words": refused(
        "`sample_weight` must be numbers", "heavy", sample_weight=["heavy"] * N
    ),
    "complex": refused(
        "`sample_weight` must hold plain numbers or text, got complex128",
        sample_weight=np.ones(N) + 1j,
    ),
}  # fmt: skip

GROUPS = {
    "one": refused(
        "A gap needs at least two groups on the validation rows, found only 'f'",
        "add rows of another group", sensitive_features_val=["f"] * 480,
    ),
    "a category without rows": refused(
        "Every group must have validation rows, but 'x' has none", "remove the unused category",
        sensitive_features_val=pd.Categorical(sex_val, categories=["f", "m", "x"]),
    ),
    "one row of a group": refused(
        "Every group needs at least two validation rows; found 1 of 'x'",
        "Add validation rows, merge groups (cut a continuous attribute into ranges), or choose",
        sensitive_features_val=put(sex_val.astype("U9"), 100, "x"),
    ),
    "a continuous attribute": refused(
        "and 474 more like these", "cut a continuous attribute into ranges",
        sensitive_features_val=X_val[:, 0],
    ),
    "masked": refused(
        "`sensitive_features_val` has 1 missing", "row 0",
        sensitive_features_val=[np.ma.masked, *sex_val[1:]],
    ),
    "half of a character": refused(
        "is not a table", sensitive_features_val=np.where(sex_val == "f", "\udfff", "m"),
    ),
    "three dimensions": refused(
        "an array of 3 dimensions", sensitive_features_val=np.zeros((480, 1, 1))
    ),
    "columns of unlike lengths": refused(
        "is not a table", sensitive_features_val={"a": [1, 2], "b": [1]}
    ),
}  # fmt: skip
GROUPS |= {
    f"{missing!r}": refused(
        "`sensitive_features_val` has 1 missing", "row 12",
        sensitive_features_val=put(sex_val, 12, missing, object),
    )
    for missing in (None, float("nan"), pd.NA)
}  # fmt: skip
GROUPS |= {
    f"{constraint} without label {label}": refused(
        "at least two validation rows of each label that the constraint looks at",
        f"found 1 of 'f with label {WORDS[label]}'",
        settings={"constraints": constraint},
        y=WORDS[y], X_val=X_val[kept], y_val=WORDS[y_val[kept]],
        sensitive_features_val=sex_val[kept],
    )
    for constraint, label in (("equal_opportunity", 1), ("equalized_odds", 0))
    for kept in [one_left("f", label)]
}  # fmt: skip

MODELS = {
    f"{type(model).__name__}": refused(
        f"No family of models recognises {type(model).__name__!r}", "supported are",
        "torch.nn.Module, LogisticRegression", "fairij.models.Editable",
        settings={"estimator": model},
    )
    for model in (KNeighborsClassifier(), None, "model", mlp)
}  # fmt: skip
MODELS |= {
    "frozen": refused(
        "`parameters`='trainable' leaves no parameter to edit",
        "set requires_grad on some, or pass parameters='all'",
        settings={"make": lambda: copy.deepcopy(fitted()).requires_grad_(False)},
    ),
    "without parameters": refused(
        "no floating-point parameters", "nothing to edit", settings={"estimator": nn.Tanh()}
    ),
    "a pattern that matches nothing": refused(
        "`parameters` pattern 'head.*' matches no parameter",
        "there are: 0.weight, 0.bias, 2.weight, 2.bias", settings={"parameters": "head.*"},
    ),
    "outputs of three dimensions": refused(
        "one row of outputs per data point, (N,) or (N, C)", "got shape",
        settings={"estimator": Cube(4, 2)},
    ),
    "parameters that are not finite": refused(
        "outputs on `X` must be finite", "240 rows in all", settings={"make": broken_module}
    ),
    "one output for softmax": refused(
        "softmax_cross_entropy needs at least two outputs", "(240,)",
        "use loss='binary_cross_entropy'", settings={"loss": "softmax_cross_entropy"},
    ),
    "three outputs for a sigmoid": refused(
        "binary_cross_entropy needs one logit per row", "(240, 3)",
        "use loss='softmax_cross_entropy'", y=THREE.y, y_val=THREE.y_val,
        settings={"make": lambda: fitted("three"), "loss": "binary_cross_entropy"},
    ),
    "a constraint of classification": refused(
        "`constraints` must be defined for regression: one of ['mean_error', 'mean_prediction']",
        "got 'demographic_parity'",
        settings={"loss": "squared_error"}, y=REAL.y, y_val=REAL.y_val,
    ),
    "a constraint of regression": refused(
        "must be defined for classification", "'equalized_odds'", "got 'mean_error'",
        settings={"constraints": "mean_error"},
    ),
    "a constraint without a value": refused(
        "The constraint 'logarithm' must have a finite value and gradient", "its value is nan",
        "a root, logarithm or division that meets zero", settings={"constraints": logarithm},
    ),
    "a constraint without a slope": refused(
        "finite value and gradient", "its value is 0.0", settings={"constraints": kink}
    ),
    "a constraint that is no scalar": refused(
        "must return a scalar", "(480,)",
        settings={"constraints": lambda outputs, y, groups: outputs},
    ),
}  # fmt: skip
MODELS |= {
    f"infinite outputs on {name}": refused(
        f"The model's outputs on `{name}` must be finite: row 11 gives NaN or infinity",
        "look for extreme features, or for parameters that became too large in training",
        settings={"make": Fragile}, **{name: put(getattr(DATA, name), (11, 0), 100.0)},
    )
    for name in ("X", "X_val")
}  # fmt: skip

TABLE = {
    f"{kind}: {name}": case
    for kind, cases in {"features": FEATURES, "labels": LABELS, "rows": ROWS, "groups": GROUPS,
                        "model": MODELS}.items()
    for name, case in cases.items()
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_input_that_is_refused(case: str) -> None:
    error = complaint(TABLE[case])
    says(str(error), *TABLE[case].said)
    assert str(error).endswith((".", ".)"))
    longest = {"groups": 500, "model": 1500}  # an unknown model is told every family
    assert len(str(error)) < longest.get(case.partition(":")[0], 900)
    names = [name for name in TABLE[case].changes if str(error).startswith(f"`{name}`")]
    assert [error.parameter] == names or not names


NUMBERS = ["high", None, [1.0], float("nan"), float("inf")]
# a setting, bad values of it, what is required, and its option of the command line
SETTINGS: list[tuple[str, list[Any], str, str]] = [
    ("drop", ["both", None, 3, pd.NA, np.array(["a", "b"])],
     "must be one of ['fairness', 'loss_aware']", "--drop"),
    ("holdout_fraction", [1, -0.1, np.array([0.1, 0.2]), *NUMBERS],
     "must be a number, at least 0 and below 1", "--holdout-fraction"),
    ("checkpoint", ["a\0b", "\ud800", b"run", 3, ""], "must be a path, of text without NUL",
     "--checkpoint"),
    ("validation_use", ["hold", None], "must be one of ['auto', 'reuse', 'split', 'cross_fit']",
     "--validation-use"),
    ("curvature", ["fisher", None, []], f"must be one of {sorted(CURVATURES)}", "--curvature"),
    ("constraints", ["parity", None, 3], f"must be one of {sorted(CONSTRAINTS)}", "--constraints"),
    ("solver", ["lu", None, 3, Woodbury], f"must be one of {sorted(SOLVERS)}", "--solver"),
    ("search", ["random", None, Grid], f"must be one of {sorted(SEARCHES)}", "--search"),
    ("selection", ["best", None], "must be one of ['budget', 'lowest_gap'] or a rule",
     "`selection`"),
    ("loss", ["hinge", None, SquaredError], f"must be one of {sorted(LOSSES)}, 'auto' or a",
     "--loss"),
    ("temperature", [0, -1.0, *NUMBERS], "must be a number, above 0 and finite", "--temperature"),
    ("threshold", [0, 1, 30, "0.3", True, float("nan")],
     "must be a probability above 0 and below 1", "--threshold"),
    ("missing_groups", ["drop", None, 3], "must be one of ['error', 'ignore']", "--missing-groups"),
    ("marginals", ["sex", None, 3], "must be one of [True, False]", "--marginals"),
    ("weight_decay", [-1e-3, *NUMBERS], "must be a number, at least 0 and fin", "--weight-decay"),
    ("confidence", [0, 1, 95, *NUMBERS], "must be a number, above 0 and below 1", "--confidence"),
    ("damping", ["small", None, [], ["a"], {"a": 1}],
     "must be a positive number, several of them, or 'auto'", "--damping"),
    ("damping", [0, -1e-2, float("nan"), float("inf")], "must be positive and finite",
     "--damping"),
    ("damping", [[1e-2, -3.0]], "must be positive and finite", "--damping"),
    ("random_state", [-1, 1.5, "a", True], "must be a whole number of at least", "--random-state"),
    ("batch_size", [0, -4, 2.5, "big", None], "must be a whole number of at least",
     "--batch-size"),
    ("memory_limit", [-1, 1.5, "all"], "must be a whole number of at least 0", "--memory-limit"),
    ("verbose", ["yes", None, 3], "must be one of [True, False, 'auto']", "`verbose`"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "values", "requirement", "option"),
    SETTINGS,
    ids=[f"{name}-{number}" for number, (name, *_) in enumerate(SETTINGS)],
)
def test_settings(setting: str, values: list[Any], requirement: str, option: str) -> None:
    """Python names the parameter, the command line its option."""
    for value in values:
        error = complaint(refused(settings={setting: value}))
        shown = value[-1] if isinstance(value, list) and value == [1e-2, -3.0] else value
        says(str(error), f"`{setting}` {requirement}", "got", shown if setting == "damping" else "")
        assert setting == "damping" or repr(value) in str(error)
        assert error.parameter == setting
        assert as_options(str(error), error.parameter).startswith(f"{option} {requirement[:20]}")
        if isinstance(value, type):
            says(str(error), f"which is a class: write {value.__name__}(...)")


@pytest.mark.parametrize("seed", ["a", -1, 1.5, [0.5]])
def test_the_seed_of_an_audit(seed: Any) -> None:
    with pytest.raises(InvalidInputError, match="`random_state` must be a whole number"):
        audit(y, y, sensitive_features=DATA.sex, random_state=seed)


@pytest.mark.parametrize("count", [0, 10**12, "many", True, 1.5])
def test_the_number_of_resamples_of_an_audit(count: Any) -> None:
    with pytest.raises(InvalidInputError, match="`n_resamples` must be a whole number"):
        audit(y, y, sensitive_features=DATA.sex, n_resamples=count)


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "", 3])
def test_paths_that_no_system_takes(path: Any) -> None:
    for use in (plain().edit_.save, type(plain().edit_).load):
        with pytest.raises(InvalidInputError, match="`path` must be a path, of text") as caught:
            use(path)
        assert caught.value.parameter == "path"
    with pytest.raises(InvalidInputError, match="must be a path, of text"):
        write_report(plain(), path, X=X)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, "half", None, float("nan")])
def test_validation_fraction(fraction: Any) -> None:
    case = refused(settings={"validation_fraction": fraction}, sensitive_features=DATA.sex)
    error = complaint(Refused((), NO_VALIDATION | case.changes, case.settings))
    says(str(error), "`validation_fraction` must be a number, above 0 and below 1")
    says(str(error), f"got {fraction!r}")


def test_bad_settings_are_found_before_the_work() -> None:
    class Untouchable(nn.Linear):
        def forward(self, X: Tensor) -> Tensor:
            pytest.fail("the model was run although a setting is bad")

    for asked in ({"confidence": 2}, {"damping": -1}, {"search": "x"}, {"constraints": "x"}):
        complaint(refused(settings=asked | {"estimator": Untouchable(4, 1)}))


def test_other_rows_in_prediction() -> None:
    model = DATA.fit(fair(), X=frame(), X_val=frame(values=X_val))
    rows = {
        "X has 2 features, but FairIJ is expecting 4 features": X[:, :2],
        r"`X` must have the columns.*got 'debt'; reorder": frame()[
            ["debt", "hours", "income", "age"]
        ],
        "without NaN or infinity: row 0, column 'age' holds nan": frame(
            values=put(X, (0, 0), np.nan)
        ),
        "`X` must not be empty: there are 0 rows": X[:0],
    }
    for said, wrong in rows.items():
        with pytest.raises(InvalidInputError, match=said):
            model.predict_proba(wrong)
    model.predict(X)  # without names there is nothing to compare


# --- few rows ---------------------------------------------------------------------------------


def test_equal_opportunity_does_not_ask_for_negative_rows() -> None:
    kept = (sex_val != "f") | (y_val != 0)
    with pytest.warns(SmallGroupWarning, match=r"'f' has no rows with label 0 \(of 82\)"):
        model = DATA.fit(
            fair(constraints="equal_opportunity"),
            X_val=X_val[kept],
            y_val=y_val[kept],
            sensitive_features_val=sex_val[kept],
        )
    assert np.isfinite(model.candidates_["gap"]).all()
    assert np.isnan(model.after_["equalized_odds_difference"])
    assert "not defined" in model._repr_html_()
    assert "So these have no value: equalized odds gap (sum)" in model._repr_html_()


def test_few_rows_of_a_group_are_a_warning_at_the_users_line() -> None:
    groups = put(sex_val.astype("U9"), slice(0, 7), "x")
    with pytest.warns(SmallGroupWarning, match=r"Few validation rows: 7 of 'x'") as caught:
        fair().fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=groups)
    assert "fewer than 30 rows are very uncertain; see the intervals" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_a_group_of_two_survives_a_split() -> None:
    # one row of each label: both could have gone to one half
    lonely = [np.flatnonzero((sex_val == "f") & (y_val == label))[0] for label in (0, 1)]
    groups = put(sex_val.astype("U9"), lonely, "x")
    for validation in ("split", "cross_fit"):
        with pytest.warns(SmallGroupWarning):
            model = DATA.fit(fair(validation_use=validation), sensitive_features_val=groups)
        assert np.isfinite(model.diagnostics_["surrogate_before"])
        assert (model.before_.by_group["count"] > 0).all()


# --- a model that is not at a minimum ---------------------------------------------------------


def test_a_model_far_from_its_minimum() -> None:
    module = mlp()  # as it was initialised, so it knows nothing of the labels either
    with pytest.warns(FairIJWarning) as caught:
        model = fair(module, random_state=1).fit(
            DATA.X,
            DATA.y,
            X_val=DATA.X_val,
            y_val=DATA.y_val,
            sensitive_features_val=DATA.sex_val,
        )
    unrelated, moving = caught
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        module(torch.tensor(DATA.X))[:, 0], torch.tensor(DATA.y).float()
    ) + L2 / 2 * sum((p**2).sum() for p in module.parameters())
    gradient = torch.autograd.grad(loss, list(module.parameters()))
    norm = float(torch.cat([g.reshape(-1) for g in gradient]).norm())
    assert norm > 1e-2
    assert model.diagnostics_["gradient_norm"] == pytest.approx(norm, rel=1e-4)
    says(
        str(moving.message),
        "The model is not at a minimum of its training loss",
        f"gradient norm {norm:.2e}",
        f"now {model.diagnostics_['surrogate_before']:.4f}, by about",
        f"{model.diagnostics_['drift']:+.4f}",
        "training the model further would make it a better one",
    )
    assert moving.category is NotStationaryWarning
    assert moving.filename == __file__
    says(str(unrelated.message), "The model knows no more of the labels")


def test_a_forgotten_weight_decay_is_noticed() -> None:
    # the minimum of another loss than the one that is spoken of
    told = DATA.fit(fair())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairIJWarning)
        untold = DATA.fit(fair(weight_decay=0.0))
    assert told.diagnostics_["gradient_norm"] < 1e-5
    assert untold.diagnostics_["gradient_norm"] > 100 * told.diagnostics_["gradient_norm"]
    assert abs(untold.diagnostics_["drift"]) > abs(told.diagnostics_["drift"])


def test_drift_is_what_training_on_does() -> None:
    # a linear model of squared error: one Newton step is the minimum
    real = problem("real")
    module = nn.Linear(4, 1).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotStationaryWarning)
        model = real.fit(
            fair(
                module,
                loss="squared_error",
                constraints="mean_prediction",
                damping=1e-9,
                solver="exact",
                search=QUICK,
            )
        )
    X = torch.tensor(np.column_stack([real.X, np.ones(240)])).double()
    H = X.T @ X / 240 + L2 * torch.eye(5).double()
    minimum = torch.linalg.solve(H, X.T @ torch.tensor(real.y) / 240)
    z = torch.tensor(np.column_stack([real.X_val, np.ones(480)])).double() @ minimum
    before = model.diagnostics_["surrogate_before"]
    with torch.no_grad():
        now = module(torch.tensor(real.X_val).double())[:, 0]
    male = torch.tensor(real.sex_val == "m")
    sign = torch.sign(now[male].mean() - now[~male].mean())
    after = float(sign * (z[male].mean() - z[~male].mean()))
    assert model.diagnostics_["drift"] == pytest.approx(after - before, rel=1e-6)


# --- nothing to drop --------------------------------------------------------------------------


def no_slope(outputs: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    return 0 * outputs.sum() + 0.25


@pytest.mark.parametrize("search", ["grid", "all_positive", "sequential"])
@pytest.mark.parametrize("validation", ["reuse", "split", "cross_fit"])
def test_nothing_with_positive_influence(search: str, validation: str) -> None:
    module = fitted()
    with pytest.warns(NothingToDropWarning) as caught:
        model = fair(module, constraints=no_slope, search=search, validation_use=validation).fit(
            DATA.X,
            DATA.y,
            X_val=DATA.X_val,
            y_val=DATA.y_val,
            sensitive_features_val=DATA.sex_val,
        )
    says(
        str(caught[0].message),
        "No training point has positive influence on the gap",
        "its surrogate is 0.2500",
        "the model is returned unchanged",
        "Another constraint, more validation rows or more editable parameters",
    )
    assert caught[0].filename == __file__
    assert model.dropped_.tolist() == []
    assert len(model.candidates_) == 1
    assert (model.edit_.delta == 0).all()
    for mine, theirs in zip(model.estimator_.parameters(), module.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert model.estimator_ is not module
    assert model.before_.to_dict() == model.after_.to_dict()


def test_nothing_that_hurts_both() -> None:
    # made so that what lowers the gap raises the loss: the gap is minus the loss
    def minus_loss(outputs: Tensor, y: Tensor, groups: Tensor) -> Tensor:
        return -(torch.nn.functional.softplus(outputs) - y * outputs).mean()

    with pytest.warns(NothingToDropWarning, match="on the gap and on the loss"):
        model = DATA.fit(fair(constraints=minus_loss, drop="loss_aware"))
    assert (model.influence_ > 0).any()
    assert (model.loss_influence_ > 0).any()
    assert model.dropped_.tolist() == []


def test_a_model_that_no_candidate_betters_is_returned_as_it_is() -> None:
    module = fitted()
    model = DATA.fit(fair(selection=AccuracyBudget(0.0), search=Grid(k=(150,), scales=(5.0,))))
    assert len(model.candidates_) == 2
    assert model.candidates_["accuracy"][1] < model.candidates_["accuracy"][0]
    assert model.chosen_ == 0
    assert model.dropped_.tolist() == []
    assert torch.equal(model.estimator_[0].weight, module[0].weight)


# --- a second fit -----------------------------------------------------------------------------


def test_a_failed_fit_leaves_the_last_one_whole() -> None:
    model = DATA.fit(fair())
    words = np.array(["no", "yes"])
    expected = model.predict(DATA.X)
    with pytest.raises(InvalidInputError):
        DATA.fit(model, y=words[DATA.y], y_val=words[DATA.y_val], sensitive_features_val=[1] * 480)
    np.testing.assert_array_equal(model.predict(DATA.X), expected)


# --- anything at all ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
def test_features_that_say_nothing() -> None:
    constant = X.copy()
    constant[:, 3] = 7.0
    model = DATA.fit(fair(), X=constant, X_val=put(X_val, (slice(None), 3), 7.0))
    assert np.isfinite(model.influence_).all()


def test_extreme_scales_are_answered_or_refused() -> None:
    for factor in (1e-30, 1e-6, 1e6, 1e30):
        scaled = (X.astype(np.float64) * factor).astype(np.float32)
        check(lambda scaled=scaled: DATA.fit(fair(), X=scaled))


def check(call: Callable[[], Any]) -> None:
    """The call gives an answer, or an error or warning that is fairij's own."""
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
            "validation_use",
            "temperature",
            "loss",
            "weight_decay",
            "parameters",
            "batch_size",
            "memory_limit",
            "confidence",
            "random_state",
            "holdout_fraction",
            "threshold",
            "pos_label",
            "missing_groups",
            "marginals",
        )
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(settings_of)
def test_no_unexpected_kind_of_error_in_settings(asked: dict[str, Any]) -> None:
    check(lambda: DATA.fit(fair(fitted(), **asked)))


@settings(max_examples=60, deadline=None)
@given(columns, columns, columns, st.one_of(st.none(), columns))
@example([0, 1], [0, 0], [0, 0], [1.0, 1e-245])  # the square of a weight is 0
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
    check(lambda: plain().predict(rows))
    check(lambda: plain().predict_proba(rows))


def test_prediction_on_rows_of_another_shape() -> None:
    for rows in ([False], X[:, 0], X[:2, :, None]):
        with pytest.raises(
            InvalidInputError,
            match=r"The model must take `X`|Reshape your data|expected 4, got 4 x 1",
        ):
            plain().predict(rows)
