"""Training rows as columns that a person can read, and the most harmful ones as a table."""

from __future__ import annotations

from collections import Counter
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
from fairij.report.wording import shortened

LABEL = "label"
MOST_SHOWN_COLUMNS = 16
MOST_COMPARED = 100_000  # rows, to see which columns tell rows apart
OWN_SHARE = 0.5  # of the rows: more of them have a value that no other row has
DIGITS = 3  # of numbers with decimals
SEED = 0


@dataclass(frozen=True)
class TrainingTable:
    """The training rows. Only the rows that are asked for are copied into a frame."""

    X: Any
    names: tuple[str, ...]  # of the columns of X; empty if the rows are not a table
    y: NDArray[Any] | None
    sensitive: pd.DataFrame | None

    def take(self, rows: NDArray[np.int64]) -> pd.DataFrame:
        """Label, sensitive columns and features of some rows, in that order."""
        parts = [pd.DataFrame(index=range(len(rows)))]
        if self.y is not None:
            parts.append(pd.DataFrame({LABEL: self.y[rows]}))
        if self.sensitive is not None:
            parts.append(self.sensitive.iloc[rows].reset_index(drop=True))
        if self.names:
            parts.append(_frame(take_rows(self.X, rows), self.names))
        frame = pd.concat(parts, axis=1)
        names: list[str] = []
        times: Counter[str] = Counter()
        for name in map(str, frame.columns):  # a feature may be called "label" too
            times[name] += 1
            names.append(name if times[name] == 1 else f"{name} ({times[name]})")
        return frame.set_axis(names, axis=1)


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
            found = as_frame(sensitive_features, expected_rows=rows)
        named = map(str, found.columns)  # columns without a name are numbered
        sensitive = found.set_axis(["group" if n.isdigit() else n for n in named], axis=1)
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


def harmful_rows(fitted: FairIJ, most: int) -> NDArray[np.int64]:
    """The rows with the largest positive influence, most harmful first."""
    scores = np.where(fitted.influence_ > 0, fitted.influence_, -np.inf)
    count = min(most, int(np.isfinite(scores).sum()))
    if count == 0:
        return np.empty(0, np.int64)
    some = np.argpartition(-scores, count - 1)[:count]
    return some[np.argsort(-scores[some], kind="stable")].astype(np.int64)


@dataclass(frozen=True)
class Cell:
    """A value as it is shown; ``sort`` is the number to sort by, if it is one."""

    text: str
    sort: str = ""


@dataclass(frozen=True)
class HarmfulTable:
    """The most harmful rows; how many columns are not shown, and those that tell rows apart."""

    columns: list[str]
    rows: list[list[Cell]]
    left_out: int
    telling: list[str]


def check_columns(table: TrainingTable, named: Sequence[str]) -> list[str]:
    """The columns that the user names; raises if the rows have no such column."""
    if isinstance(named, str):
        raise InvalidInputError(
            f"`show_columns` must be a sequence of names, got {named!r}: put it in brackets."
        )
    known = list(table.take(np.arange(1)).columns)
    wrong = [name for name in named if name not in known]
    if wrong:
        raise InvalidInputError(
            f"`show_columns` must name columns of the training rows, got {wrong[0]!r}; they are: "
            f"{', '.join(known[:MOST_SHOWN_COLUMNS])}{', ...' * (len(known) > MOST_SHOWN_COLUMNS)}."
        )
    return list(named)


def telling_columns(table: TrainingTable) -> list[str]:
    """The columns in which most rows have a value that no other row has: names, numbers, texts.

    Numbers with decimals are measurements. They are rounded where they are shown.
    """
    total = n_rows(table.X)
    some = np.arange(total)
    if total > MOST_COMPARED:
        some = np.sort(np.random.default_rng(SEED).choice(total, MOST_COMPARED, replace=False))
    frame = table.take(some)
    return [name for name in frame.columns if _tells_rows_apart(frame[name])]


def _tells_rows_apart(column: pd.Series) -> bool:
    present = column.dropna()
    if pd.api.types.is_float_dtype(present) and not (present % 1 == 0).all():
        return False
    if present.dtype == object:
        present = present.map(str)
    return bool((~present.duplicated(keep=False)).sum() > OWN_SHARE * max(len(column), 1))


def harmful_table(
    fitted: FairIJ,
    table: TrainingTable,
    rows: NDArray[np.int64],
    notable: list[str],
    named: list[str],
) -> HarmfulTable:
    """Rank, row number, influence, then columns; those in ``notable`` come first.

    Columns that tell rows apart are left out, except those in ``named``.
    """
    if not len(rows):
        return HarmfulTable([], [], 0, [])
    frame = table.take(rows)
    telling = [name for name in telling_columns(table) if name not in named]
    names = [name for name in frame.columns if name not in telling]
    if len(names) > MOST_SHOWN_COLUMNS:
        groups = () if table.sensitive is None else table.sensitive.columns
        leading = [name for name in (*named, LABEL, *groups, *notable) if name in names]
        names = list(dict.fromkeys([*leading, *names]))[:MOST_SHOWN_COLUMNS]
    dropped = set(fitted.dropped_.tolist())
    measures = {"influence": fitted.influence_}
    if fitted.loss_influence_ is not None:
        measures["influence on the loss"] = fitted.loss_influence_
    body = [
        [
            _cell(rank),
            _cell(row),
            *(Cell(f"{one[row]:.3e}", repr(float(one[row]))) for one in measures.values()),
            *([Cell("yes" if row in dropped else "no")] if dropped else []),
            *map(_cell, values),
        ]
        for rank, (row, *values) in enumerate(frame[names].set_axis(rows).itertuples(), start=1)
    ]
    first = ["rank", "row", *measures, *(["left out"] if dropped else [])]
    left_out = frame.shape[1] - len(telling) - len(names)
    return HarmfulTable([*first, *names], body, left_out, telling)


def _cell(value: Any) -> Cell:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        return Cell("missing" if value is None or value is pd.NA else shortened(value))
    size = float(value)
    if np.isnan(size):
        return Cell("missing")
    if size.is_integer() and abs(size) < 1e15:
        return Cell(f"{int(size)}", repr(size))
    rounded = float(f"{size:.{DIGITS}g}")
    return Cell(f"{rounded:.12g}", repr(rounded))
