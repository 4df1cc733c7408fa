"""Checks of what users give: settings, vectors with one value per row, and the rows of a fit."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.overlap import shared_rows
from fairij.data.ranges import unlike_columns
from fairij.data.rows import Columns, n_rows, part_of, speaking_of
from fairij.data.sparse import check_sparse
from fairij.errors import InvalidInputError, Notice, SeenRowsWarning
from fairij.fairness import groups as per_row
from fairij.fairness.groups import Groups, MissingGroups, encode_groups
from fairij.fairness.views import cells_of, within_strata

SEEN_ROWS = (
    "The validation rows are split off `X`. If the model was trained on them too, results measured "
    "on them are too good: give rows that it was not trained on as `X_val`, `y_val` and "
    "`sensitive_features_val`."
)


def one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """A setting that is one of a few values."""
    if not any(value is option or _equal(value, option) for option in allowed):
        raise InvalidInputError(f"`{name}` must be one of {list(allowed)}, got {value!r}.")
    return value


def _equal(value: Any, option: Any) -> bool:
    """Whether a setting has this value; an array is compared with none."""
    try:
        return np.ndim(value) == 0 and bool(value == option)
    except (TypeError, ValueError):  # a missing value is equal to nothing
        return False


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
    """A whole number of at least ``low``; ``otherwise`` says what else may be given."""
    if isinstance(value, (int, np.integer)) and value is not True and value >= low:
        return int(value)
    raise InvalidInputError(
        f"`{name}` must be a whole number of at least {low}{otherwise}; got {value!r}."
    )


def dampings(damping: Any) -> tuple[float, ...] | Literal["auto"]:
    """One damping or several, without repetitions; or "auto"."""
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
    """A setting that is an object with this method; a common mistake is to give the class."""
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        raise InvalidInputError(f"`{name}` must be {allowed}; got {_shown(value)}.")
    return value


def _shown(value: Any) -> str:
    is_class = isinstance(value, type)
    return repr(value) + (f", which is a class: write {value.__name__}(...)" if is_class else "")


def looked_up(
    name: str, asked: Any, registry: Mapping[str, Any], protocol: type, defaults: type, example: str
) -> Any:
    """The entry of a registry by name, or the user's object with every member of the protocol."""
    value = asked
    if isinstance(asked, str) and asked in registry:
        value = registry[asked]() if isinstance(registry[asked], type) else registry[asked]
    missing = [member for member in members(protocol) if not hasattr(value, member)]
    if isinstance(value, type) or any(not hasattr(defaults, member) for member in missing):
        raise InvalidInputError(
            f"`{name}` must be one of {sorted(registry)} or {example}; got {_shown(value)}."
        )
    if missing:
        raise InvalidInputError(
            f"`{name}` must have every member of {protocol.__name__}, but {value!r} has no "
            f"{', '.join(missing)}: inherit {defaults.__module__}.{defaults.__name__}."
        )
    return value


def members(protocol: type) -> list[str]:
    """The names that a protocol states, in their order."""
    stated = [{**vars(base), **inspect.get_annotations(base)} for base in protocol.__mro__]
    return list(dict.fromkeys(name for base in stated for name in base if name[0] != "_"))


def vector(name: str, values: Any, rows: int) -> NDArray[Any]:
    """One value per row, none missing or infinite; plain numbers or text."""
    array = per_row.vector(name, values, rows)
    return _as_text(name, array) if array.dtype.kind == "O" else array


def _as_text(name: str, array: NDArray[Any]) -> NDArray[np.str_]:
    """Objects as texts, of which no two become the same."""
    try:
        texts = array.astype(np.str_)
        distinct = pd.unique(array)
        if any(isinstance(one, (str, bytes)) and one[-1:] in ("\0", b"\0") for one in distinct):
            raise ValueError("a text ends with NUL, which would be lost")
    except UnicodeError as error:
        raise per_row.not_whole(name, error) from None
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"`{name}` must hold one plain number or text per row, but {error}: give a vector, as "
            "by `.astype(str)`."
        ) from None
    return texts


def zeros_and_ones(name: str, values: Any, rows: int | None = None) -> NDArray[np.int64]:
    """A vector of 0 and 1, or of False and True, with ``rows`` values if given."""
    array = per_row.vector(name, values, rows)
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


def check_scales(scales: tuple[float, ...]) -> None:
    if np.ndim(scales) != 1 or not len(scales) or not all(0 < scale < np.inf for scale in scales):
        raise InvalidInputError(
            f"`scales` must be one or more positive multipliers of the edit (1 is the jackknife's "
            f"own), got {scales}."
        )


@dataclass(frozen=True)
class Data:
    """Training and validation rows as the user gave them; labels are not encoded yet."""

    X: Any
    y: NDArray[Any]
    weight: Tensor | None
    X_val: Any
    y_val: NDArray[Any]
    groups: Groups  # of the validation rows
    given_y: NDArray[Any]  # the labels of all given rows, including those split off
    y_as_given: Any  # for the fingerprint of the data
    rows: NDArray[np.int64] | None = None  # which of the given rows are for training; None: all
    notices: tuple[Notice, ...] = ()
    train_groups: Groups | None = None  # of the training rows, if they are known too


