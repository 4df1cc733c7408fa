"""Tables of rows in any form: count the rows, take some, check them, make tensors of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fairij.data.sources import Source
from fairij.errors import InvalidInputError


def n_rows(X: Any) -> int:
    """The number of rows of an array, frame, tensor, or tuple or dict of those."""
    parts = list(X.values()) if isinstance(X, Mapping) else X if isinstance(X, tuple) else [X]
    if not parts:
        raise InvalidInputError("`X` must hold at least one array, got an empty collection.")
    lengths = {_length(part) for part in parts}
    if len(lengths) != 1:
        raise InvalidInputError(
            f"All parts of `X` must have equally many rows, got {sorted(lengths)}."
        )
    return lengths.pop()


def _length(part: Any) -> int:
    shape = getattr(part, "shape", None)  # sparse matrices have a shape and no len
    if shape:
        return int(shape[0])
    if shape is None and isinstance(part, list):
        return len(part)
    raise InvalidInputError(
        "`X` must be a table with one row per data point: an array, frame, tensor, or a tuple or "
        f"dict of those; got {'a single value' if shape is not None else type(part).__name__!r}."
    )


def take_rows(X: Any, index: Any) -> Any:
    """Some rows of ``X`` in the same form; rows of a source are read into memory."""
    if isinstance(X, Source):
        return X.take(index)
    if isinstance(X, Mapping):
        return {
            name: _listed(part, index) if isinstance(part, list) else take_rows(part, index)
            for name, part in X.items()
        }
    if isinstance(X, tuple):
        return tuple(take_rows(part, index) for part in X)
    if isinstance(X, Tensor):
        return X[torch.as_tensor(index, device=X.device)]
    if isinstance(X, list) and X and isinstance(X[0], str):
        return _listed(X, index)
    index = _places(index)
    if hasattr(X, "tocsr"):
        return X.tocsr()[index]
    return X.iloc[index] if hasattr(X, "iloc") else _array(X)[index]


def _places(index: Any) -> np.ndarray[Any, Any]:
    return index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)


def _listed(rows: list[Any], index: Any) -> list[Any]:
    """Some texts, or some rows of tokens, which may have different lengths."""
    places = _places(index)
    return [rows[i] for i in (np.flatnonzero(places) if places.dtype == bool else places).tolist()]


def _array(X: Any, name: str = "X") -> np.ndarray[Any, Any]:
    try:
        return np.asarray(X)
    except ValueError:
        raise InvalidInputError(
            f"`{name}` must have equally many values in every row, but its rows have different "
            "lengths."
        ) from None


def part_of(X: Any, index: Any) -> Any:
    """Some rows of ``X``, ascending; rows of a source are not read."""
    return X.subset(np.asarray(index)) if isinstance(X, Source) else take_rows(X, index)


@dataclass(frozen=True)
class Columns:
    """The shape of a table's rows, and the names of its columns if it has any."""

    width: tuple[int, ...]  # () if rows have no one shape
    names: tuple[Any, ...] | None

    @classmethod
    def of(cls, X: Any) -> Columns:
        names = getattr(X, "columns", None)
        shape = tuple(getattr(X, "shape", ()))
        return cls(shape[1:], None if names is None else tuple(names))

    def check(self, name: str, X: Any) -> None:
        """Raise unless ``X`` has as many columns, in the same order if both have names."""
        found = Columns.of(X)
        if self.width and found.width and self.width != found.width:
            raise InvalidInputError(
                f"`{name}` must have as many columns as the training rows: expected "
                f"{_size(self.width)}, got {_size(found.width)}; prepare both in the same way."
            )
        if self.names and found.names and self.names != found.names:
            place = next(i for i, column in enumerate(self.names) if column != found.names[i])
            raise InvalidInputError(
                f"`{name}` must have the columns of the training rows in the same order: expected "
                f"{self.names[place]!r} at place {place}, got {found.names[place]!r}; reorder "
                f"them, as in `{name}[X_train.columns]`."
            )


def _size(width: tuple[int, ...]) -> str:
    return " x ".join(str(n) for n in width)


def to_tensors(X: Any, *, dtype: torch.dtype, device: torch.device, name: str = "X") -> Any:
    """``X`` as tensors on a device; real numbers have this ``dtype`` and must be finite."""
    if isinstance(X, Mapping):
        return {
            key: to_tensors(part, dtype=dtype, device=device, name=f"{name}[{key!r}]")
            for key, part in X.items()
        }
    if isinstance(X, tuple):
        return tuple(
            to_tensors(part, dtype=dtype, device=device, name=f"{name}[{i}]")
            for i, part in enumerate(X)
        )
    if isinstance(X, Tensor):
        tensor = X.detach()
    else:
        array = _numeric(X, name)
        # torch takes neither a foreign byte order nor negative strides
        array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    if tensor.is_floating_point():
        converted = tensor.to(device=device, dtype=dtype)
        check_finite(converted, tensor, getattr(X, "columns", None), name)
        return converted
    # integers stay integers: in a collection they may be token or category ids
    return tensor.to(device=device)


def check_finite(tensor: Tensor, original: Tensor, columns: Any = None, name: str = "X") -> None:
    """Raise on NaN or infinity; the message has the first place and its value in ``original``."""
    if bool(torch.isfinite(tensor.sum())):  # one pass; a NaN or infinity cannot vanish from a sum
        return
    bad = ~torch.isfinite(tensor)
    if not bool(bad.any()):
        return  # the sum overflowed, the values are finite
    place = torch.nonzero(bad)[0].tolist()
    where = f"row {place[0]}"
    if len(place) > 1:
        where += f", column {place[1] if columns is None else repr(columns[place[1]])}"
    value = original[tuple(place)].item()
    beyond = f" (more than {str(tensor.dtype)[6:]} can hold)" if math.isfinite(value) else ""
    raise InvalidInputError(
        f"`{name}` must be finite: {where} holds {value}{beyond}; there are {int(bad.sum())} such "
        "value(s) in all: impute them, or drop those rows."
    )


@contextmanager
def speaking_of(argument: str, *, instead_of: str = "X") -> Iterator[None]:
    """Errors raised inside name ``argument`` in place of ``instead_of``."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace(f"`{instead_of}", f"`{argument}")) from None


def _numeric(X: Any, name: str) -> np.ndarray[Any, Any]:
    if hasattr(X, "toarray"):
        X = X.toarray()
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise InvalidInputError(
            f"`{name}` must not have masked values; fill them first, as in `{name}.filled(...)`."
        )
    array = _array(X, name)
    if array.dtype.kind == "c":
        raise InvalidInputError(
            f"`{name}` must be real numbers, got {array.dtype}: give real and imaginary parts as "
            "separate columns."
        )
    if array.dtype.kind == "f":
        return array if array.itemsize <= 8 else array.astype(np.float64)
    if array.dtype.kind not in "iub":
        try:
            array = np.where(pd.isna(array), np.nan, array).astype(np.float64)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise InvalidInputError(
                f"`{name}` must be numeric for this model: encode text and categories first, as "
                f"with scikit-learn's OneHotEncoder ({error})."
            ) from None
    return array
