"""Audits of predictions that stand in a table, whatever model they are from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.cli.audit_options import AuditOptions
from fairij.cli.options import (
    ColumnOptions,
)
from fairij.cli.rows import (
    Grouping,
    check_missing,
    grouping_of,
    groups_of,
    weights_of,
    written,
)
from fairij.errors import InvalidInputError
from fairij.fairness import Audit, audit, audit_regression
from fairij.fairness.score_audits import ROUNDED
from fairij.fairness.views import collapsed
from fairij.storage.tables import read_table, require_columns

REVERSED = 0.45  # upper end of an AUC below which scores speak for the other label


@dataclass(frozen=True)
class Predictions:
    """The columns of a table of predictions, by their roles."""

    truth: NDArray[Any]
    predicted: NDArray[Any] | None
    score: NDArray[np.float64] | None
    groups: pd.DataFrame
    weight: NDArray[np.float64] | None
    names: tuple[str, str] | None  # what labels 0 and 1 stand for, if there are two
    favourable: int = 1
    others: pd.DataFrame | None = None  # further columns that were asked for
    grouping: Grouping = field(default_factory=Grouping)

    def __len__(self) -> int:
        return len(self.truth)


def audit_table(
    asked: AuditOptions, found: Predictions, attributes: pd.DataFrame | None = None
) -> Audit:
    """The audit of the predictions in a table."""
    how, settings = asked.how, dict[str, Any](confidence=asked.how.confidence)
    settings["sensitive_features"] = found.grouping.of(found.groups)
    if how.loss == "squared_error":
        if found.weight is not None:
            raise InvalidInputError("Weights are for classification; leave --weights out.")
        return audit_regression(found.truth, found.predicted, **settings)
    settings["attributes"] = attributes
    if found.names is not None:
        settings |= {"class_names": _favourable_last(found)} | {"pos_label": found.favourable}
    settings["sample_weight"] = found.weight
    if found.predicted is None:
        made = audit(found.truth, found.score, threshold=how.cut(), **settings)
    elif how.cut() is not None:
        raise InvalidInputError(
            "--threshold makes decisions of a column of scores, and --prediction names decisions: "
            "leave one of the two out."
        )
    else:
        made = audit(found.truth, found.predicted, scores=found.score, **settings)
    _check_direction(made, found, asked)
    return made


def _favourable_last(found: Predictions) -> list[str]:
    names = list(found.names or ())
    return names if found.favourable == 1 else names[::-1]


def read_predictions(asked: AuditOptions) -> Predictions:
    """Read and check the columns that are named."""
    path, columns, given = asked.table.table, asked.columns, asked.predictions
    if columns.score is None and given.prediction is None:
        raise InvalidInputError(
            "An audit needs a model (--model), or the column of a table that holds a model's "
            "scores (--score) or predicted labels (--prediction)."
        )
    frame = read_table(path, query=asked.table.query)
    roles = (columns.label, columns.score, given.prediction, columns.weights)
    named = [name for name in roles if name is not None]
    sensitive = list(dict.fromkeys(columns.sensitive))
    explored = list(asked.page.columns)
    strata = list(dict.fromkeys(columns.control or ()))
    require_columns(list(frame.columns), [*named, *sensitive, *strata, *explored], where=str(path))
    for name in named:
        check_missing(frame[name], path, "one of the columns that are measured")
    groups = groups_of(frame[sensitive], path, columns)
    grouping = grouping_of(columns, frame, path)
    if len(names := collapsed(grouping.of(groups)).names) < 2:
        raise InvalidInputError(
            f"A gap needs at least two groups, but all rows of {path} are of {names[0]!r}: add "
            "rows of another group, or name another column by --sensitive."
        )
    weight = weights_of(frame[columns.weights], path) if columns.weights else None
    if asked.how.loss == "squared_error":
        if given.prediction is None:
            raise InvalidInputError("Predicted numbers are named by --prediction.")
        truth, made = (frame[name].to_numpy() for name in (columns.label, given.prediction))
        return Predictions(truth, made, None, groups, weight, None, grouping=grouping)
    score = None if columns.score is None else _scores(frame[columns.score], path)
    predicted = None if given.prediction is None else frame[given.prediction]
    y, said, labels, favourable = _labels(frame[columns.label], predicted, columns, path)
    if score is not None and labels is None:
        raise InvalidInputError(
            f"--score is the chance of one of two labels, but {columns.label!r} of {path} has "
            "more: name the column of predicted labels by --prediction, and leave --score out."
        )
    others = frame[explored] if explored else None
    roles_of = (y, said, score, groups, weight, labels, favourable, others)
    return Predictions(*roles_of, grouping)


def _scores(column: pd.Series[Any], path: Path) -> NDArray[np.float64]:
    if column.dtype.kind not in "iuf":
        raise InvalidInputError(
            f"The scores {column.name!r} of {path} must be numbers from 0 to 1; the first is "
            f"{column.iloc[0]!r}. Name a column of predicted labels by --prediction."
        )
    score = column.to_numpy(dtype=np.float64)
    if score.min() < -ROUNDED or score.max() > 1 + ROUNDED:
        raise InvalidInputError(
            f"The scores {column.name!r} of {path} must be chances from 0 to 1, and they lie "
            f"between {score.min():g} and {score.max():g}: turn log-odds s into chances by "
            "1 / (1 + exp(-s)). Of points on another scale, name the decisions that are made from "
            "them by --prediction."
        )
    return score.clip(0, 1)


def _labels(
    label: pd.Series[Any], predicted: pd.Series[Any] | None, columns: ColumnOptions, path: Path
) -> tuple[NDArray[Any], NDArray[Any] | None, tuple[str, str] | None, int]:
    """True and predicted labels, 0 and 1 if there are two, their names, and the favourable one.

    A score is the chance of the second: of the last one that --classes names, of --positive if
    labels are words, else of the larger number.
    """
    both = [label] if predicted is None else [label, predicted]
    is_numeric = all(column.dtype.kind in "iufb" for column in both)
    texts = [column.map(written) for column in both]
    _check_same_words(texts, both, columns.classes, path)
    found = sorted(set().union(*(set(text) for text in texts)))
    order = _order(found, columns, is_numeric=is_numeric, path=path, name=str(label.name))
    if order is None:
        if columns.pos_label is not None:
            raise InvalidInputError(
                f"--pos-label is for two labels, and {label.name!r} of {path} has {len(found)}: "
                "leave it out."
            )
        each = [np.asarray(text, dtype=object) for text in texts]
        return each[0], each[1] if predicted is not None else None, None, 1
    coded = [(text == order[1]).to_numpy().astype(np.int64) for text in texts]
    favourable = 1 if columns.positive is None else order.index(columns.positive)
    if columns.pos_label is not None:
        if columns.pos_label not in order:
            raise InvalidInputError(
                f"--pos-label {columns.pos_label} is no value of {label.name!r} in {path}; found: "
                f"{', '.join(order)}."
            )
        favourable = order.index(columns.pos_label)
    return coded[0], coded[1] if predicted is not None else None, order, favourable


def _check_same_words(
    texts: list[pd.Series[Any]], columns: list[pd.Series[Any]], given: list[str] | None, path: Path
) -> None:
    """Raise if decisions have words that no true label has, unless there are two words in all."""
    known, said = (sorted(set(text)) for text in (texts[0], texts[-1]))
    other = [word for word in said if word not in {*known, *(given or ())}]
    if not other or len({*known, *said}) <= 2:
        return
    label, decision = columns[0].name, columns[-1].name
    raise InvalidInputError(
        f"Predicted labels must be labels of {label!r} in {path}, {_listed(known)}; but "
        f"{decision!r} has {_listed(other)}: write the decisions in the words of the labels, or "
        "name a column of scores by --score."
    )


def _listed(words: list[str]) -> str:
    return ", ".join(map(repr, words[:4])) + ", ..." * (len(words) > 4)


def _order(
    found: list[str], columns: ColumnOptions, *, is_numeric: bool, path: Path, name: str
) -> tuple[str, str] | None:
    """Two labels, that of the scores last; None if there are more."""
    given, positive = columns.classes, columns.positive
    if given is not None and not (len(given) == len(set(given)) and set(found) <= set(given)):
        raise InvalidInputError(
            f"--classes must name every label of {name!r} in {path} once, {', '.join(found[:8])}; "
            f"got {', '.join(given)}."
        )
    listed = given or found
    if len(listed) == 1 and listed[0] in ("0", "1", "-1"):
        listed = (
            ["0", "1"] if listed[0] == "0" else [*{"-1": ["-1", "1"]}.get(listed[0], ["0", "1"])]
        )
    if positive is not None and positive not in listed:
        raise InvalidInputError(
            f"--positive {positive} is no value of {name!r} in {path}; found: "
            f"{', '.join(found[:8])}."
        )
    if len(listed) == 1:
        raise InvalidInputError(
            f"The table must have rows of both labels, but all of them have {found[0]}: give rows "
            "of both."
        )
    if len(listed) > 2:
        if positive is None:
            return None
        raise InvalidInputError(
            f"--positive is for two labels, and {name!r} of {path} has {len(listed)}: leave it out."
        )
    if given is not None:
        return listed[0], listed[1]
    if is_numeric:
        low, high = sorted(listed, key=float)
        return low, high
    if positive is None:
        raise InvalidInputError(
            f"The labels in {name!r} of {path} are text ({listed[0]!r}, {listed[1]!r}): name the "
            f"favourable one, --positive {listed[0]} or --positive {listed[1]}. Scores are then "
            "taken for its chance. If they are the chance of the other one, also name both, that "
            f"one last, as in --classes {listed[0]} --classes {listed[1]}."
        )
    other = listed[1] if listed[0] == positive else listed[0]
    return other, positive


def _check_direction(made: Audit, found: Predictions, asked: AuditOptions) -> None:
    """Raise if scores are clearly higher for the other label, unless the order was confirmed."""
    if found.score is None or found.names is None or asked.columns.classes is not None:
        return
    area, _, high = made.interval("auc")
    if high < REVERSED:
        first, second = found.names
        raise InvalidInputError(
            f"--score {asked.columns.score} must be the chance of {second!r}, but it is higher "
            f"for {first!r} (area under the ROC curve {area:.2f}). If it is the chance of "
            f"{first!r}, say --classes {second} --classes {first}; if all is right as it is, "
            f"confirm it by --classes {first} --classes {second}."
        )
