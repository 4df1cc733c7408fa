"""Bad input: each a clear error or warning that names the requirement, the value and the cure."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

from biased import L2, QUICK, Problem, fair, fitted, mlp, problem
from fairij import CONSTRAINTS, CURVATURES, LOSSES, SOLVERS, AccuracyBudget, Grid, Woodbury
from fairij.errors import (
    FairIJWarning,
    InvalidInputError,
    NothingToDropWarning,
    NotStationaryWarning,
    SmallGroupWarning,
)
from fairij.models.losses import SquaredError
from fairij.method.search import SEARCHES

DATA = problem()


def complaint(settings: dict[str, Any] | None = None, **changes: Any) -> str:
    """The message of the error that this input gives; the user's model must survive it."""
    settings = settings or {}
    module = settings.pop("estimator", fitted())
    before = copy.deepcopy(module.state_dict()) if isinstance(module, nn.Module) else {}
    model = fair(module, **settings)
    with pytest.raises(InvalidInputError) as caught:
        DATA.fit(model, **changes)
    assert not hasattr(model, "estimator_")
    assert not hasattr(model, "classes_")
    for name, value in before.items():
        assert torch.equal(module.state_dict()[name].nan_to_num(), value.nan_to_num())
    return str(caught.value)


def says(message: str, *parts: object) -> None:
    for part in parts:
        assert str(part) in message, f"{part!r} is not in: {message}"


def put(array: np.ndarray, place: Any, value: Any) -> np.ndarray:
    changed = np.array(array, copy=True)
    changed[place] = value
    return changed


def frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=["age", "income", "hours", "debt"])


# --- features ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("argument", ["X", "X_val"])
@pytest.mark.parametrize(
    ("form", "column"),
    [
        (np.asarray, "column 2"),
        (torch.tensor, "column 2"),
        (frame, "column 'hours'"),
        (scipy.sparse.csr_array, "column 2"),
        (lambda X: X.tolist(), "column 2"),
    ],
)
def test_features_that_are_not_finite(value: float, argument: str, form: Any, column: str) -> None:
    X = form(put(getattr(DATA, argument), (17, 2), value))
    says(
        complaint(**{argument: X}),
        f"`{argument}` must be finite",
        "row 17",
        column,
        f"holds {value}",
        "there are 1 such value(s)",
        "impute them, or drop those rows",
    )


def test_the_first_of_several_places_and_their_number() -> None:
    X = put(put(DATA.X, (30, 1), np.inf), (40, slice(None)), np.nan)
    says(complaint(X=X), "row 30, column 1 holds inf; there are 5 such")


def test_rows_of_a_split_validation_set_are_named_as_given() -> None:
    X_val = put(DATA.X_val, (401, 3), np.nan)
    for validation in ("split", "cross_fit"):
        says(complaint({"validation": validation}, X_val=X_val), "`X_val` must be finite: row 401")


def test_missing_values_of_every_kind() -> None:
    for missing in (None, pd.NA, pd.NaT, float("nan")):
        X = frame(DATA.X).astype(object)
        X.iloc[5, 1] = missing
        says(complaint(X=X), "`X` must be finite: row 5, column 'income' holds nan")


def test_a_number_too_large_for_the_models_precision() -> None:
    X = put(DATA.X.astype(np.float64), (3, 0), 1e300)
    says(complaint(X=X), "row 3, column 0 holds 1e+300 (more than float32 can hold)")


def test_parts_of_a_collection_are_named() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return self.body(torch.cat([left, right], 1))

    bad = put(DATA.X[:, 2:], (4, 1), np.nan)
    message = complaint(
        {"estimator": Two()},
        X={"left": DATA.X[:, :2], "right": bad},
        X_val={"left": DATA.X_val[:, :2], "right": DATA.X_val[:, 2:]},
    )
    says(message, "`X['right']` must be finite: row 4, column 1")


def test_masked_features() -> None:
    says(
        complaint(X=np.ma.masked_greater(DATA.X, 2.0)),
        "`X` must not have masked values",
        "`X.filled(...)`",
    )


def test_complex_features() -> None:
    says(complaint(X=DATA.X + 1j), "`X` must be real numbers, got complex", "parts as columns")


def test_text_features() -> None:
    X = frame(DATA.X).astype(object)
    X["hours"] = "many"
    says(
        complaint(X=X),
        "`X` must be numeric for this model",
        "many",
        "encode text and categories first",
        "OneHotEncoder",
    )


