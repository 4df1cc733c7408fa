"""Training rows as columns that a person can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.checks import vector
from fairij.data.rows import as_source, n_rows, speaking_of, take_rows
from fairij.errors import InvalidInputError
from fairij.fairness.groups import as_frame
from fairij.mitigator import FairIJ

LABEL = "label"


@dataclass(frozen=True)
class TrainingTable:
    """The training rows. Only the rows that are asked for are copied into a frame."""

    X: Any
    names: tuple[str, ...]  # of the columns of X; empty if the rows are not a table
    y: NDArray[Any] | None
    sensitive: pd.DataFrame | None

    def take(self, rows: NDArray[np.int64]) -> pd.DataFrame:
        """Label, sensitive columns and features of some rows, in that order."""
        parts = []
        if self.y is not None:
            parts.append(pd.DataFrame({LABEL: self.y[rows]}))
        if self.sensitive is not None:
            parts.append(self.sensitive.iloc[rows].reset_index(drop=True))
        if self.names:
            parts.append(_frame(take_rows(self.X, rows), self.names))
        if not parts:
            return pd.DataFrame(index=range(len(rows)))
        frame = pd.concat(parts, axis=1)
        frame.columns = pd.Index(_distinct([str(name) for name in frame.columns]))
        return frame


def training_table(
    fitted: FairIJ, X: Any, y: Any, sensitive_features: Any, feature_names: Sequence[str] | None
) -> TrainingTable:
    """Check the number of rows, and name their columns."""
    X, rows = as_source(X), len(fitted.influence_)
    if n_rows(X) != rows:
        raise InvalidInputError(
            f"`X` must be the {rows} rows that `fit` was given, in the same order (before or after "
            f"encoding); got {n_rows(X)} rows."
        )
    names = _names(fitted, X, feature_names)
    labels = None if y is None else vector("y", y, rows)
    sensitive = None
    if sensitive_features is not None:
        with speaking_of("sensitive_features"):
            sensitive = as_frame(sensitive_features, expected_rows=rows)
        named = (str(name) for name in sensitive.columns)  # columns without a name are numbered
        sensitive = sensitive.set_axis(
            ["group" if name.isdigit() else name for name in named], axis="columns"
        )
    return TrainingTable(X, names, labels, sensitive)


def _names(fitted: FairIJ, X: Any, given: Sequence[str] | None) -> tuple[str, ...]:
    shape = tuple(getattr(X, "shape", (n_rows(X),)))
    if isinstance(X, (tuple, dict)) or len(shape) > 2:
        return ()  # images or several inputs: a table cannot show them
    width = shape[1] if len(shape) == 2 else 1
    if given is not None:
        if len(given) != width:
            raise InvalidInputError(
                f"`feature_names` must name the {width} columns of `X`, got {len(given)} names."
            )
        return tuple(map(str, given))
    if getattr(X, "columns", None) is not None:
        return tuple(map(str, X.columns))
    if len(shape) == 1:
        return ("text" if isinstance(X, list) and X and isinstance(X[0], str) else "value",)
    known = getattr(fitted, "feature_names_in_", ())
    if len(known) == width:
        return tuple(map(str, known))
    return tuple(f"feature {place}" for place in range(width))


def _frame(part: Any, names: tuple[str, ...]) -> pd.DataFrame:
    if isinstance(part, pd.DataFrame):
        return part.reset_index(drop=True)
    if isinstance(part, Tensor):
        part = part.detach().float().cpu().numpy()
    if hasattr(part, "toarray"):
        part = part.toarray()
    return pd.DataFrame(np.asarray(part).reshape(len(part), -1), columns=list(names))


def _distinct(names: list[str]) -> list[str]:
    """Number repeated names: a feature may be called "label" too."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result


def harmful_rows(fitted: FairIJ, most: int) -> NDArray[np.int64]:
    """The rows with the largest positive influence, most harmful first."""
    scores = np.where(fitted.influence_ > 0, fitted.influence_, -np.inf)
    count = min(most, int(np.isfinite(scores).sum()))
    if count == 0:
        return np.empty(0, np.int64)
    some = np.argpartition(-scores, count - 1)[:count]
    return some[np.argsort(-scores[some], kind="stable")].astype(np.int64)


def dropped_in_order(fitted: FairIJ) -> int:
    """How many of the most harmful rows were dropped; 0 if others were dropped instead."""
    return len(fitted.dropped_) if fitted.edit_.settings["drop"] == "fairness" else 0
