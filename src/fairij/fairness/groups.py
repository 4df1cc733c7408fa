"""What users give per row: checked vectors, and sensitive attributes as group codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.errors import InvalidInputError

COLLECTED: dict[str, str] = {  # what is computed only when asked for -> how to ask
    "dask dask_expr": "compute",
    "pyspark": "toPandas",
    "polars.lazyframe": "collect",
}


def check_in_memory(name: str, values: Any) -> None:
    """Raise for tables that are not computed yet."""
    module = type(values).__module__
    for prefixes, method in COLLECTED.items():
        if any(module.startswith(f"{prefix}.") or module == prefix for prefix in prefixes.split()):
            raise InvalidInputError(
                f"`{name}` must be in memory or in a file, but this {type(values).__name__} of "
                f"{module.split('.')[0]} is computed only when asked for: give "
                f"`{name}.{method}()`, or write it to Parquet and give an `ArrowSource` of that."
            )


def unwrapped(values: Any) -> Any:
    """A tensor as an array, a masked array as a list with None for masked values."""
    if isinstance(values, (list, tuple)):
        return [None if value is np.ma.masked else value for value in values]
    if hasattr(values, "detach"):
        try:
            return values.detach().cpu().numpy()
        except (RuntimeError, TypeError) as error:  # a sparse tensor, or one without numbers
            said = str(error).splitlines()[0].rstrip(".")
            raise InvalidInputError(
                f"Labels, weights and groups must be plain tensors, but torch says: {said}."
            ) from None
    return values.tolist() if isinstance(values, np.ma.MaskedArray) else values


def not_whole(name: str, error: UnicodeError) -> InvalidInputError:
    """The error about a text with half of a character (a lone surrogate), or with other bytes."""
    return InvalidInputError(
        f"`{name}` must hold whole characters, but {error}: read the text again as UTF-8."
    )


def check_rows(name: str, values: Any, rows: int | None) -> None:
    """Raise unless there is one value per row; None allows any number."""
    if rows is not None and len(values) != rows:
        raise InvalidInputError(
            f"`{name}` must have one row per data point: expected {rows}, got {len(values)}."
        )


def vector(name: str, values: Any, rows: int | None = None) -> NDArray[Any]:
    """A non-empty vector ``(N,)`` without missing or infinite values; text has dtype object."""
    check_in_memory(name, values)
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
        try:
            array = pd.Series(array.astype(object)).infer_objects().to_numpy()
        except UnicodeEncodeError as error:
            raise not_whole(name, error) from None
    if array.dtype.kind == "c":
        raise InvalidInputError(
            f"`{name}` must hold plain numbers or text, got {array.dtype} numbers: give their real "
            "part, if that is what is meant."
        )
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
    check_rows(name, array, rows)
    return array


def numbers(name: str, values: Any, rows: int | None = None) -> NDArray[np.float64]:
    """A `vector` of numbers."""
    array = vector(name, values)
    try:
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"`{name}` must be numbers, got {array[0]!r}.") from None
    check_rows(name, array, rows)
    return array


def weights(sample_weight: Any, rows: int) -> NDArray[np.float64] | None:
    """Weights ``(N,)`` that are not negative and not all zero; None if there are none."""
    if sample_weight is None:
        return None
    weight = numbers("sample_weight", sample_weight, rows)
    if (weight < 0).any():
        row = int(np.flatnonzero(weight < 0)[0])
        raise InvalidInputError(
            f"`sample_weight` must not be negative: row {row} holds {weight[row]:g}; use 0 to "
            "leave a row out."
        )
    if not weight.any():
        raise InvalidInputError("`sample_weight` must not be all zero; pass None to weigh alike.")
    return weight


def relative(weight: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Weights where only their ratios count: None if all are equal, else the largest near 1.

    They are divided by a power of two, which changes no digit, so that sums stay finite.
    """
    if weight is None or weight.min() == weight.max():
        return None
    return np.ldexp(weight, -int(np.frexp(weight.max())[1]))


