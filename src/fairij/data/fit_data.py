"""The rows of a fit: training and validation rows with labels, weights and groups, checked once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.checks import number_between, vector, weights
from fairij.data.rows import Columns, n_rows, part_of, speaking_of
from fairij.errors import InvalidInputError, Notice, SeenRowsWarning
from fairij.fairness.groups import Groups, encode_groups

SEEN_ROWS = (
    "The validation rows are split off `X`. If the model was trained on them too, results measured "
    "on them are too good: give rows that it was not trained on as `X_val`, `y_val` and "
    "`sensitive_features_val`."
)


@dataclass(frozen=True)
class Data:
    """Training and validation rows as the user gave them; labels are not encoded yet."""

    X: Any
    y: NDArray[Any]
    weight: Tensor | None
    X_val: Any
    y_val: NDArray[Any]
    groups: Groups  # of the validation rows
    rows: NDArray[np.int64] | None = None  # which of the given rows are for training; None: all
    every_y: NDArray[Any] | None = None  # the labels of all given rows, if ``rows`` is not None
    notices: tuple[Notice, ...] = ()
    y_as_given: Any = None  # for the fingerprint of the data

    @property
    def given_y(self) -> NDArray[Any]:
        """The labels of all given rows, including those split off."""
        return self.y if self.every_y is None else self.every_y

    @classmethod
    def given(
        cls, X: Any, y: Any, weight: Any, X_val: Any, y_val: Any, sensitive_features_val: Any
    ) -> Data:
        """Training rows and separate validation rows."""
        parts = {"X_val": X_val, "y_val": y_val, "sensitive_features_val": sensitive_features_val}
        missing = [f"`{name}`" for name, value in parts.items() if value is None]
        if missing:
            raise InvalidInputError(
                "Validation rows need features, labels and groups: pass `X_val`, `y_val` and "
                f"`sensitive_features_val` together; got no {' and no '.join(missing)}."
            )
        rows = n_rows(X)
        with speaking_of("X_val"):
            rows_val = n_rows(X_val)
        Columns.of(X).check("X_val", X_val)
        truth, truth_val = vector("y", y, rows), vector("y_val", y_val, rows_val)
        with speaking_of("sensitive_features_val", instead_of="sensitive_features"):
            groups = encode_groups(sensitive_features_val, expected_rows=rows_val)
        return cls(X, truth, weights(weight, rows), X_val, truth_val, groups)

    @classmethod
    def split(
        cls, X: Any, y: Any, weight: Any, sensitive_features: Any, *, fraction: float, seed: int
    ) -> Data:
        """Validation rows split off the training rows, a fraction of each group."""
        if sensitive_features is None:
            raise InvalidInputError(
                "Groups are needed on some rows, got none: pass validation rows (`X_val`, "
                "`y_val`, `sensitive_features_val`), or `sensitive_features` for the training rows."
            )
        rows = n_rows(X)
        truth, weight = vector("y", y, rows), weights(weight, rows)
        groups = encode_groups(sensitive_features, expected_rows=rows)
        held = held_out("validation_fraction", fraction, groups, seed)
        inside, outside = np.flatnonzero(~held), np.flatnonzero(held)
        return cls(
            part_of(X, inside),
            truth[inside],
            None if weight is None else weight[torch.as_tensor(inside)],
            part_of(X, outside),
            truth[outside],
            groups.take(outside),
            inside,
            truth,
            (Notice(SEEN_ROWS, SeenRowsWarning),),
        )


class Split(Protocol):
    """How validation rows are split off, if none are given."""

    @property
    def validation_fraction(self) -> float: ...

    @property
    def seed(self) -> int: ...


def data_of(
    train: tuple[Any, Any, Any, Any],
    validation: tuple[Any, Any, Any],
    split: Split,
    column: Callable[[Any, Any], Any],
) -> Data:
    """Check what the user gave: (X, y, weights, groups) and (X, y, groups) of validation rows.

    ``column(X, values)`` gives the values of all rows of ``X``.
    """
    (X, *columns), (X_val, *columns_val) = train, validation
    y, weight, groups = (column(X, values) for values in columns)
    y_val, groups_val = (column(X_val, values) for values in columns_val)
    if X_val is None and y_val is None and groups_val is None:
        fraction, seed = split.validation_fraction, split.seed
        data = Data.split(X, y, weight, groups, fraction=fraction, seed=seed)
    else:
        data = Data.given(X, y, weight, X_val, y_val, groups_val)
    return replace(data, y_as_given=y)


def held_out(name: str, value: Any, groups: Groups, seed: int) -> NDArray[np.bool_]:
    """A random fraction of each group's rows, at least one of each.

    ``name`` is the setting, for messages.
    """
    fraction = number_between(name, value, 0, 1)
    rng = np.random.default_rng(seed)
    held = np.zeros(len(groups), dtype=bool)
    for code in range(len(groups.names)):
        members = rng.permutation(np.flatnonzero(groups.codes == code))
        held[members[: max(1, round(fraction * len(members)))]] = True
    if held.all():
        raise InvalidInputError(
            f"`{name}`={fraction:g} would split off all {len(groups)} rows; lower it, or give more "
            "rows."
        )
    return held
