"""Models that are only asked for scores: a column of a table, an ONNX file, any classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from fairij.black_box import BlackBox
from fairij.cli.console import tell
from fairij.cli.options import ApplyOptions, InfluenceOptions, ModelOptions
from fairij.cli.outputs import check_file, check_inputs_apart, whole_file
from fairij.cli.rows import as_the_model_has_them
from fairij.cli.streams import open_table
from fairij.data.checks import number_between
from fairij.errors import InvalidInputError
from fairij.fairness.decisions import read_decisions
from fairij.models.black_box.asking import onnx_inputs
from fairij.models.black_box.correction import Kind
from fairij.models.registry import adapt, is_black_box
from fairij.storage.black_boxes import FILE, FORMAT
from fairij.storage.checksummed import LARGEST_HEADER
from fairij.storage.edits import Edit
from fairij.storage.model_files import ModelFile
from fairij.storage.tables import require_columns, table_kind, write_table

MADE = ("fair_score", "fair_prediction")  # the columns that `apply` adds to a table


def opened(
    opening: ModelOptions,
    model: Path | None,
    score: str | None,
    *,
    black_box: bool = False,
    correction: Kind = "linear",
) -> ModelFile:
    """The model in a file, or a black box where it can only be asked."""
    if model is None and score is None:
        raise InvalidInputError(
            "A model is needed: name its file by --model, or by --score the column of a table in "
            "which its scores stand."
        )
    if model is None:
        return box_file("scores in a column", BlackBox(score, correction=correction), score=score)
    if score is not None and not is_box_file(model):
        raise InvalidInputError(
            "--score names a column of scores, and --model asks the model for them: leave one of "
            "the two out."
        )
    if is_box_file(model):
        return box_file("black box", BlackBox.load(model, score or _unknown), score=score)
    if model.suffix.lower() == ".onnx":
        names = onnx_inputs(str(model))
        box = BlackBox(str(model), correction=correction)
        return box_file("ONNX", box, columns=names)
    file = opening.open(model)
    return boxed(file, correction) if black_box else file


def opened_to_edit(asked: InfluenceOptions) -> ModelFile:
    """The model that an edit is made of; the error about a model that cannot be edited says how."""
    edit = asked.edit
    kind = cast(Kind, edit.correction)  # checked with the options
    how = partial(opened, black_box=edit.black_box, correction=kind)
    file = how(asked.opening, asked.model, asked.columns.score)
    try:
        adapt(file.model)
    except InvalidInputError as error:
        if not hasattr(file.model, "predict_proba"):
            raise
        raise InvalidInputError(f"{error} On the command line: --black-box.") from None
    return file


def boxed(file: ModelFile, correction: Kind = "linear") -> ModelFile:
    """Any model that gives probabilities, only asked for them."""
    box = BlackBox(file.model, correction=correction)
    made = box_file(f"{file.kind}, as a black box", box, columns=file.columns)
    return replace(made, prepare=file.prepare, labels=file.labels)


def box_file(
    kind: str, box: BlackBox, *, columns: Sequence[str] | None = None, score: str | None = None
) -> ModelFile:
    made = box.correction_
    if columns is None and made is not None and made.table.width is None:
        columns = [str(column.name) for column in made.table.columns]
    return ModelFile(
        kind,
        box,
        ".safetensors",
        None if columns is None else tuple(columns),
        prepare=lambda frame: frame,
        save=lambda model, target: model.save(target, overwrite=True),
        file_name=FILE,
        score=score,
    )


def reader(file: ModelFile, opening: ModelOptions) -> Callable[[Path], ModelFile]:
    """How what was written of such a model is read back."""
    if not is_black_box(file.model):
        return opening.open
    return lambda path: replace(file, model=BlackBox.load(path, file.model.model))


def _unknown(X: Any) -> Any:
    raise InvalidInputError(
        "This file holds the correction of a model, and not the model: name the column of the "
        "model's scores by --score."
    )


def is_box_file(path: Path) -> bool:
    """Whether this is the correction of a black box, or a folder with one."""
    file = path / FILE if path.is_dir() else path
    if file.suffix != ".safetensors" or not file.is_file():
        return False
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        return length <= LARGEST_HEADER and f'"{FORMAT}"'.encode() in stream.read(length)


def corrected(model: Any, path: Path) -> Any:
    """The model with what a file holds: the correction of a black box, or an edit."""
    if is_box_file(path):
        return BlackBox.load(path, model.model if is_black_box(model) else model)
    return Edit.load(path).apply(model)


def laid_out(box: Any, folder: Path) -> Any:
    """The black box of a run, as it was before the edit that is in this folder."""
    made = BlackBox.load(folder, box.model)
    return made.with_theta(np.zeros_like(made.theta_))


def score_table(asked: ApplyOptions) -> None:
    """Write a table with the scores and labels of the edited model: `fairij apply --table`."""
    table, out = asked.table, asked.out
    assert table is not None
    if table_kind(out) not in ("csv", "parquet"):
        raise InvalidInputError(f"--out must end in .csv or .parquet, as the table is; got {out}.")
    check_file(out, force=asked.force)
    check_inputs_apart(out, {"edit": asked.edit, "table": table, "model": asked.model})
    file = opened(asked.opening, asked.model, asked.score)
    model = corrected(file.model, asked.edit)
    whole = open_table(table)
    names = _names(file, model, asked.features, list(whole.columns), table)
    frame = whole.read(whole.columns)
    taken = [name for name in MADE if name in frame.columns]
    if taken:
        raise InvalidInputError(
            f"{table} must have no column {taken[0]!r}, which is added to it: rename that column."
        )
    cut = _cut_off(asked)
    score, labels = _answers(model, file.prepare(frame[names]), cut)
    frame = frame.assign(**dict(zip(MADE, (score, labels), strict=True)))
    with whole_file(out, force=asked.force) as target:
        write_table(frame, target)
    share = float(np.mean(labels == labels.max())) if len(labels) else 0.0
    told = {"out": str(out), "rows": len(frame), "columns": list(MADE)}
    text = f"Wrote {len(frame)} rows to {out}, with the columns {' and '.join(MADE)}."
    tell(told | {"accepted": share}, text, as_json=asked.as_json)


def _names(
    file: ModelFile, model: Any, features: Sequence[str] | None, found: list[str], table: Path
) -> list[str]:
    """The columns that the model takes."""
    if file.columns is not None and not is_black_box(model):
        return as_the_model_has_them(found, list(features or []), file.columns, table)
    known = list(features or file.columns or ())
    if not known and is_black_box(model):
        known = [str(name) for name in box_file("", model).columns or ()]
    if not known:
        raise InvalidInputError(
            "The model does not know its columns by name: name each of them by --features, in the "
            "order of its training."
        )
    known += [file.score] if file.score and file.score not in known else []
    require_columns(found, known, where=str(table))
    return known


def _cut_off(asked: ApplyOptions) -> float | None:
    """The chance of the model's second label from which a row has it; None: as it predicts."""
    if asked.threshold is not None:
        return number_between("threshold", asked.threshold, 0, 1)
    if is_box_file(asked.edit):
        return None
    last = read_decisions(Edit.load(asked.edit).settings)[1]
    if last.is_own:
        return None
    return 1 - last.cut_off if last.flipped else last.cut_off


def _answers(model: Any, X: Any, cut: float | None) -> tuple[Any, Any]:
    """The chance of the last of two classes, and the predicted labels."""
    score, labels, classes = _asked(model, X)
    if cut is not None:
        labels = np.asarray(classes)[(score >= cut).astype(int)]
    return score, labels


def _asked(model: Any, X: Any) -> tuple[Any, Any, Any]:
    """The chances, the labels as the model predicts them, and its two classes."""
    if not hasattr(model, "predict_proba"):
        z = adapt(model).outputs(X).double().cpu().numpy()
        if z.ndim > 1:
            raise InvalidInputError("Scores in a table are for models of two labels.")
        return 1 / (1 + np.exp(-z)), (z > 0).astype(np.int64), [0, 1]
    p = np.asarray(model.predict_proba(X))
    if p.shape[1] != 2:
        raise InvalidInputError("Scores in a table are for models of two labels.")
    return p[:, 1], pd.Series(model.predict(X)).to_numpy(), model.classes_