@dataclass(frozen=True)
class Groups:
    """The group of each row, as a code into ``names``."""

    codes: NDArray[np.int64]  # (N,)
    names: tuple[str, ...]
    absent: tuple[str, ...] = ()  # categories of the column that no row has

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each group, ``(G,)``."""
        return np.bincount(self.codes, minlength=len(self.names))

    def take(self, index: NDArray[np.int64]) -> Groups:
        """The groups of some rows; codes and names stay the same."""
        return Groups(self.codes[index], self.names, self.absent)

    def followed_by(self, others: Groups) -> Groups:
        """These rows and then others, whose groups have the same names."""
        return Groups(np.concatenate([self.codes, others.codes]), self.names, self.absent)

    def coded_as(self, names: tuple[str, ...]) -> Groups:
        """The same rows with the codes of ``names``, which must have every group that occurs."""
        places = {name: code for code, name in enumerate(names)}
        codes = np.array([places[name] for name in self.names], dtype=np.int64)
        return Groups(codes[self.codes], names)


def encode_groups(sensitive_features: Any, *, expected_rows: int | None = None) -> Groups:
    """Number the groups that occur, in sorted order; of several columns, each distinct row."""
    if isinstance(sensitive_features, Groups):
        check_rows("sensitive_features", sensitive_features, expected_rows)
        return sensitive_features
    frame = as_frame(sensitive_features, expected_rows=expected_rows)
    codes = np.zeros(len(frame), dtype=np.int64)
    names: list[tuple[str, ...]] = [()]
    absent: list[str] = []
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if isinstance(column.dtype, pd.CategoricalDtype):
            counted = column.value_counts()
            absent += [str(name) for name in counted.index[counted == 0]]
            column = column.astype(column.cat.categories.dtype)
        try:
            inverse, values = pd.factorize(column, sort=True)
        except (TypeError, NotImplementedError) as error:  # for example rows of unlike lengths
            raise InvalidInputError(f"`sensitive_features` cannot be grouped: {error}.") from None
        shown = list(map(str, values))
        if len(set(shown)) < len(shown):  # for example 1 and "1"
            shown = list(map(repr, values))
        pairs, codes = np.unique(codes * len(values) + inverse, return_inverse=True)
        names = [(*names[pair // len(values)], shown[pair % len(values)]) for pair in pairs]
    return Groups(codes.astype(np.int64), tuple(map(" & ".join, names)), tuple(absent))


def as_frame(sensitive_features: Any, *, expected_rows: int | None = None) -> pd.DataFrame:
    """The sensitive columns; raises if rows are too few or too many, or values are missing."""
    check_in_memory("sensitive_features", sensitive_features)
    frame = _columns(unwrapped(sensitive_features))
    check_rows("sensitive_features", frame, expected_rows)
    if frame.size == 0:
        raise InvalidInputError("`sensitive_features` must not be empty.")
    try:
        missing = frame.isna().any(axis=1)
    except ArithmeticError:  # a decimal that signals
        raise InvalidInputError("`sensitive_features` must hold plain numbers or text.") from None
    if missing.any():
        raise InvalidInputError(
            f"`sensitive_features` has {int(missing.sum())} missing value(s), the first in row "
            f"{int(np.flatnonzero(missing)[0])}: drop those rows, or give them their own group."
        )
    return frame


def _columns(values: Any) -> pd.DataFrame:
    if isinstance(values, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray)):
        return pd.Series(values).to_frame()
    if not isinstance(values, (pd.DataFrame, dict, np.ndarray)):
        values = np.asarray(unwrapped(values), dtype=object)  # next to text, NaN stays NaN
    if isinstance(values, np.ndarray) and values.ndim not in (1, 2):
        raise InvalidInputError(
            "`sensitive_features` must have one value or one row of values per data point, got "
            f"an array of {values.ndim} dimensions."
        )
    try:
        return pd.DataFrame(values)
    except ValueError as error:  # a dict of columns with different lengths
        raise InvalidInputError(f"`sensitive_features` is not a table: {error}.") from None
