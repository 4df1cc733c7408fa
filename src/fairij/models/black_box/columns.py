"""Columns of a table as numbers of one scale: what a linear correction multiplies.

A column of numbers becomes ``(x - mean) / deviation``, kept within five deviations; a missing value
counts as the mean, and a constant column as zero. Of a column of words each frequent word has a
number of its own, 1 where the row has it. All this is fixed by one table, and kept as plain data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import as_array
from fairij.errors import InvalidInputError

Array = NDArray[np.float64]
EXTREME = 5.0  # deviations from the mean, beyond which a number counts as this
MOST_WORDS, FEWEST_ROWS = 32, 10  # of a column: words with a number of their own, and their rows
MISSING = ""  # a missing word


@dataclass(frozen=True)
class Numbers:
    """A column of numbers."""

    name: str | int  # in a frame, or the place in an array
    mean: float
    scale: float  # 0 if the column is constant

    size = 1

    def encoded(self, values: Any) -> Array:
        column = as_numbers(self.name, values)
        scaled = (column - self.mean) * (1 / self.scale if self.scale > 0 else 0.0)
        kept: Array = np.nan_to_num(np.clip(scaled, -EXTREME, EXTREME), nan=0.0)
        return kept[:, None]


@dataclass(frozen=True)
class Words:
    """A column of words; other words than these have no number."""

    name: str | int
    words: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.words)

    def encoded(self, values: Any) -> Array:
        places = pd.Index(self.words).get_indexer(pd.Index(as_words(values)))
        found = np.zeros((len(places), len(self.words) + 1))
        found[np.arange(len(places)), places] = 1.0  # unknown words: -1, the last
        return found[:, :-1]


Column = Numbers | Words


@dataclass(frozen=True)
class Table:
    """How the columns of a table become numbers, ``(N, F)``."""

    columns: tuple[Column, ...]
    width: int | None  # columns of the array that it was learned from; None: a frame with names

    @property
    def size(self) -> int:
        return sum(column.size for column in self.columns)

    def encoded(self, X: Any) -> Any:
        """The rows as numbers, dense, or sparse if they are."""
        if is_sparse(X):
            return self._sparse(X)
        parts = [column.encoded(values) for column, values in self._each(X)]
        return np.concatenate(parts, 1) if parts else np.zeros((len(X), 0))

    def _each(self, X: Any) -> Any:
        if self.width is None:
            if not isinstance(X, pd.DataFrame):
                raise InvalidInputError(
                    "`X` must be a frame with the columns that the correction was made for, "
                    f"{[c.name for c in self.columns][:6]}; got {type(X).__name__}."
                )
            absent = [column.name for column in self.columns if column.name not in X.columns]
            if absent:
                raise InvalidInputError(
                    f"`X` must have the columns that the correction was made for, but "
                    f"{absent[0]!r} is missing; found {list(X.columns)[:8]}."
                )
            return ((column, X[column.name]) for column in self.columns)
        values = plain(X)
        if values.shape[1] != self.width:
            raise InvalidInputError(
                f"`X` must have the {self.width} columns that the correction was made for; got "
                f"{values.shape[1]}."
            )
        return ((column, values[:, int(column.name)]) for column in self.columns)

    def _sparse(self, X: Any) -> Any:
        numbers = [column for column in self.columns if isinstance(column, Numbers)]
        if X.shape[1] != self.width or len(numbers) < len(self.columns):
            raise InvalidInputError(
                f"`X` must have the {self.width} columns that the correction was made for, all of "
                f"numbers; got a sparse matrix with {X.shape[1]}."
            )
        scales = [1 / column.scale if column.scale > 0 else 0.0 for column in numbers]
        found = (
            X.tocsr().astype(np.float64)[:, [c.name for c in numbers]] @ sp.diags(scales)
        ).tocsr()
        found.data = np.nan_to_num(np.clip(found.data, -EXTREME, EXTREME), nan=0.0)
        return found

    def described(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"width": self.width, "columns": [_described(column) for column in self.columns]}

    @classmethod
    def read(cls, stored: Any) -> Table:
        """From what `described` gave; raises ValueError if that is damaged."""
        width = stored["width"]
        if not (width is None or (isinstance(width, int) and not isinstance(width, bool))):
            raise ValueError("the width of the table must be a whole number or null")
        columns = tuple(_read(one, width) for one in stored["columns"])
        if len({column.name for column in columns}) < len(columns):
            raise ValueError("each column must be there once")
        return cls(columns, width)


def _described(column: Column) -> dict[str, Any]:
    if isinstance(column, Words):
        return {"name": column.name, "words": list(column.words)}
    return {"name": column.name, "mean": column.mean, "scale": column.scale}


def _read(stored: Mapping[str, Any], width: int | None) -> Column:
    name = stored["name"]
    if width is not None and not (type(name) is int and 0 <= name < width):
        raise ValueError(f"the place of a column must be from 0 to {width - 1}, got {name!r}")
    if width is None and not isinstance(name, str):
        raise ValueError(f"the name of a column must be text, got {name!r}")
    if "words" in stored:
        words = tuple(stored["words"])
        if not all(isinstance(word, str) for word in words) or len(set(words)) < len(words):
            raise ValueError(f"the words of {name!r} must be text, each there once")
        return Words(name, words)
    mean, scale = float(stored["mean"]), float(stored["scale"])
    if not (np.isfinite(mean) and np.isfinite(scale) and scale >= 0):
        raise ValueError(f"mean and deviation of {name!r} must be finite, and not negative")
    return Numbers(name, mean, scale)


def table_of(X: Any, asked: Sequence[Any] | None = None) -> Table:
    """Learn how to encode the columns of these rows, all of them or those that are ``asked``."""
    if is_sparse(X):
        squares = X.tocsr().astype(np.float64).power(2).mean(0)
        scales = np.sqrt(np.nan_to_num(np.asarray(squares)).ravel())
        places = _asked(asked, list(range(X.shape[1])))
        return Table(tuple(Numbers(i, 0.0, float(scales[i])) for i in places), X.shape[1])
    if isinstance(X, pd.DataFrame):
        names = _asked(asked, list(X.columns))
        if not all(isinstance(name, str) for name in X.columns):
            raise InvalidInputError(
                "`X` must have columns with names that are text, or be an array; the first is "
                f"{X.columns[0]!r}: rename them, as in X.rename(columns=str)."
            )
        if len(set(X.columns)) < X.shape[1]:
            raise InvalidInputError("`X` must have columns with different names.")
        return Table(tuple(_learned(name, X[name]) for name in names), None)
    values = plain(X)
    places = _asked(asked, list(range(values.shape[1])))
    return Table(tuple(_learned(i, values[:, i]) for i in places), values.shape[1])


def _asked(asked: Sequence[Any] | None, known: list[Any]) -> list[Any]:
    if asked is None:
        return known
    absent = [name for name in asked if name not in known]
    if absent or not len(asked):
        raise InvalidInputError(
            f"`columns` must be some of the columns of `X`, {known[:8]}; got "
            f"{absent[0] if absent else list(asked)!r}."
        )
    return list(asked)


def is_sparse(X: Any) -> bool:
    return sp.issparse(X)


def dense(encoded: Any) -> Array:
    """Encoded rows without the sparse form."""
    found: Array = encoded.toarray() if is_sparse(encoded) else encoded
    return found


def plain(X: Any) -> NDArray[Any]:
    """Rows as an array of two axes."""
    values = X.detach().cpu().numpy() if isinstance(X, Tensor) else as_array(X)
    if values.ndim != 2:
        raise InvalidInputError(
            "`X` must be a table of columns for a correction on them, as a frame or an array of "
            f"two axes; got {type(X).__name__} of shape {values.shape}. Of texts or images give "
            "features as columns, and let `predict_proba` find what it needs."
        )
    return values


def is_numeric(values: Any) -> bool:
    """Whether a column holds numbers, also as text or objects."""
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return False
    if pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype):
        return True
    if dtype.kind != "O":
        return False
    given = [v for v in np.asarray(values, dtype=object) if not _lost(v)]
    return bool(given) and all(isinstance(v, (int, float, np.number, np.bool_)) for v in given)


def _lost(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and value != value)


def _learned(name: Any, values: Any) -> Column:
    if not is_numeric(values):
        common = pd.Series(as_words(values)).value_counts()
        words = common[common >= FEWEST_ROWS].index[:MOST_WORDS]
        return Words(name, tuple(map(str, words)))
    column = as_numbers(name, values)
    known = column[np.isfinite(column)]
    if len(known) == 0 or known.min() == known.max():
        return Numbers(name, 0.0, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = float(known.mean()), float(known.std())
    return Numbers(name, mean, scale) if np.isfinite(scale) else Numbers(name, 0.0, 0.0)


def as_numbers(name: Any, values: Any) -> Array:
    try:
        if isinstance(values, pd.Series):
            return values.to_numpy(dtype=np.float64, na_value=np.nan)
        return (
            np.array([np.nan if _lost(v) else v for v in values], dtype=np.float64)
            if (values.dtype == object)
            else np.asarray(values, dtype=np.float64)
        )
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"`X` must have numbers in the column {name!r}, as the correction was made for; give "
            "it as it was then."
        ) from None


def as_words(values: Any) -> NDArray[Any]:
    given = np.asarray(values, dtype=object)
    return np.array([MISSING if _lost(value) else str(value) for value in given], dtype=object)