@pytest.mark.parametrize("X", [None, 3.0, "rows", np.float32(2), torch.tensor(1.0), object()])
def test_features_that_are_no_table(X: Any) -> None:
    says(complaint(X=X), "`X` must be a table with one row per data point", "an array, frame")


def test_validation_features_that_are_no_table() -> None:
    says(complaint(X_val="rows"), "`X_val` must be a table", "got 'str'")


@pytest.mark.parametrize("empty", [{}, ()])
def test_an_empty_collection(empty: Any) -> None:
    says(complaint(X=empty), "`X` must hold at least one array")


def test_other_columns_in_validation_rows() -> None:
    says(
        complaint(X_val=DATA.X_val[:, :3]),
        "`X_val` must have as many columns as the training rows: expected 4, got 3",
        "prepare both in the same way",
    )
    shuffled = frame(DATA.X_val)[["age", "hours", "income", "debt"]]
    says(
        complaint(X=frame(DATA.X), X_val=shuffled),
        "`X_val` must have the columns of the training rows in the same order",
        "expected 'income' at place 1, got 'hours'",
        "reorder them",
    )


def test_other_columns_in_prediction() -> None:
    model = DATA.fit(fair(), X=frame(DATA.X), X_val=frame(DATA.X_val))
    with pytest.raises(
        InvalidInputError, match=r"`X` must have as many columns.*expected 4, got 2"
    ):
        model.predict(DATA.X[:, :2])
    with pytest.raises(InvalidInputError, match=r"`X` must have the columns.*got 'debt'; reorder"):
        model.predict(frame(DATA.X)[["debt", "hours", "income", "age"]])
    model.predict(DATA.X)  # without names there is nothing to compare
    with pytest.raises(
        InvalidInputError, match="`X` must be finite: row 0, column 'age' holds nan"
    ):
        model.predict_proba(frame(put(DATA.X, (0, 0), np.nan)))
    with pytest.raises(InvalidInputError, match="`X` must not be empty: there are 0 rows"):
        model.predict(DATA.X[:0])


# --- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", ["y", "y_val"])
@pytest.mark.parametrize(
    ("change", "value"),
    [
        (lambda y: put(y.astype(float), 9, np.nan), "nan"),
        (lambda y: put(y.astype(float), 9, np.inf), "inf"),
        (lambda y: put(y.astype(object), 9, None), "nan"),
        (lambda y: pd.Series(put(y.astype(object), 9, pd.NA)).astype("Int64"), "nan"),
        (lambda y: put(np.array(["no", "yes"], dtype=object)[y], 9, np.nan), "nan"),
    ],
)
def test_missing_labels(argument: str, change: Any, value: str) -> None:
    changed = change(getattr(DATA, argument))
    says(complaint(**{argument: changed}), f"`{argument}` must not", "row 9", value, "drop")


def test_labels_that_training_has_not_seen() -> None:
    says(
        complaint(y_val=put(DATA.y_val, 33, 2)),
        "`y_val` must hold only the labels [0, 1]",
        "row 33 holds 2",
        "drop such rows, or encode both tables alike",
    )
    words = np.array(["no", "yes"])
    says(
        complaint(y=words[DATA.y], y_val=put(words[DATA.y_val].astype("U9"), 5, "perhaps")),
        "['no', 'yes']",
        "row 5 holds 'perhaps'",
    )
    says(complaint(y=words[DATA.y]), "`y_val` must hold only the labels ['no', 'yes']")


def test_labels_outside_the_domain() -> None:
    says(
        complaint(y=put(DATA.y, 3, 7)),
        "A model with one output takes two classes, found 3 label values (0, 1, 7",
        "loss='squared_error'",
    )
    says(
        complaint(y=put(DATA.y.astype(float), 3, 0.5)),
        "`y` must hold class labels, got the fraction 0.5",
        "loss='squared_error'",
    )
    three = problem("three")
    says(
        complaint({"estimator": fitted("three")}, y=put(three.y, 0, 3), y_val=three.y_val),
        "The model has 3 outputs, so labels must be 0 to 2",
        "found [0, 1, 2, 3]",
    )
    says(
        complaint({"estimator": fitted("three")}, y=put(three.y, 0, 3) + 5, y_val=three.y_val + 5),
        "labels must be 0 to 2 or have as many distinct values",
        "found [5, 6, 7, 8]",
    )


def test_one_class_only() -> None:
    says(
        complaint(y=np.ones_like(DATA.y)),
        "The training labels must hold both classes, found only 1",
        "give all the rows that the model was trained on",
    )


