"""Columns that lie elsewhere in one table than in another, as if they were prepared differently.

A model gets numbers, and cannot tell raw ones from scaled ones. So the middle of each column is
compared: two ranges, of which the wider leaves out the ends and the narrower rare values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import n_rows, spread, take_rows
from fairij.data.sources import Source

ROWS, MOST_CELLS = 2000, 4_000_000  # looked at, at most
FEWEST = 50  # rows of each table
WIDER = 10.0  # times as wide is another scale
APART = 2.0  # times the wider range between two ranges is another place
RANGES = (0.05, 0.95), (0.2, 0.8)
NAMED = 3


def unlike_columns(kind: str, other: str, first: Any, second: Any) -> str | None:
    """A sentence if columns of the second table, of this kind, lie elsewhere than in the first."""
    one, two = (_numbers(X) for X in (first, second))
    if one is None or two is None or one.shape[1] != two.shape[1]:
        return None
    names = getattr(second, "columns", None)
    told = [
        f"{_name(names, place)} has no values in the {where} rows"
        for where, empty, full in ((kind, two, one), (other, one, two))
        for place in _empty(empty, full)
    ]
    told += [
        f"{_name(names, place)} is mostly between {_range(two[:, place])} in the {kind} rows, and "
        f"between {_range(one[:, place])} in the {other} rows"
        for place in _unlike(one, two)
    ]
    if not told:
        return None
    more = f" (and {len(told) - NAMED} more)" if len(told) > NAMED else ""
    return (
        f"Columns of the {kind} rows are not like those of the {other} rows: "
        f"{'; '.join(told[:NAMED])}{more}. A model cannot tell raw numbers from scaled ones, so "
        "its predictions there may mean nothing. Prepare both tables in the same way."
    )


def _empty(table: NDArray[np.float64], full: NDArray[np.float64]) -> list[int]:
    """The places of columns of numbers that have values in the other table alone."""
    found = np.isnan(table).all(axis=0) & np.isfinite(full).any(axis=0)
    return [int(place) for place in np.flatnonzero(found)]


def _unlike(one: NDArray[np.float64], two: NDArray[np.float64]) -> list[int]:
    """The places of columns whose both ranges have another scale, or lie far apart."""
    seen = [np.isfinite(X).sum(axis=0) >= FEWEST for X in (one, two)]
    places = np.flatnonzero(seen[0] & seen[1])
    if not len(places):
        return []
    found = np.ones(len(places), dtype=bool)
    for ends in RANGES:
        (low, high), (low_2, high_2) = (
            np.nanquantile(X[:, places], ends, axis=0) for X in (one, two)
        )
        width, width_2 = high - low, high_2 - low_2
        wide, narrow = np.maximum(width, width_2), np.minimum(width, width_2)
        between = np.maximum(low, low_2) - np.minimum(high, high_2)
        found &= (narrow > 0) & ((wide > WIDER * narrow) | (between > APART * wide))
    return [int(place) for place in places[found]]


def _numbers(X: Any) -> NDArray[np.float64] | None:
    """Some rows of a table of numbers, other columns as infinite; None if it is no such table."""
    if isinstance(X, Source) or len(getattr(X, "shape", ())) != 2 or hasattr(X, "toarray"):
        return None
    if isinstance(X, Tensor) and (X.is_complex() or X.is_sparse or X.is_quantized):
        return None  # refused elsewhere
    if n_rows(X) < FEWEST or min(n_rows(X), ROWS) * X.shape[1] > MOST_CELLS:
        return None
    some = take_rows(X, spread(n_rows(X), ROWS))
    if isinstance(some, pd.DataFrame):
        columns = [_column(some.iloc[:, place]) for place in range(some.shape[1])]
        return np.column_stack(columns) if columns else None
    values = some.detach().cpu().float().numpy() if isinstance(some, Tensor) else np.asarray(some)
    return _finite(values.astype(np.float64)) if values.dtype.kind in "iuf" else None


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(values), values, np.nan)


def _column(column: pd.Series[Any]) -> NDArray[np.float64]:
    if column.dtype.kind in "iuf":
        return _finite(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.full(len(column), np.inf)


def _name(names: Any, place: int) -> str:
    return f"column {place}" if names is None else f"{names[place]!r}"


def _range(column: NDArray[np.float64]) -> str:
    low, high = np.nanquantile(column, RANGES[0])
    return f"{low:.3g} and {high:.3g}"
