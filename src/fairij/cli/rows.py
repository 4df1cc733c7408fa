"""The rows of a table file: features, labels, groups and weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.cli.options import ColumnOptions
from fairij.cli.streams import open_table
from fairij.data.sources import READ_ROWS, Source
from fairij.errors import InvalidInputError
from fairij.fairness.groups import (
    GroupChances,
    Groups,
    MissingGroups,
    encode_groups,
    relative,
)
from fairij.fairness.views import cells_of, collapsed
from fairij.models import adapt
from fairij.storage.model_files import ModelFile
from fairij.storage.model_files.columns import check_categories
from fairij.storage.tables import require_columns

Words = tuple[str, str] | None


@dataclass(frozen=True)
class Grouping:
    """How sensitive columns make groups."""

    missing: MissingGroups = "error"
    chances: bool = False
    marginals: bool = False
    control: pd.DataFrame | None = None

    def of(self, sensitive: pd.DataFrame) -> Groups:
        """The groups of these columns."""
        return cells_of(
            self.given(sensitive),
            missing=self.missing,
            control_features=self.control,
            marginals=self.marginals,
        )

    def given(self, sensitive: Any) -> Any:
        """The columns as `FairIJ` takes them."""
        return GroupChances(sensitive) if self.chances else sensitive


def grouping_of(columns: ColumnOptions, frame: pd.DataFrame, path: Path) -> Grouping:
    """How the sensitive columns of a table make groups; the frame has the columns of strata."""
    control = None
    if columns.control:
        control = frame[list(dict.fromkeys(columns.control))]
        for name in control.columns:
            check_missing(control[name], path, "a column of strata")
    missing: MissingGroups = "ignore" if columns.missing_groups == "ignore" else "error"
    return Grouping(missing, columns.group_chances, columns.marginals, control)


@dataclass(frozen=True)
class Part:
    """The columns of one table, by their roles."""

    features: Any  # a frame, or a source of one
    X: Any  # the features as the model takes them
    y: NDArray[Any]
    label: NDArray[Any]  # as the table has it
    names: Words  # what 0 and 1 in ``y`` stand for, if the labels are words
    groups: pd.DataFrame | None
    weight: NDArray[np.float64] | None
    is_text: bool = False  # the one feature
    classes: list[Any] | None = None  # as ``y`` has them, if their order was given
    others: pd.DataFrame | None = None  # further columns that were asked for
    pos_label: Any = None  # the favourable label as ``y`` has it, if it was named
    grouping: Grouping | None = None
    identifier: NDArray[Any] | None = None

    @cached_property
    def compared(self) -> Groups:
        """The groups as gaps are measured between them; rows count by their weights, if any."""
        assert self.groups is not None
        return (self.grouping or Grouping()).of(self.groups)

    @property
    def weighed(self) -> Groups:
        """The same, of rows that count by their weights in all that is measured."""
        return self.compared.weighted(relative(self.weight))

    def __len__(self) -> int:
        return len(self.y)

    @property
    def feature_names(self) -> list[str]:
        return list(self.features.columns)

    def named(self, classes: NDArray[Any]) -> NDArray[Any]:
        """The classes of a model by the table's words for them."""
        return classes if self.names is None or len(classes) != 2 else np.asarray(self.names)


def features_said(part: Part, columns: ColumnOptions) -> str:
    """The number of features, and whether the sensitive columns are among them."""
    names = part.feature_names
    inside = [name for name in columns.sensitive if name in names]
    outside = [name for name in columns.sensitive if name not in names]
    told = [f"{', '.join(inside)} among them"] if inside else []
    told += [f"{', '.join(outside)} not among them"] if outside else []
    return f"{len(names)} feature(s), {' and '.join(told)}."


def read_part(
    path: Path,
    query: str | None,
    columns: ColumnOptions,
    file: ModelFile,
    *,
    with_groups: bool = True,
    with_weights: bool = True,
    stream: bool = False,
    others: Sequence[str] = (),
    measured_by: str | None = None,
    identifier: str | None = None,
    not_features: Iterable[str | None] = (),
) -> Part:
    """Read a table for this model. Groups are optional without ``with_groups``.

    ``measured_by`` is a column of weights that count where the rows are measured.
    """
    if stream and file.takes_text:
        raise InvalidInputError(
            "--stream is for models that take columns, and this one reads text."
        )
    table = open_table(path, query, stream=stream)
    sensitive = list(dict.fromkeys(columns.sensitive))
    weights = [columns.weights] if columns.weights and with_weights else []
    weights = [measured_by] if measured_by else weights
    has_groups = with_groups or all(name in table.columns for name in sensitive)
    needed = [
        columns.label,
        *([file.score] if file.score else []),
        *weights,
        *(sensitive if has_groups else []),
        *((columns.control or []) if with_groups else []),
        *([identifier] if identifier else []),
        *others,
    ]
    require_columns(table.columns, needed, where=str(path))
    apart = {name for name in (*weights, identifier, *not_features) if name is not None}
    names = _feature_names(table.columns, columns, file, path, apart)
    frame = table.read(list(dict.fromkeys(needed)))
    label = frame[columns.label]
    check_missing(label, path, "the label column")
    y, words, classes = read_labels(label, columns, file, path)
    names += [file.score] if file.score and file.score not in names else []
    features, X = table.features(names, file.prepare)
    check_categories(file.model, _in_parts(features), where=str(path))
    return Part(
        features,
        X,
        y,
        label.to_numpy(),
        words,
        groups_of(frame[sensitive], path, columns) if has_groups else None,
        weights_of(frame[weights[0]], path) if weights else None,
        file.takes_text,
        classes,
        frame[list(others)] if others else None,
        _favourable(columns, y, words, path),
        grouping_of(columns, frame, path) if with_groups else None,
        frame[identifier].to_numpy() if identifier else None,
    )


