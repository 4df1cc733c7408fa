"""Checks of settings, and of vectors with one value per row.

Every message names the requirement, the value found and the cure.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.errors import InvalidInputError
from fairij.fairness import arrays


def one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """A setting that is one of a few values."""
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
        slip = f", which is a class: write {value.__name__}()" if isinstance(value, type) else ""
        raise InvalidInputError(f"`{name}` must be {allowed}; got {value!r}{slip}.")
    return value


def looked_up(
    name: str, asked: Any, registry: Mapping[str, Any], protocol: type, defaults: type, example: str
) -> Any:
    """The entry of a registry by name, or the user's object with every member of the protocol."""
    value = asked
    if isinstance(asked, str) and asked in registry:
        value = registry[asked]() if isinstance(registry[asked], type) else registry[asked]
    missing = [member for member in members(protocol) if not hasattr(value, member)]
    if isinstance(value, type) or any(not hasattr(defaults, member) for member in missing):
        slip = f", which is a class: write {value.__name__}()" if isinstance(value, type) else ""
        raise InvalidInputError(
            f"`{name}` must be one of {sorted(registry)} or {example}; got {value!r}{slip}."
        )
    if missing:
        raise InvalidInputError(
            f"`{name}` must have every member of {protocol.__name__}, but {value!r} has no "
            f"{', '.join(missing)}: inherit {defaults.__module__}.{defaults.__name__}."
        )
    return value


def members(protocol: type) -> list[str]:
    """The names that a protocol states."""
    stated = {**vars(protocol), **inspect.get_annotations(protocol)}
    return sorted(name for name in stated if not name.startswith("_"))


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
    """One weight per row, none negative and some positive; None for equal weights."""
    array = arrays.weights(values, rows)
    return None if array is None else torch.as_tensor(array)


def check_scales(scales: tuple[float, ...]) -> None:
    if np.ndim(scales) != 1 or not len(scales) or not all(0 < scale < np.inf for scale in scales):
        raise InvalidInputError(
            f"`scales` must be one or more positive multipliers of the edit (1 is the jackknife's "
            f"own), got {scales}."
        )
