"""Rows that are in two tables which must hold different rows, such as training and validation.

Rows are compared by hashes of their features and labels. In coarse tables different people have the
same row, so what counts is how many more rows are shared than a table shares with itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.sources import Source

MOST_CELLS = 20_000_000  # rows times columns that are hashed
FEWEST = 20  # shared rows, and
LEAST = 0.05  # the share of rows that are there twice beyond what is usual, to say so
USUAL = 0.9  # of rows with a twin in their own table: of more, nothing can be said
SURE = 5.0  # standard errors of independent rows: twins come in clumps, so less would be chance


@dataclass(frozen=True)
class Overlap:
    """How many rows of the second table are in the first one too."""

    rows: int
    of: int
    is_same: bool  # both tables are the same, row by row


def shared_rows(
    kind: str, other: str, first: tuple[Any, Any], second: tuple[Any, Any]
) -> str | None:
    """A sentence if many rows of the second table, of this kind, are in the first one too."""
    found = overlap(first, second)
    if found is None:
        return None
    what = f"the very rows of the {other} table" if found.is_same else f"{other} rows too"
    return (
        f"Of {found.of:,} {kind} rows, {found.rows:,} are {what}, with the same label. Figures on "
        f"rows that the model or the edit was made from mislead: give other {kind} rows."
    )


def overlap(first: tuple[Any, Any], second: tuple[Any, Any]) -> Overlap | None:
    """Rows ``(X, y)`` of the second table in the first; None if there are none to speak of.

    Tables that are streamed, very large, or of no plain form are not compared.
    """
    if first[0] is second[0]:
        return Overlap(len(second[1]), len(second[1]), True)
    one, other = (_hashes(*table) for table in (first, second))
    if one is None or other is None or not len(one) or not len(other):
        return None
    if len(one) == len(other) and bool((one == other).all()):
        return Overlap(len(other), len(other), True)
    shared = int(np.isin(other, one).sum())
    twins = pd.Series(one).duplicated(keep=False).mean()
    beyond = shared / len(other) - twins
    by_chance = SURE * (twins * (1 - twins) * (1 / len(one) + 1 / len(other))) ** 0.5
    if shared < FEWEST or twins > USUAL or beyond < max(LEAST * (1 - twins), by_chance):
        return None
    return Overlap(shared, len(other), False)


def _hashes(X: Any, y: Any) -> NDArray[np.uint64] | None:
    """One number for each row; None if the rows are not compared."""
    columns = _columns(X)
    if columns is None:
        return None
    rows = len(y)
    if rows * (len(columns) + 1) > MOST_CELLS or any(len(column) != rows for column in columns):
        return None
    found = np.zeros(rows, dtype=np.uint64)
    try:
        for column in (*columns, np.asarray(y)):
            values = pd.util.hash_array(_plain(column), categorize=False)
            found = found * np.uint64(1_000_003) + values
    except (TypeError, ValueError):  # lists and the like
        return None
    return found


def _plain(column: Any) -> NDArray[Any]:
    """Numbers of one kind, so that 1 and 1.0 are equal; all else as text."""
    array = np.asarray(column)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64) + 0.0  # -0.0 becomes 0.0
    return np.array([str(value) for value in array.tolist()], dtype=object)


def _columns(X: Any) -> list[Any] | None:
    if isinstance(X, (Source, Mapping, tuple)) or hasattr(X, "toarray"):
        return None
    if isinstance(X, pd.DataFrame):
        return [X.iloc[:, place].to_numpy() for place in range(X.shape[1])]
    if isinstance(X, Tensor):
        if X.is_complex() or X.is_sparse or X.is_quantized:
            return None  # refused elsewhere
        X = X.detach().cpu().float().numpy()
    if isinstance(X, list) and X and isinstance(X[0], str):
        return [np.array(X, dtype=object)]
    try:
        array = np.asarray(X)
    except ValueError:
        return None
    if array.ndim == 1:
        return [array]
    return list(array.T) if array.ndim == 2 else None