def _in_parts(features: pd.DataFrame | Source) -> Iterable[pd.DataFrame]:
    return features.chunks(READ_ROWS) if isinstance(features, Source) else [features]


def _feature_names(
    known: Sequence[str], columns: ColumnOptions, file: ModelFile, path: Path, apart: set[str]
) -> list[str]:
    if file.takes_text:
        if columns.text is None:
            raise InvalidInputError(
                f"This model reads text: name the column by --text, one of {', '.join(known[:12])}."
            )
        require_columns(known, [columns.text], where=str(path))
        return [columns.text]
    asked = list(columns.features or [])
    if file.columns is not None:
        return as_the_model_has_them(known, asked, file.columns, path)
    if asked:
        require_columns(known, asked, where=str(path))
        return asked
    left_out = {columns.label, columns.weights, columns.score, *apart}
    left_out |= set() if columns.sensitive_as_features else set(columns.sensitive)
    names = [name for name in known if name not in left_out]
    if not names:
        raise InvalidInputError(f"{path} has no column left that could be a feature.")
    return names


def as_the_model_has_them(
    found: Sequence[str], asked: list[str], known: tuple[str, ...], path: Path
) -> list[str]:
    """The model's columns in its order. LightGBM turns spaces in names into underscores."""
    spaced = {"_".join(str(name).split(" ")): str(name) for name in found}
    names = [name if name in found else spaced.get(name, name) for name in known]
    if asked and set(asked) != set(names):
        raise InvalidInputError(
            f"The model knows its features: {', '.join(known[:12])}{', ...' * (len(known) > 12)}; "
            f"--features differs by {', '.join(sorted(set(asked) ^ set(names))[:5])}. Leave "
            "--features out."
        )
    require_columns(found, names, where=f"{path}, for the model's features,")
    return names


def groups_of(frame: pd.DataFrame, path: Path, columns: ColumnOptions) -> pd.DataFrame:
    if columns.missing_groups == "error":
        for name in frame.columns:
            check_missing(
                frame[name], path, "the sensitive column", ", or give --missing-groups ignore"
            )
    if columns.group_chances or frame.isna().any(axis=None):
        return frame
    absent = encode_groups(frame).absent
    if absent:
        raise InvalidInputError(
            f"Every group must have rows, but {absent[0]!r} has none in {path}, so its rates are "
            "unknown: add rows of it, or remove the unused category."
        )
    return frame


def check_two_groups(part: Part, path: Path) -> Part:
    """Raise if there is only one group: there is no gap to measure."""
    names = collapsed(part.compared).names
    if len(names) < 2:
        raise InvalidInputError(
            f"A gap needs at least two groups, but all rows of {path} are of {names[0]!r}: add "
            "rows of another group, or name another column by --sensitive."
        )
    return part


def check_every_group(train: Part, validation: Part) -> None:
    """Raise if a group of the training table has no validation rows."""
    if train.groups is None or validation.groups is None or _has_chances(validation):
        return
    for name in train.groups.columns:
        there = set(map(str, validation.groups[name]))
        known = train.groups[name].dropna().unique()
        absent = [v for v in map(str, known) if v not in there]
        if absent:
            raise InvalidInputError(
                f"Every group must have validation rows, but {name!r} = "
                f"{', '.join(map(repr, absent))} has none there "
                "(the training table has such rows): add some to the validation table, or take "
                "those rows out."
            )


def _has_chances(part: Part) -> bool:
    return part.grouping is not None and part.grouping.chances


def weights_of(column: pd.Series[Any], path: Path) -> NDArray[np.float64]:
    check_missing(column, path, "the weights column")
    try:
        return column.to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"The weights column {column.name!r} of {path} must be numbers."
        ) from None


def check_missing(column: pd.Series[Any], path: Path, role: str, cure: str = "") -> None:
    missing = column.isna().to_numpy()
    if missing.any():
        raise InvalidInputError(
            f"{path} has {int(missing.sum())} missing value(s) in {column.name!r}, {role}; the "
            f"first is in row {int(np.flatnonzero(missing)[0])} (the first below the header is row "
            f"0): drop those rows, or fill them{cure}. In a CSV file empty cells are missing, and "
            "so are the words that pandas takes for missing (NA, N/A, NaN, None, NULL and their "
            "like)."
        )