def test_labels_of_more_than_one_column() -> None:
    says(complaint(y=np.eye(2)[DATA.y]), "`y` must be a non-empty vector", "(240, 2)")


def test_text_labels_in_regression() -> None:
    real = problem("real")
    words = np.array(["a", "b"])[DATA.y]
    settings = {"loss": "squared_error", "constraints": "mean_prediction"}
    says(complaint(settings | {}, y=words, y_val=real.y_val), "`y` must be numbers", "'")
    says(
        complaint(settings | {}, y=real.y, y_val=np.full(480, 2.5)),
        "`y_val` must vary so that R^2 is defined, but all of it is 2.5",
        "add validation rows",
    )


def test_labels_outside_the_domain_of_a_loss_of_ones_own() -> None:
    class Positive(SquaredError):  # noqa: N818
        name = "positive"

        def check(self, z: Tensor, y: Tensor) -> None:
            if bool((y < 0).any()):
                raise InvalidInputError(f"positive needs labels of at least 0, got {y.min()}.")

    real = problem("real")
    settings = {"estimator": fitted("real"), "loss": Positive(), "constraints": "mean_prediction"}
    says(complaint(settings.copy(), y=real.y, y_val=abs(real.y_val)), "positive needs labels")
    says(complaint(settings.copy(), y=abs(real.y), y_val=real.y_val), "positive needs labels")


# --- lengths ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "expected"),
    [("y", 240), ("sample_weight", 240), ("y_val", 480), ("sensitive_features_val", 480)],
)
@pytest.mark.parametrize("off", [-1, 1])
def test_wrong_lengths(argument: str, expected: int, off: int) -> None:
    base = {"sample_weight": np.ones(240), "sensitive_features_val": DATA.sex_val}
    values = base.get(argument, getattr(DATA, argument, None))
    wrong = values[:-1] if off < 0 else np.concatenate([values, values[:1]])
    says(
        complaint(**{argument: wrong}),
        f"`{argument}` must have one row per data point: expected {expected}, got {expected + off}",
    )


def test_wrong_length_of_groups_for_training_rows() -> None:
    with pytest.raises(InvalidInputError, match=r"`sensitive_features` must .*expected 240, got 9"):
        fair().fit(DATA.X, DATA.y, sensitive_features=DATA.sex[:9])


def test_parts_of_unlike_lengths() -> None:
    says(
        complaint(X=(DATA.X, DATA.X[:7])),
        "All parts of `X` must have equally many rows, got [7, 240]",
    )
    says(
        complaint(X=(DATA.X, DATA.X), X_val=(DATA.X_val, DATA.X_val[:7])),
        "All parts of `X_val` must have equally many rows, got [7, 480]",
    )


@pytest.mark.parametrize("argument", ["", "_val"])
def test_no_rows(argument: str) -> None:
    message = complaint(
        **{f"X{argument}": getattr(DATA, f"X{argument}")[:0], f"y{argument}": DATA.y[:0]}
    )
    says(message, f"`y{argument}` must be a non-empty vector", "(0,)")


@pytest.mark.parametrize("missing", ["X_val", "y_val", "sensitive_features_val"])
def test_half_given_validation_rows(missing: str) -> None:
    message = complaint(**{missing: None})
    says(message, "Validation rows need features, labels and groups", f"got no `{missing}`")
    # groups of the training rows do not stand in for them
    says(complaint(**{missing: None}, sensitive_features=DATA.sex), f"got no `{missing}`")


