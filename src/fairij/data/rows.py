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
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader

from fairij.data.sources import ArraySource, LoaderSource, Source, row_numbers
from fairij.errors import InvalidInputError
from fairij.fairness.groups import check_in_memory


def processes() -> int:
    """The number of processes that `torchrun` started and that have joined; else 1."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if processes() > 1 else 0


def is_streamed(X: Any) -> bool:
    """Whether `as_source` gives a `Source` for these rows."""
    return isinstance(X, (Source, np.memmap, DataLoader))


def as_source(X: Any) -> Any:
    """Arrays on disk and loaders as a `Source`, Arrow and polars tables as frames of pandas."""
    check_in_memory("X", X)
    if isinstance(X, Tensor):
        check_numbers(X)
    if isinstance(X, np.memmap):
        return ArraySource(X)
    kind = type(X)
    if kind.__name__ == "Table" and kind.__module__.startswith("pyarrow"):
        return X.to_pandas()
    if kind.__name__ == "DataFrame" and kind.__module__.startswith("polars"):
        return pd.DataFrame({name: X[name].to_numpy() for name in X.columns})
    if kind.__name__ == "Column" and kind.__module__.startswith("datasets"):
        return list(X)
    if isinstance(X, Mapping) and hasattr(X, "tocsr"):  # scipy's dictionary of keys
        return X.tocsr()
    if hasattr(kind, "__array__") and not hasattr(X, "shape"):
        return np.asarray(X)
    return LoaderSource(X) if isinstance(X, DataLoader) else X


def named_column(X: Any, values: Any) -> Any:
    """``values``, or the column of that name if ``X`` is a source."""
    is_name = isinstance(X, Source) and isinstance(values, (str, int))
    return X.column(values) if is_name else values


def parts_of(X: Any) -> dict[Any, Any]:
    """The arrays of a table, by key in a dict or by place in a tuple; a single one has place 0."""
    if isinstance(X, Mapping):
        return dict(X)
    return dict(enumerate(X if isinstance(X, tuple) else [X]))


def n_rows(X: Any) -> int:
    """The number of rows of an array, frame, tensor, or tuple or dict of those."""
    lengths = {_length(part) for part in parts_of(X).values()}
    if not lengths:
        raise InvalidInputError("`X` must hold at least one array, got an empty collection.")
    if len(lengths) != 1:
        raise InvalidInputError(
            f"All parts of `X` must have equally many rows, got {sorted(lengths)}."
        )
    return lengths.pop()


def _length(part: Any) -> int:
    check_numbers(part)
    shape = getattr(part, "shape", None)  # sparse matrices have a shape and no len
    if shape:
        return int(shape[0])
    if shape is None and isinstance(part, list):
        return len(part)
    raise InvalidInputError(
        "`X` must be a table with one row per data point: an array, frame, tensor, or a tuple or "
        f"dict of those; got {'a single value' if shape is not None else type(part).__name__!r}."
    )


def check_numbers(part: Any) -> None:
    """Raise for forms of rows whose numbers cannot be read, or whose masks would be lost."""
    if isinstance(part, Tensor):
        plain = part.layout is torch.strided and not (part.is_nested or part.is_quantized)
        if not plain or part.is_meta or (part.is_floating_point() and part.itemsize < 2):
            form = "nested" if part.is_nested else f"{str(part.layout)[6:]} {str(part.dtype)[6:]}"
            raise InvalidInputError(
                f"`X` must be a plain tensor, got a {form} one on {part.device}: give a dense "
                "tensor of float32, as by `.to_dense()` or `.float()`."
            )
    elif hasattr(part, "tocsr") and getattr(part.dtype, "kind", "") == "O":
        raise InvalidInputError(
            "`X` must be a sparse matrix of numbers, got entries of any kind (object): convert "
            "them, as in `X.astype(float)`."
        )
    elif isinstance(part, list):
        for row in part:
            _check_unmasked(row, "X")


def _check_unmasked(rows: Any, name: str) -> None:
    if isinstance(rows, np.ma.MaskedArray) and np.ma.is_masked(rows):
        raise InvalidInputError(
            f"`{name}` must not have masked values; fill them first, as in `{name}.filled(...)`."
        )


def take_rows(X: Any, index: Any, *, in_dict: bool = False) -> Any:
    """Some rows of ``X`` in the same form; rows of a source are read into memory."""
    if isinstance(X, Source):
        return X.take(index)
    if isinstance(X, Mapping):
        return {name: take_rows(part, index, in_dict=True) for name, part in X.items()}
    if isinstance(X, tuple):
        return tuple(take_rows(part, index) for part in X)
    if isinstance(X, Tensor):
        return X[torch.as_tensor(index, device=X.device)]
    if isinstance(X, list) and (in_dict or isinstance(X[0] if X else None, str)):
        # texts, or rows of tokens, which may have different lengths
        return [X[i] for i in row_numbers(index).tolist()]
    places = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    if hasattr(X, "tocsr"):
        return X.tocsr()[places]
    return X.iloc[places] if hasattr(X, "iloc") else as_array(X)[places]


def as_array(X: Any, name: str = "X") -> np.ndarray[Any, Any]:
    try:
        return np.asarray(X)
    except ValueError:
        raise InvalidInputError(
            f"`{name}` must have equally many values in every row, but its rows have different "
            "lengths: give an array or a frame."
        ) from None


def spread(rows: int, most: int) -> Tensor:
    """The numbers of at most ``most`` rows from all over a table, the first and last included."""
    if rows <= most:
        return torch.arange(rows)
    return torch.linspace(0, rows - 1, most, dtype=torch.float64).round().long()


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

    @property
    def size(self) -> str:
        return " x ".join(map(str, self.width))

    def check(self, name: str, X: Any) -> None:
        """Raise unless ``X`` has as many columns, in the same order if both have names."""
        found = Columns.of(X)
        if self.width and found.width and self.width != found.width:
            raise InvalidInputError(
                f"`{name}` must have as many columns as the training rows: expected "
                f"{self.size}, got {found.size}; prepare both in the same way."
            )
        if self.names and found.names and self.names != found.names:
            place = next(i for i, column in enumerate(self.names) if column != found.names[i])
            raise InvalidInputError(
                f"`{name}` must have the columns of the training rows in the same order: expected "
                f"{self.names[place]!r} at place {place}, got {found.names[place]!r}; reorder "
                f"them, as in `{name}[X_train.columns]`."
            )


def to_tensors(X: Any, *, dtype: torch.dtype, device: torch.device, name: str = "X") -> Any:
    """``X`` as tensors on a device; real numbers have this ``dtype`` and must be finite."""
    if isinstance(X, (Mapping, tuple)):
        made = {
            key: to_tensors(part, dtype=dtype, device=device, name=f"{name}[{key!r}]")
            for key, part in parts_of(X).items()
        }
        return made if isinstance(X, Mapping) else tuple(made.values())
    if isinstance(X, Tensor):
        tensor = X.detach()
        if tensor.is_complex():
            raise InvalidInputError(
                f"`{name}` must be real numbers, got {tensor.dtype}: give real and imaginary parts "
                "as separate columns."
            )
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
        f"`{name}` must be finite, without NaN or infinity: {where} holds {value}{beyond}; there "
        f"are {int(bad.sum())} such value(s) in all: impute them, or drop those rows."
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
    _check_unmasked(X, name)
    array = as_array(X, name)
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


def remember_columns(estimator: Any, X: Any) -> None:
    """Set ``n_features_in_`` and ``feature_names_in_``, as scikit-learn has them."""
    columns = Columns.of(X)
    for name, value in (
        ("n_features_in_", columns.width[0] if len(columns.width) == 1 else None),
        ("feature_names_in_", np.array(columns.names, object) if columns.names else None),
    ):
        if value is not None:
            setattr(estimator, name, value)
        elif hasattr(estimator, name):  # from an earlier fit
            delattr(estimator, name)
