"""Checked numpy arrays from what users have: lists, tensors, Series, masked arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.errors import InvalidInputError


def unwrapped(values: Any) -> Any:
    """A tensor as an array, a masked array as a list with None for masked values."""
    if hasattr(values, "detach"):
        return values.detach().cpu().numpy()
    if isinstance(values, np.ma.MaskedArray):
        return values.tolist()
    return values


def vector(name: str, values: Any) -> NDArray[Any]:
    """A non-empty vector ``(N,)`` without missing or infinite values; text has dtype object."""
    values = unwrapped(values)
    # as objects: next to text, numpy would turn NaN into the text "nan" and 1 into "1"
    array = np.asarray(values, dtype=object if isinstance(values, (list, tuple)) else None)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or len(array) == 0:
        raise InvalidInputError(
            f"`{name}` must be a non-empty vector, got an array of shape {array.shape}."
        )
    if array.dtype.kind in "OSU":
        array = pd.Series(array.astype(object)).infer_objects().to_numpy()
    try:
        bad = ~np.isfinite(array) if array.dtype.kind == "f" else pd.isna(array)
    except ArithmeticError:  # a decimal that signals
        raise InvalidInputError(f"`{name}` must hold plain numbers or text.") from None
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidInputError(
            f"`{name}` must not hold missing or infinite values, but row {row} is {array[row]}: "
            "drop such rows, or fill them."
        )
    return array


def numbers(name: str, values: Any) -> NDArray[np.float64]:
    """A `vector` of numbers."""
    array = vector(name, values)
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"`{name}` must be numbers, got {array[0]!r}.") from None


def weights(sample_weight: Any, rows: int) -> NDArray[np.float64] | None:
    """Weights ``(N,)`` that are not negative and not all zero; None if there are none."""
    if sample_weight is None:
        return None
    weight = numbers("sample_weight", sample_weight)
    check_rows("sample_weight", weight, rows)
    if (weight < 0).any():
        row = int(np.flatnonzero(weight < 0)[0])
        raise InvalidInputError(
            f"`sample_weight` must not be negative: row {row} holds {weight[row]:g}; use 0 to "
            "leave a row out."
        )
    if weight.sum() == 0:
        raise InvalidInputError("`sample_weight` must not be all zero; pass None to weigh alike.")
    return weight


def check_rows(name: str, values: Any, rows: int) -> None:
    """Raise unless there is one value per row."""
    if len(values) != rows:
        raise InvalidInputError(
            f"`{name}` must have one row per data point: expected {rows}, got {len(values)}."
        )
