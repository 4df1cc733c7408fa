"""Any table of rows as numbers of one scale, for a small model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import is_streamed, processes
from fairij.errors import InvalidInputError

Array = NDArray[np.float64]
MOST_WORDS = 50  # of a column of words; rarer ones count as one
LARGEST = 1e100  # whose square is a number
EXTREME = 10.0  # deviations, beyond which numbers count as that


class NoChancesError(InvalidInputError):
    """Chances cannot be had for these rows, this constraint or this loss."""


def encoded(tables: list[Any]) -> Any:
    """The rows of all tables as numbers of one scale, ``(N, F)``, dense or sparse."""
    if processes() > 1 or any(is_streamed(X) for X in tables):
        raise NoChancesError(
            "`search` by chances of groups needs rows in the memory of one process, but these are "
            "streamed or shared by several. Use `chances=False`."
        )
    if all(sp.issparse(X) for X in tables):
        stacked = sp.vstack(tables).tocsr().astype(np.float64)
        squares = np.asarray(stacked.multiply(stacked).mean(0)).ravel()
        return stacked @ sp.diags(1 / np.sqrt(np.where(squares > 0, squares, 1)))
    if all(_is_numbers(X) for X in tables):
        return _numbers(np.concatenate([np.asarray(X, np.float64) for X in tables]))
    frames = [_frame(X) for X in tables]
    frame = pd.concat(frames, ignore_index=True)
    return np.concatenate([_encoded(frame.iloc[:, place]) for place in range(frame.shape[1])], 1)


def _frame(X: Any) -> pd.DataFrame:
    """A table as a frame; texts and collections of arrays have no columns."""
    if isinstance(X, pd.DataFrame):
        return X.set_axis(range(X.shape[1]), axis=1)
    values = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
    if isinstance(values, list) and values and not isinstance(values[0], str):
        values = np.asarray(values)
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.shape[1] == 0:
        raise NoChancesError(
            "`search` by chances of groups needs rows that are a table of columns, as in an array "
            f"or frame; got {type(X).__name__}. Use `chances=False`."
        )
    return pd.DataFrame(values)


def _encoded(column: pd.Series[Any]) -> Array:
    """A column as numbers with mean 0 and deviation 1, and an indicator of missing values."""
    if not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)):
        numbers = pd.to_numeric(column, errors="coerce") if column.dtype == object else None
        if numbers is None or bool((numbers.isna() & ~column.isna()).any()):
            return standardised(_indicators(column))
        column = numbers
    return _numbers(column.to_numpy(dtype=np.float64, na_value=np.nan)[:, None])


def _is_numbers(X: Any) -> bool:
    """Whether this is a plain array of numbers, whose columns are alike."""
    return isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] > 0 and X.dtype.kind in "fiub"


def _numbers(values: Array) -> Array:
    """Columns of numbers on one scale, and an indicator for each that has missing ones."""
    missing = ~np.isfinite(values)
    known = ~missing.all(0)
    values, missing = np.clip(values[:, known], -LARGEST, LARGEST), missing[:, known]
    some = missing.any(0)
    if some.any():
        values = np.where(missing, np.mean(values, 0, where=~missing), values)
    return standardised(np.concatenate([values, missing[:, some].astype(np.float64)], 1))


def _indicators(column: pd.Series[Any]) -> Array:
    """One column for each of the most frequent words; missing is a word."""
    words = column.astype(object).where(column.notna(), "").map(str)
    common = words.value_counts().index[:MOST_WORDS]
    places = common.get_indexer(pd.Index(words))
    found = np.zeros((len(words), len(common) + 1))
    found[np.arange(len(words)), places] = 1  # -1 is the last, of all rarer ones
    return found


def standardised(values: Array) -> Array:
    deviation = values.std(0)
    kept = values[:, deviation > 0]
    scaled = (kept - kept.mean(0)) / deviation[deviation > 0]
    return np.clip(scaled, -EXTREME, EXTREME)
