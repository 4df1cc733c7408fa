"""What a user gives for texts, checked: texts themselves, zeros and ones, numbers of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.fairness import arrays

TEXT = "text"  # the column that is taken where there are several


def named_columns(source: Any) -> list[Any] | None:
    """The names of the columns of a mapping, frame or dataset; None of anything else."""
    if (found := getattr(source, "column_names", None)) is not None:
        if isinstance(found, Mapping):
            raise InvalidInputError(
                f"The dataset must be one split, got the splits {list(found)}: choose one, as in "
                f"`dataset[{next(iter(found), 'train')!r}]`."
            )
        return list(found)
    if isinstance(source, Mapping):
        return list(source)
    return list(source.columns) if hasattr(source, "columns") else None


def one_column(name: str, source: Any) -> list[Any]:
    """The values of a list or column, or of the only column with text of a table."""
    names = named_columns(source)
    if names is not None:
        source = source[_text_column(name, source, names)]
    if isinstance(source, (str, bytes)) or not hasattr(source, "__iter__"):
        found = "a single text" if isinstance(source, str) else type(source).__name__
        raise InvalidInputError(f"`{name}` must be a list or column of texts, got {found}.")
    return list(source)


def _text_column(name: str, source: Any, names: list[Any]) -> Any:
    if TEXT in names:
        return TEXT
    texts = [column for column in names if isinstance(next(iter(source[column]), None), str)]
    if len(texts) != 1:
        raise InvalidInputError(
            f"`{name}` must have one column with text, or one that is called {TEXT!r}; found "
            f"{texts} among the columns {names}: give the column itself."
        )
    return texts[0]


def texts_of(name: str, source: Any) -> list[str]:
    """Texts, at least one and none missing, from a list or column, or a table with such a one."""
    texts = one_column(name, source)
    if not texts:
        raise InvalidInputError(f"`{name}` must hold at least one text, got none.")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            found = repr(text) if np.isscalar(text) or text is None else type(text).__name__
            raise InvalidInputError(
                f"`{name}` must be texts, but row {row} holds {found}: drop such rows, or make "
                "texts of them."
            )
    return texts


def zeros_and_ones(name: str, values: Any, rows: int | None = None) -> NDArray[np.int64]:
    """A vector of 0 and 1, or of False and True; with ``rows``, as long as that."""
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
    """How values of another kind become 0 and 1."""
    if array.dtype.kind == "f" and (array != array.round()).any():
        cut = "0.5" if array.min() >= 0 and array.max() <= 1 else "0"
        return f"say from where on it is 1, as in `{name} >= {cut}`."
    one = array.max() if array.dtype.kind in "iuf" else repr(array[0])
    return f"say which are 1, as in `{name} == {one}`."


def row_numbers(name: str, values: Any, rows: int) -> NDArray[np.int64]:
    """Numbers of rows of a table, as given or by a mask of True and False."""
    array = np.asarray(arrays.unwrapped(values))
    if array.ndim == 1 and array.dtype.kind == "b":
        arrays.check_rows(name, array, rows)
        array = np.flatnonzero(array)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"`{name}` must be numbers of rows, or True and False for every row; got "
            f"{array.dtype} of shape {array.shape}."
        )
    if len(array) == 0:
        raise InvalidInputError(f"`{name}` must name at least one text, got none.")
    bad = array[(array < 0) | (array >= rows)]
    if len(bad):
        raise InvalidInputError(
            f"`{name}` must be from 0 to {rows - 1}, as there are {rows} texts; got {bad[0]}: give "
            "the texts that the rows were counted in."
        )
    return array.astype(np.int64)