def read_labels(
    label: pd.Series[Any], columns: ColumnOptions, file: ModelFile, path: Path
) -> tuple[NDArray[Any], Words, list[Any] | None]:
    """The labels, the words for 0 and 1, and the classes in order if that was given."""
    known, found = _known(file), sorted(map(str, label.unique()))
    if columns.classes:
        own = known if known is not None and set(found) <= set(known) else None
        _check_classes(label, columns, own, path)
        if own is None:  # the table has other words for them than the model, if that has any
            return _by_classes(label, columns.classes)
    y, words = _by_positive(label, found, columns.positive, known, file, path)
    return y, words, _models_own(known, file) if columns.classes else None


def _check_classes(
    label: pd.Series[Any], columns: ColumnOptions, known: list[str] | None, path: Path
) -> None:
    given = columns.classes or []
    if columns.positive is not None:
        raise InvalidInputError("--classes names the positive label too: leave --positive out.")
    if len(given) < 2 or len(set(given)) < len(given):
        raise InvalidInputError(
            f"--classes must be repeated for at least two labels, all different; got {given}."
        )
    if known is not None and known != given:
        raise InvalidInputError(
            f"--classes must be the model's own labels in its order, {', '.join(known)}; got "
            f"{', '.join(given)}: leave it out."
        )
    other = sorted(set(map(str, label.unique())) - set(given))
    if other:
        raise InvalidInputError(
            f"--classes must have every label of {label.name!r} in {path}, but {other[0]!r} is "
            "missing."
        )


def _by_classes(label: pd.Series[Any], given: list[str]) -> tuple[NDArray[Any], Words, list[Any]]:
    """Labels in a given order: 0 and 1 if there are two, else as text."""
    if len(given) == 2:
        return (
            (label.map(str) == given[1]).to_numpy().astype(np.int64),
            (given[0], given[1]),
            [0, 1],
        )
    return label.map(str).to_numpy(dtype=object), None, list(given)


def _models_own(known: list[str] | None, file: ModelFile) -> list[Any]:
    """The classes of a model that tells them, as `_by_positive` gives the labels."""
    if file.labels:
        return list(range(len(known or ())))
    classes: list[Any] = adapt(file.model).classes.tolist()  # type: ignore[union-attr]
    return classes


def _by_positive(
    label: pd.Series[Any],
    found: list[str],
    positive: str | None,
    known: list[str] | None,
    file: ModelFile,
    path: Path,
) -> tuple[NDArray[Any], Words]:
    """Labels by the model's names for them, or by the one that counts as 1."""
    is_numeric = label.dtype.kind in "iufb"
    if positive is None and is_numeric:
        return np.asarray(label), None
    if positive is not None and positive not in found:
        raise InvalidInputError(
            f"--positive {positive} is no value of {label.name!r} in {path}; found: "
            f"{', '.join(found[:8])}."
        )
    if known is not None and set(found) <= set(known):
        if positive is not None:
            _check_is_the_models(positive, known)
        if not file.labels:
            return np.asarray(label if is_numeric else label.astype(object)), None
        words = (known[0], known[1]) if len(known) == 2 else None
        return label.map(str).map(file.labels).to_numpy(dtype=np.int64), words
    if positive is not None:
        others = [name for name in found if name != positive]
        other = others[0] if len(others) == 1 else f"not {positive}"
        return (label.map(str) == positive).to_numpy().astype(np.int64), (other, positive)
    if len(found) == 2 and known is None:
        first, second = found
        raise InvalidInputError(
            f"The labels in {label.name!r} of {path} are text ({first!r}, {second!r}), and the "
            "model file does not say which of them it was trained to call 1: pass it by "
            "--positive."
        )
    return np.asarray(label.astype(object)), None


def _known(file: ModelFile) -> list[str] | None:
    """The model's names of the labels, in the order of its outputs."""
    if file.labels:
        return sorted(file.labels, key=lambda name: file.labels[name])
    classes = adapt(file.model).classes
    return None if classes is None else [str(name) for name in classes.tolist()]


def _favourable(columns: ColumnOptions, y: NDArray[Any], words: Words, path: Path) -> Any:
    """The label of --pos-label as ``y`` has it; None if it is not given."""
    if columns.pos_label is None:
        return None
    values = y[np.sort(np.unique(y, return_index=True)[1])].tolist()
    known = {str(word): code for code, word in enumerate(words)} if words else {}
    known = known or {str(written(value)): value for value in values}
    if columns.pos_label not in known:
        raise InvalidInputError(
            f"--pos-label {columns.pos_label} is no value of {columns.label!r} in {path}; found: "
            f"{', '.join(list(known)[:8])}."
        )
    return known[columns.pos_label]


def written(value: Any) -> str:
    """A label as people write it: 1.0 and True as 1."""
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _check_is_the_models(positive: str, known: list[str]) -> None:
    if len(known) != 2:
        raise InvalidInputError(
            f"The model tells {len(known)} labels apart, so none is the positive one: leave "
            "--positive out."
        )
    if positive != known[1]:
        raise InvalidInputError(
            f"The model was trained with {known[1]!r} as the positive label, not {positive!r}: "
            f"leave --positive out. For rates about {positive!r} say --pos-label {quote(positive)}."
        )