def test_no_groups_at_all() -> None:
    nothing = dict.fromkeys(("X_val", "y_val", "sensitive_features_val"))
    says(
        complaint(**nothing),
        "Groups are needed on some rows, got none",
        "`sensitive_features_val`",
        "`sensitive_features` for the training rows",
    )


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, "half", None, float("nan")])
def test_validation_fraction(fraction: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        fair(validation_fraction=fraction).fit(DATA.X, DATA.y, sensitive_features=DATA.sex)
    says(str(caught.value), "`validation_fraction` must be a number, above 0 and below 1")
    says(str(caught.value), f"got {fraction!r}")


def test_nothing_left_to_train_on() -> None:
    with pytest.raises(
        InvalidInputError, match=r"`validation_fraction`=0.9 would split off all 4 rows; lower it"
    ):
        fair(validation_fraction=0.9).fit(
            DATA.X[:4], np.array([0, 1, 0, 1]), sensitive_features=["a", "a", "b", "b"]
        )


# --- weights ----------------------------------------------------------------------------------


def test_weights() -> None:
    ones = np.ones(240)
    says(
        complaint(sample_weight=put(ones, 8, -0.5)),
        "`sample_weight` must not be negative: row 8 holds -0.5",
        "use 0 to leave a row out",
    )
    says(complaint(sample_weight=0 * ones), "`sample_weight` must not be all zero", "pass None")
    says(complaint(sample_weight=put(ones, 8, np.nan)), "`sample_weight` must not", "row 8 is nan")
    says(complaint(sample_weight=["heavy"] * 240), "`sample_weight` must be numbers", "heavy")


# --- groups -----------------------------------------------------------------------------------


def test_one_group_only() -> None:
    says(
        complaint(sensitive_features_val=["f"] * 480),
        "A gap needs at least two groups on the validation rows, found only 'f'",
        "add rows of another group",
    )


def test_a_category_without_rows() -> None:
    groups = pd.Categorical(DATA.sex_val, categories=["f", "m", "x"])
    says(
        complaint(sensitive_features_val=groups),
        "Every group must have validation rows, but 'x' has none",
        "remove the unused category",
    )


def test_a_group_with_one_row() -> None:
    groups = put(DATA.sex_val.astype("U9"), 100, "x")
    says(
        complaint(sensitive_features_val=groups),
        "Every group needs at least two validation rows; found 1 of 'x'",
        "Add validation rows, merge groups (cut a continuous attribute into ranges), or choose",
    )


def test_a_continuous_attribute_is_no_group() -> None:
    message = complaint(sensitive_features_val=DATA.X_val[:, 0])
    says(message, "and 474 more like these", "cut a continuous attribute into ranges")
    assert len(message) < 500


@pytest.mark.parametrize(("constraint", "label"), [("equal_opportunity", 1), ("equalized_odds", 0)])
def test_a_group_without_rows_of_a_label(constraint: str, label: int) -> None:
    kept = (DATA.sex_val != "f") | (DATA.y_val != label)
    kept[np.flatnonzero(~kept)[0]] = True
    words = np.array(["no", "yes"])
    message = complaint(
        {"constraints": constraint},
        y=words[DATA.y],
        X_val=DATA.X_val[kept],
        y_val=words[DATA.y_val[kept]],
        sensitive_features_val=DATA.sex_val[kept],
    )
    says(
        message,
        "at least two validation rows of each label that the constraint looks at",
        f"found 1 of 'f with label {words[label]}'",
    )


def test_equal_opportunity_does_not_ask_for_negative_rows() -> None:
    kept = (DATA.sex_val != "f") | (DATA.y_val != 0)
    model = DATA.fit(
        fair(constraints="equal_opportunity"),
        X_val=DATA.X_val[kept],
        y_val=DATA.y_val[kept],
        sensitive_features_val=DATA.sex_val[kept],
    )
    assert np.isfinite(model.candidates_["gap"]).all()


def test_few_rows_of_a_group_are_a_warning_at_the_users_line() -> None:
    groups = put(DATA.sex_val.astype("U9"), slice(0, 7), "x")
    with pytest.warns(SmallGroupWarning, match=r"Few validation rows: 7 of 'x'") as caught:
        fair().fit(
            DATA.X,
            DATA.y,
            X_val=DATA.X_val,
            y_val=DATA.y_val,
            sensitive_features_val=groups,
        )
    assert "fewer than 30 rows are very uncertain; see the intervals" in str(caught[0].message)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_missing_groups(missing: Any) -> None:
    groups = put(DATA.sex_val.astype(object), 12, missing)
    says(
        complaint(sensitive_features_val=groups), "`sensitive_features_val` has 1 missing", "row 12"
    )


def test_a_group_of_two_survives_a_split() -> None:
    # one row of each label: both could have gone to one half
    lonely = [np.flatnonzero((DATA.sex_val == "f") & (DATA.y_val == label))[0] for label in (0, 1)]
    groups = put(DATA.sex_val.astype("U9"), lonely, "x")
    for validation in ("split", "cross_fit"):
        with pytest.warns(SmallGroupWarning):
            model = DATA.fit(fair(validation=validation), sensitive_features_val=groups)
        assert np.isfinite(model.diagnostics_["surrogate_before"])
        assert (model.before_.by_group["count"] > 0).all()


# --- the model --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [KNeighborsClassifier(), None, "model", mlp])
def test_a_model_of_no_known_family(model: Any) -> None:
    says(
        complaint({"estimator": model}),
        f"No family of models recognises {type(model).__name__!r}",
        "supported are",
        "torch.nn.Module, LogisticRegression",
        "fairij.models.Editable",
    )


def test_no_editable_parameters() -> None:
    frozen = copy.deepcopy(fitted()).requires_grad_(False)
    says(
        complaint({"estimator": frozen}),
        "`parameters`='trainable' leaves no parameter to edit",
        "set requires_grad on some, or pass parameters='all'",
    )
    says(complaint({"estimator": nn.Tanh()}), "no floating-point parameters", "nothing to edit")
    says(
        complaint({"parameters": "head.*"}),
        "`parameters` pattern 'head.*' matches no parameter",
        "there are: 0.weight, 0.bias, 2.weight, 2.bias",
    )


def test_features_that_the_model_does_not_take() -> None:
    says(
        complaint(X=DATA.X[:, :3], X_val=DATA.X_val[:, :3]),
        "The model must take `X` as it is given, but it says: mat1 and mat2 shapes",
        "Give the features that it was trained on",
    )
    says(complaint(X={"rows": DATA.X}, X_val={"rows": DATA.X_val}), "keyword argument 'rows'")


def test_outputs_of_a_strange_shape() -> None:
    class Cube(nn.Linear):
        def forward(self, X: Tensor) -> Tensor:
            return super().forward(X)[:, None]

    says(
        complaint({"estimator": Cube(4, 2)}),
        "one row of outputs per data point, (N,) or (N, C)",
        "got shape",
    )


@pytest.mark.parametrize("argument", ["X", "X_val"])
def test_outputs_that_are_not_finite(argument: str) -> None:
    class Fragile(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = copy.deepcopy(fitted())

        def forward(self, X: Tensor) -> Tensor:
            return self.body(X) + torch.where(X[:, :1] > 50, torch.inf, 0.0)

    X = put(getattr(DATA, argument), (11, 0), 100.0)
    says(
        complaint({"estimator": Fragile()}, **{argument: X}),
        f"The model's outputs on `{argument}` must be finite: row 11 gives NaN or infinity",
        "look for extreme features, or parameters that training has blown up",
    )


def test_parameters_that_are_not_finite() -> None:
    broken = copy.deepcopy(fitted())
    with torch.no_grad():
        broken[2].bias[:] = torch.nan
    says(complaint({"estimator": broken}), "outputs on `X` must be finite", "240 rows in all")


def test_a_loss_that_does_not_fit_the_outputs() -> None:
    says(
        complaint({"loss": "softmax_cross_entropy"}),
        "softmax_cross_entropy needs at least two outputs",
        "(240,)",
        "use loss='binary_cross_entropy'",
    )
    three = problem("three")
    says(
        complaint(
            {"estimator": fitted("three"), "loss": "binary_cross_entropy"},
            y=three.y,
            y_val=three.y_val,
        ),
        "binary_cross_entropy needs one logit per row",
        "(240, 3)",
        "use loss='softmax_cross_entropy'",
    )


def test_a_constraint_that_does_not_fit_the_task() -> None:
    real = problem("real")
    says(
        complaint({"loss": "squared_error"}, y=real.y, y_val=real.y_val),
        "`constraints` must be defined for regression: one of ['mean_error', 'mean_prediction']",
        "got 'demographic_parity'",
    )
    says(
        complaint({"constraints": "mean_error"}),
        "must be defined for classification",
        "'equalized_odds'",
        "got 'mean_error'",
    )


def test_a_constraint_without_a_finite_value() -> None:
    def broken(outputs: Tensor, y: Tensor, groups: Tensor) -> Tensor:
        return torch.log(outputs - outputs.max()).sum()

    says(
        complaint({"constraints": broken}),
        "The constraint 'broken' must have a finite value and gradient",
        "its value is nan",
        "a root, logarithm or division that meets zero",
    )

    def kink(outputs: Tensor, y: Tensor, groups: Tensor) -> Tensor:
        return (outputs - outputs).sum().sqrt()  # 0, with an infinite slope

    says(complaint({"constraints": kink}), "finite value and gradient", "its value is 0.0")


def test_a_constraint_that_is_no_scalar() -> None:
    says(
        complaint({"constraints": lambda outputs, y, groups: outputs}),
        "must return a scalar",
        "(480,)",
    )


# --- settings ---------------------------------------------------------------------------------

NUMBERS = ["high", None, [1.0], float("nan"), float("inf")]


@pytest.mark.parametrize(
    ("setting", "values", "requirement"),
    [
        ("drop", ["both", None, 3], "`drop` must be one of ['fairness', 'loss_aware']"),
        (
            "validation",
            ["hold", None],
            "`validation` must be one of ['reuse', 'split', 'cross_fit']",
        ),
        ("curvature", ["fisher", None, []], f"`curvature` must be one of {sorted(CURVATURES)}"),
        ("constraints", ["parity", None, 3], f"`constraints` must be one of {sorted(CONSTRAINTS)}"),
        ("solver", ["lu", None, 3, Woodbury], f"`solver` must be one of {sorted(SOLVERS)}"),
        ("search", ["random", None, Grid], f"`search` must be one of {sorted(SEARCHES)}"),
        (
            "selection",
            ["best", None],
            "`selection` must be one of ['lowest_gap'], LowestGap(slack=...), AccuracyBudget(",
        ),
        (
            "loss",
            ["hinge", None, SquaredError],
            f"`loss` must be one of {sorted(LOSSES)}, 'auto' or a",
        ),
        ("temperature", [0, -1.0, *NUMBERS], "`temperature` must be a number, above 0 and finite"),
        ("weight_decay", [-1e-3, *NUMBERS], "`weight_decay` must be a number, at least 0 and fin"),
        ("confidence", [0, 1, 95, *NUMBERS], "`confidence` must be a number, above 0 and below 1"),
        (
            "damping",
            ["small", None, [], ["a"], {"a": 1}],
            "`damping` must be a positive number, several of them, or 'auto'",
        ),
        (
            "damping",
            [0, -1e-2, float("nan"), float("inf")],
            "`damping` must be positive and finite",
        ),
        ("random_state", [-1, 1.5, "a", True], "`random_state` must be a whole number of at least"),
        ("batch_size", [0, -4, 2.5, "big", None], "`batch_size` must be a whole number of at leas"),
        ("memory_limit", [-1, 1.5, "all"], "`memory_limit` must be a whole number of at least 0"),
        ("verbose", ["yes", None, 3], "`verbose` must be one of [True, False, 'auto']"),
    ],
)
def test_settings(setting: str, values: list[Any], requirement: str) -> None:
    for value in values:
        message = complaint({setting: value})
        says(message, requirement, "got", value if setting == "damping" else repr(value))


def test_one_bad_damping_among_good_ones() -> None:
    says(complaint({"damping": [1e-2, -3.0]}), "`damping` must be positive and finite", "got -3.0")


def test_a_class_instead_of_an_object() -> None:
    says(complaint({"solver": Woodbury}), "which is a class: write Woodbury()")


def test_bad_settings_are_found_before_the_work() -> None:
    class Untouchable(nn.Linear):
        def forward(self, X: Tensor) -> Tensor:
            pytest.fail("the model was run although a setting is bad")

    for settings in ({"confidence": 2}, {"damping": -1}, {"search": "x"}, {"constraints": "x"}):
        complaint(settings | {"estimator": Untouchable(4, 1)})


# --- a model that is not at a minimum ---------------------------------------------------------


def test_a_model_far_from_its_minimum() -> None:
    module = mlp()  # as it was initialised
    with pytest.warns(NotStationaryWarning) as caught:
        model = fair(module, random_state=1).fit(
            DATA.X,
            DATA.y,
            X_val=DATA.X_val,
            y_val=DATA.y_val,
            sensitive_features_val=DATA.sex_val,
        )
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        module(torch.tensor(DATA.X))[:, 0], torch.tensor(DATA.y).float()
    ) + L2 / 2 * sum((p**2).sum() for p in module.parameters())
    gradient = torch.autograd.grad(loss, list(module.parameters()))
    norm = float(torch.cat([g.reshape(-1) for g in gradient]).norm())
    assert norm > 1e-2
    assert model.diagnostics_["gradient_norm"] == pytest.approx(norm, rel=1e-4)
    says(
        str(caught[0].message),
        "The model is not at a minimum of its training loss",
        f"gradient norm {norm:.2e}",
        f"now {model.diagnostics_['surrogate_before']:.4f}, by about",
        f"{model.diagnostics_['drift']:+.4f}",
        "train the model further",
    )
    assert caught[0].filename == __file__
    assert len(caught) == 1


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
        model = fair(module, constraints=no_slope, search=search, validation=validation).fit(
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


def test_the_problem_itself_is_sound() -> None:
    assert isinstance(DATA, Problem)
    DATA.fit(fair())  # so that every error above is by its one change
