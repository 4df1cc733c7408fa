"""Sensitive attributes as integer group codes; several columns mean their intersection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.errors import InvalidInputError


@dataclass(frozen=True)
class Groups:
    """The group of each row, as a code into ``names``."""

    codes: NDArray[np.int64]  # (N,)
    names: tuple[str, ...]
    absent: tuple[str, ...] = ()  # declared as categories, but without a row

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.bincount(self.codes, minlength=len(self.names))

    def take(self, index: NDArray[np.int64]) -> Groups:
        """The same groups for a part of the rows."""
        return Groups(self.codes[index], self.names, self.absent)


def encode_groups(sensitive_features: Any, *, expected_rows: int | None = None) -> Groups:
    """Number the groups that occur, in sorted order.

    ``sensitive_features`` is anything one- or two-dimensional (list, array, Series, DataFrame,
    tensor, dict of columns); each distinct row of a two-dimensional one is a group.
    """
    if isinstance(sensitive_features, Groups):
        return sensitive_features
    if hasattr(sensitive_features, "detach"):
        sensitive_features = sensitive_features.detach().cpu().numpy()
    if isinstance(sensitive_features, pd.Series):
        frame = sensitive_features.to_frame()
    else:
        values = sensitive_features
        if not isinstance(values, (pd.DataFrame, dict)):
            values = np.asarray(values)
            if values.ndim not in (1, 2):
                raise InvalidInputError(
                    "`sensitive_features` must have one value or one row of values per data "
                    f"point, got an array of {values.ndim} dimensions."
                )
        frame = pd.DataFrame(values)
    if expected_rows is not None and len(frame) != expected_rows:
        raise InvalidInputError(
            f"`sensitive_features` must have one row per data point: expected {expected_rows}, "
            f"got {len(frame)}."
        )
    if len(frame) == 0 or frame.shape[1] == 0:
        raise InvalidInputError("`sensitive_features` must not be empty.")
    missing = frame.isna().any(axis=1)
    if missing.any():
        raise InvalidInputError(
            f"`sensitive_features` has {int(missing.sum())} missing value(s), the first in row "
            f"{int(np.flatnonzero(missing)[0])}: drop those rows, or give them their own group."
        )
    return _codes_of(frame)


def _codes_of(frame: pd.DataFrame) -> Groups:
    codes = np.zeros(len(frame), dtype=np.int64)
    absent: list[str] = []
    labels = [""]
    for column in range(frame.shape[1]):
        if isinstance(frame.dtypes.iloc[column], pd.CategoricalDtype):
            counted = frame.iloc[:, column].value_counts()
            absent += [str(name) for name in counted.index[counted == 0]]
        values = frame.iloc[:, column].astype(object).to_numpy()
        try:
            uniques, inverse = np.unique(values, return_inverse=True)
        except TypeError:  # mixed types have no order of their own
            uniques, inverse = np.unique(values.astype(str), return_inverse=True)
        codes = codes * len(uniques) + inverse
        labels = [f"{left} & {name}" if left else str(name) for left in labels for name in uniques]
    present, codes = np.unique(codes, return_inverse=True)
    return Groups(codes.astype(np.int64), tuple(labels[i] for i in present), tuple(absent))
