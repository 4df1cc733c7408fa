"""Sparse matrices: their indices are checked, because compiled code trusts them."""

from __future__ import annotations

from typing import Any

from fairij.data.rows import parts_of
from fairij.errors import InvalidInputError


def check_sparse(name: str, X: Any) -> None:
    """Raise unless the entries of all sparse parts of a table lie inside it.

    With one index outside, reading may give wrong values, or end the process.
    """
    for key, part in parts_of(X).items():
        if hasattr(part, "tocsr"):
            where = name if part is X else f"{name}[{key!r}]"
            try:
                _check(part)
            except (ValueError, IndexError, TypeError) as error:
                raise InvalidInputError(
                    f"`{where}` must be a sparse matrix whose entries lie inside it, but it is "
                    f"damaged: {str(error).rstrip('.')}. Make it again from its source.",
                    parameter=name,
                ) from None


def _check(X: Any) -> None:
    if X.format == "coo":
        for places, size in zip((X.row, X.col), X.shape, strict=True):
            if len(places) != len(X.data):
                raise ValueError("there must be a row and a column for each value")
            if len(places) and not (places.min() >= 0 and places.max() < size):
                raise ValueError(f"indices must be from 0 to {size - 1}")
    else:  # those without this check hold lists, which are made into one that has it
        whole = X if hasattr(X, "check_format") else X.tocsr()
        whole.check_format(full_check=True)
