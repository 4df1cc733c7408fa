"""What a user gives, checked: settings, and rows with their labels, weights and groups.

Every message names the requirement, the value found and the cure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import Columns, n_rows, part_of, speaking_of
from fairij.errors import InvalidInputError, Notice, SeenRowsWarning
from fairij.fairness import arrays
from fairij.fairness.groups import Groups, encode_groups


def one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    if not any(value is option or value == option for option in allowed):
        raise InvalidInputError(f"`{name}` must be one of {list(allowed)}, got {value!r}.")
    return value


def number_between(
    name: str, value: Any, low: float, high: float = math.inf, *, including_low: bool = False
) -> float:
    """A finite real setting above ``low`` (or equal to it) and below ``high``."""
    if isinstance(value, (int, float, np.integer, np.floating)) and (
        low < value < high or (including_low and value == low)
    ):
        return float(value)
    above = f"{'at least' if including_low else 'above'} {low:g}"
    below = "finite" if high == math.inf else f"below {high:g}"
    raise InvalidInputError(f"`{name}` must be a number, {above} and {below}; got {value!r}.")


def whole_number(name: str, value: Any, low: int, *, otherwise: str = "") -> int:
    if isinstance(value, (int, np.integer)) and value is not True and value >= low:
        return int(value)
    raise InvalidInputError(
        f"`{name}` must be a whole number of at least {low}{otherwise}; got {value!r}."
    )


def dampings(damping: Any) -> tuple[float, ...] | Literal["auto"]:
    """One damping, several, or the wish to have it found."""
    if isinstance(damping, str) and damping == "auto":
        return "auto"
    try:
        values = [] if damping is None else np.asarray(damping, np.float64).ravel().tolist()
    except (TypeError, ValueError):
        values = []
    if not values:
        raise InvalidInputError(
            f"`damping` must be a positive number, several of them, or 'auto'; got {damping!r}."
        )
    return tuple(dict.fromkeys(check_damping(value) for value in values))


def check_damping(damping: float) -> float:
    """One damping, positive and finite."""
    if not damping > 0 or damping == math.inf:
        raise InvalidInputError(
            "`damping` must be positive and finite so that H + damping I is invertible, "
            f"got {damping}."
        )
    return float(damping)


def has_method(name: str, value: Any, method: str, allowed: str) -> Any:
    """Settings that are objects must be instances: the class itself is a common slip."""
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        slip = f", which is a class: write {value.__name__}()" if isinstance(value, type) else ""
        raise InvalidInputError(f"`{name}` must be {allowed}; got {value!r}{slip}.")
    return value


def vector(name: str, values: Any, rows: int) -> NDArray[Any]:
    """One value per row, none missing or infinite; plain numbers or text."""
    array = arrays.vector(name, values)
    arrays.check_rows(name, array, rows)
    return array.astype(np.str_) if array.dtype.kind == "O" else array


def zeros_and_ones(name: str, values: Any, rows: int | None = None) -> NDArray[np.int64]:
    """A vector of 0 and 1, or of False and True, with ``rows`` values if given."""
    array = arrays.vector(name, values)
    if rows is not None:
        arrays.check_rows(name, array, rows)
    known = array.dtype.kind in "biuf"
    bad = ~np.isin(array, (0, 1)) if known else np.ones(len(array), dtype=bool)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        found = array[row : row + 1].tolist()[0]
        raise InvalidInputError(
            f"`{name}` must be 0 or 1 in every row: row {row} holds {found!r}; {_cure(name, array)}"
        )
    return array.astype(np.int64)


def _cure(name: str, array: NDArray[Any]) -> str:
    """How to turn other values into 0 and 1."""
    if array.dtype.kind == "f" and (array != array.round()).any():
        cut = "0.5" if array.min() >= 0 and array.max() <= 1 else "0"
        return f"say from which value on it is 1, as in `{name} >= {cut}`."
    one = array.max() if array.dtype.kind in "iuf" else repr(array[0])
    return f"say which values are 1, as in `{name} == {one}`."


def weights(values: Any, rows: int) -> Tensor | None:
    if values is None:
        return None
    array = arrays.numbers("sample_weight", values)
    arrays.check_rows("sample_weight", array, rows)
    if (array < 0).any():
        row = int(np.flatnonzero(array < 0)[0])
        raise InvalidInputError(
            f"`sample_weight` must not be negative: row {row} holds {array[row]:g}; use 0 to "
            "leave a row out."
        )
    if array.sum() == 0:
        raise InvalidInputError("`sample_weight` must not be all zero; pass None to weigh alike.")
    return torch.as_tensor(array)


SEEN_ROWS = (
    "The validation rows are split off `X`. If the model was trained on them too, it knows them, "
    "and what is measured and chosen on them flatters it: give rows that it was not trained on as "
    "`X_val`, `y_val` and `sensitive_features_val`."
)


@dataclass(frozen=True)
class Data:
    """Training and validation rows, as the user holds them; labels not yet encoded."""

    X: Any
    y: NDArray[Any]
    weight: Tensor | None
    X_val: Any
    y_val: NDArray[Any]
    groups: Groups  # of the validation rows
    rows: NDArray[np.int64] | None = None  # which of the given rows are for training; None: all
    every_y: NDArray[Any] | None = None  # the labels of all rows, where ``rows`` are some of them
    notices: tuple[Notice, ...] = ()
    y_as_given: Any = None  # for the fingerprint of the data

    @property
    def given_y(self) -> NDArray[Any]:
        """The labels of the training rows, with those split off them."""
        return self.y if self.every_y is None else self.every_y

    @classmethod
    def given(
        cls, X: Any, y: Any, weight: Any, X_val: Any, y_val: Any, sensitive_features_val: Any
    ) -> Data:
        """Validation rows of their own."""
        parts = {"X_val": X_val, "y_val": y_val, "sensitive_features_val": sensitive_features_val}
        missing = [f"`{name}`" for name, value in parts.items() if value is None]
        if missing:
            raise InvalidInputError(
                "Validation rows need features, labels and groups: pass `X_val`, `y_val` and "
                f"`sensitive_features_val` together; got no {' and no '.join(missing)}."
            )
        rows = n_rows(X)
        with speaking_of("X_val"):
            rows_val = n_rows(X_val)
        Columns.of(X).check("X_val", X_val)
        truth, truth_val = vector("y", y, rows), vector("y_val", y_val, rows_val)
        with speaking_of("sensitive_features_val", instead_of="sensitive_features"):
            groups = encode_groups(sensitive_features_val, expected_rows=rows_val)
        return cls(X, truth, weights(weight, rows), X_val, truth_val, groups)

    @classmethod
    def split(
        cls, X: Any, y: Any, weight: Any, sensitive_features: Any, *, fraction: float, seed: int
    ) -> Data:
        """Validation rows split off the training rows, a fraction of each group."""
        if sensitive_features is None:
            raise InvalidInputError(
                "Groups are needed on some rows, got none: pass validation rows (`X_val`, "
                "`y_val`, `sensitive_features_val`), or `sensitive_features` for the training rows."
            )
        rows = n_rows(X)
        truth, weight = vector("y", y, rows), weights(weight, rows)
        groups = encode_groups(sensitive_features, expected_rows=rows)
        held = held_out("validation_fraction", fraction, groups, seed)
        inside, outside = np.flatnonzero(~held), np.flatnonzero(held)
        return cls(
            part_of(X, inside),
            truth[inside],
            None if weight is None else weight[torch.as_tensor(inside)],
            part_of(X, outside),
            truth[outside],
            groups.take(outside),
            inside,
            truth,
            (Notice(SEEN_ROWS, SeenRowsWarning),),
        )


class Split(Protocol):
    """How validation rows are split off, if none are given."""

    @property
    def validation_fraction(self) -> float: ...

    @property
    def seed(self) -> int: ...


def data_of(
    train: tuple[Any, Any, Any, Any],
    validation: tuple[Any, Any, Any],
    split: Split,
    column: Callable[[Any, Any], Any],
) -> Data:
    """Check what the user gave: (X, y, weights, groups) and (X, y, groups) of validation rows.

    ``column(X, values)`` gives the values of all rows of ``X``.
    """
    (X, *columns), (X_val, *columns_val) = train, validation
    y, weight, groups = (column(X, values) for values in columns)
    y_val, groups_val = (column(X_val, values) for values in columns_val)
    if X_val is None and y_val is None and groups_val is None:
        fraction, seed = split.validation_fraction, split.seed
        data = Data.split(X, y, weight, groups, fraction=fraction, seed=seed)
    else:
        data = Data.given(X, y, weight, X_val, y_val, groups_val)
    return replace(data, y_as_given=y)


def held_out(name: str, value: Any, groups: Groups, seed: int) -> NDArray[np.bool_]:
    """A random fraction of each group's rows, at least one of each; ``name`` is the setting's."""
    fraction = number_between(name, value, 0, 1)
    rng = np.random.default_rng(seed)
    held = np.zeros(len(groups), dtype=bool)
    for code in range(len(groups.names)):
        members = rng.permutation(np.flatnonzero(groups.codes == code))
        held[members[: max(1, round(fraction * len(members)))]] = True
    if held.all():
        raise InvalidInputError(
            f"`{name}`={fraction:g} would split off all {len(groups)} rows; lower "
            "it, or give more rows."
        )
    return held