def data_of(
    train: tuple[Any, ...],
    validation: tuple[Any, ...],
    split: tuple[float, int],  # the fraction of rows for validation if none are given, a seed
    column: Callable[[Any, Any], Any],  # of X and values: the values of all rows of X
    missing: MissingGroups = "error",  # what becomes of rows without a group
    control: Any = None,  # strata of the validation rows
    *,
    marginals: bool = False,
) -> Data:
    """Check what the user gave: (X, y, weights, groups), and the same of validation rows."""
    (X, *columns), (X_val, *columns_val) = train, validation
    one_of("marginals", marginals, (True, False))
    y, weight, groups = (column(X, values) for values in columns)
    y_val, weight_val, groups_val = (column(X_val, values) for values in columns_val)
    one_of("missing_groups", missing, per_row.MISSING_GROUPS)
    given = {"X_val": X_val, "y_val": y_val, "sensitive_features_val": groups_val}
    absent = [f"`{name}`" for name, value in given.items() if value is None]
    if 0 < len(absent) < len(given):
        raise InvalidInputError(
            "Validation rows need features, labels and groups: pass `X_val`, `y_val` and "
            f"`sensitive_features_val` together; got no {' and no '.join(absent)}."
        )
    if absent and groups is None:
        raise InvalidInputError(
            "Groups are needed on some rows, got none: pass validation rows (`X_val`, "
            "`y_val`, `sensitive_features_val`), or `sensitive_features` for the training rows."
        )
    rows = n_rows(X)
    check_sparse("X", X)
    if absent and control is not None:
        raise InvalidInputError(
            "`control_features_val` must come with validation rows of its own (`X_val`, `y_val` "
            "and `sensitive_features_val`), but there are none: they are split off `X`."
        )
    if control is not None and groups is not None:
        raise InvalidInputError(
            "`control_features_val` must be given without `sensitive_features`, because strata of "
            "training rows are not known: leave the groups of training rows out."
        )
    if absent:
        if weight_val is not None:
            raise InvalidInputError(
                "`sample_weight_val` must come with validation rows of its own (`X_val`, `y_val` "
                "and `sensitive_features_val`), but there are none: they are split off `X`."
            )
        truth = vector("y", y, rows)
        encoded = cells_of(groups, rows, missing=missing, marginals=marginals)
        whole = Data(X, truth, _weights(weight, rows), X, truth, encoded, truth, y)
        return _split_off(whole, *split)
    with speaking_of("X_val"):
        rows_val = n_rows(X_val)
    check_sparse("X_val", X_val)
    Columns.of(X).check("X_val", X_val)
    truth, truth_val = vector("y", y, rows), vector("y_val", y_val, rows_val)
    with speaking_of("sensitive_features_val", instead_of="sensitive_features"):
        encoded = cells_of(groups_val, rows_val, missing=missing, marginals=marginals)
    if control is not None:
        with speaking_of("control_features_val", instead_of="control_features"):
            encoded = within_strata(encoded, column(X_val, control), rows_val)
    with speaking_of("sample_weight_val", instead_of="sample_weight"):
        encoded = encoded.weighted(per_row.relative(per_row.weights(weight_val, rows_val)))
    known = None
    if groups is not None:
        known = _known_groups(groups, rows, encoded.names, missing)
    return Data(
        X,
        truth,
        _weights(weight, rows),
        X_val,
        truth_val,
        encoded,
        truth,
        y,
        notices=_compared((X, truth), (X_val, truth_val)),
        train_groups=known,
    )


def _compared(train: tuple[Any, Any], validation: tuple[Any, Any]) -> tuple[Notice, ...]:
    """Notices if many validation rows are training rows too, or look prepared otherwise."""
    shared = shared_rows("validation", "training", train, validation)
    unlike = unlike_columns("validation", "training", train[0], validation[0])
    found = () if shared is None else (Notice(shared, SeenRowsWarning),)
    return found if unlike is None else (*found, Notice(unlike))


def _known_groups(values: Any, rows: int, names: tuple[str, ...], missing: MissingGroups) -> Groups:
    """The groups of the training rows, with the codes of the validation rows' groups."""
    groups = encode_groups(values, expected_rows=rows, missing=missing)
    unknown = [name for name in groups.names if name not in names]
    if unknown:
        raise InvalidInputError(
            "`sensitive_features` must name groups that the validation rows have too, "
            f"{', '.join(map(repr, names))}; got also {', '.join(map(repr, unknown))}. Add "
            "validation rows of them, merge groups, or leave `sensitive_features` out."
        )
    return groups.coded_as(names)


def _weights(values: Any, rows: int) -> Tensor | None:
    array = per_row.weights(values, rows)
    return None if array is None else torch.as_tensor(array)


def _split_off(data: Data, fraction: float, seed: int) -> Data:
    """A fraction of each group's rows for validation, the others for training."""
    held = held_out("validation_fraction", fraction, data.groups, seed)
    inside, outside = np.flatnonzero(~held), np.flatnonzero(held)
    return replace(
        data,
        X=part_of(data.X, inside),
        y=data.y[inside],
        weight=None if data.weight is None else data.weight[torch.as_tensor(inside)],
        X_val=part_of(data.X, outside),
        y_val=data.y[outside],
        groups=data.groups.take(outside),
        rows=inside,
        notices=(Notice(SEEN_ROWS, SeenRowsWarning),),
    )


def held_out(name: str, value: Any, groups: Groups, seed: int) -> NDArray[np.bool_]:
    """A random fraction of each group's rows, at least one of each; ``name`` is the setting."""
    fraction = number_between(name, value, 0, 1)
    rng = np.random.default_rng(seed)
    held = np.zeros(len(groups), dtype=bool)
    for code in range(groups.slots):
        own = rng.permutation(np.flatnonzero(groups.codes == code))
        held[own[: max(min(1, len(own)), round(fraction * len(own)))]] = True
    if held.all():
        raise InvalidInputError(
            f"`{name}`={fraction:g} would split off all {len(groups)} rows; lower it, or give more "
            "rows."
        )
    return held
