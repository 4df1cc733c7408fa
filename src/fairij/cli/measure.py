"""Models measured on a table: the work of `fairij compare`."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch

import fairij
from fairij.cli.audit_options import CompareOptions
from fairij.cli.black_boxes import boxed, corrected, is_box_file, opened
from fairij.cli.console import audit_dict, print_json, show_audits
from fairij.cli.options import (
    MeasureOptions,
)
from fairij.cli.outputs import MARK
from fairij.cli.rows import Part, check_two_groups, read_part
from fairij.errors import FairIJError, InvalidInputError
from fairij.fairness import Audit, audit, audit_regression
from fairij.models import adapt
from fairij.models.doubts import Outputs, check_are_logits, doubts, outputs_asked
from fairij.models.labels import (
    decision_of,
    decision_words,
    encode_labels,
    known_classes,
    positive_label,
)
from fairij.storage.edits import FORMAT, Edit
from fairij.storage.model_files import ModelFile

HEADER_BYTES = 4096


def compare_models(models: list[Path], asked: CompareOptions) -> None:
    names, table = _names(models), asked.table.table
    if _edit_at(models[0]) is not None:
        raise InvalidInputError(
            f"The first must be the model that edits are applied to, but {models[0]} holds an "
            "edit: name the model before it."
        )
    base = asked_at_least(opened(asked.opening, models[0], asked.columns.score))
    part = check_two_groups(_read(asked, base), table)
    found = {names[0]: measured(base.model, part, asked.how)}
    for name, path in zip(names[1:], models[1:], strict=True):
        edit = _edit_at(path)
        if is_box_file(path):
            found[name] = measured(corrected(base.model, path), part, asked.how, confirmed=True)
        elif edit is not None:
            found[name] = measured(edit.apply(base.model), part, asked.how, confirmed=True)
        else:
            file = asked_at_least(opened(asked.opening, path, asked.columns.score))
            found[name] = measured(file.model, _read(asked, file), asked.how)
    if asked.as_json:
        audits = {name: audit_dict(audit) for name, audit in found.items()}
        print_json({"rows": len(part), "models": audits})
        return
    show_audits(f"{len(part)} rows of {table.name}", found)


def asked_at_least(file: ModelFile) -> ModelFile:
    """The model; one that cannot be edited, but gives probabilities, is only asked for them."""
    try:
        adapt(file.model)
    except InvalidInputError:
        if hasattr(file.model, "predict_proba"):
            return boxed(file)
        raise
    return file


def _read(asked: CompareOptions, file: ModelFile) -> Part:
    return read_part(asked.table.table, asked.table.query, asked.columns, file)


def _names(paths: list[Path]) -> list[str]:
    """Short names: each path with only as many folders as tell it from the others."""
    twice = [path for place, path in enumerate(paths) if path in paths[:place]]
    if twice:
        raise InvalidInputError(f"Each model is compared once, but {twice[0]} is named twice.")

    def name(path: Path) -> str:
        tails = (path.parts[-length:] for length in range(1, len(path.parts)))
        alone = (t for t in tails if sum(other.parts[-len(t) :] == t for other in paths) == 1)
        return str(Path(*next(alone, path.parts)))

    return [name(path) for path in paths]


def _edit_at(path: Path) -> Edit | None:
    """The edit in a file or in a folder that `mitigate` wrote; None if it is a model."""
    if path.is_dir() and (path / MARK).is_file():
        return Edit.load(path / "edit.safetensors")
    if path.suffix == ".safetensors" and path.is_file():
        with path.open("rb") as stream:
            if FORMAT.encode() in stream.read(HEADER_BYTES):
                return Edit.load(path)
    return None


def measured(
    model: Any,
    part: Part,
    how: MeasureOptions,
    *,
    confirmed: bool = False,
    attributes: pd.DataFrame | None = None,
) -> Audit:
    """Metrics with intervals and rates by group, measured as `FairIJ` does.

    Raises if the outputs speak for another label than they are taken for, or if they may be
    probabilities as well as logits, unless a fit has ``confirmed`` both.
    """
    with model_speaks():
        editable = adapt(model, outputs=outputs_asked(cast(Outputs, how.outputs), how.loss))
        z = editable.outputs(part.X)
    _check_rows(part, one_output=z.ndim == 1 and editable.classes is None)
    loss = (editable.loss_name or how.loss) if how.loss == "auto" else how.loss
    known = known_classes(editable, part.y, part.classes)
    labels = encode_labels(z, z, part.y, part.y, loss, known)
    if not confirmed:
        check_are_logits(editable, labels.loss, z)
    named = replace(labels, classes=part.named(labels.classes))
    decision = decision_of(labels, how.cut(), part.pos_label, z)
    for notice in doubts(named, z, decision, confirmed=confirmed or part.classes is not None):
        warnings.warn(notice.text, notice.category, stacklevel=2)
    weight = None if part.weight is None else torch.as_tensor(part.weight)
    predicted = labels.loss.predict(decision.outputs(z, weight)).cpu().numpy()
    truth = decision.truth(labels.train).cpu().numpy()
    settings: dict[str, Any] = {"confidence": how.confidence, "random_state": how.random_state}
    if not labels.loss.is_classification:
        if part.weight is not None:
            raise InvalidInputError("Weights are for classification; leave --weights out.")
        return audit_regression(truth, predicted, sensitive_features=part.compared, **settings)
    if len(labels.classes) > 2:  # of two classes, 1 is the positive one
        predicted, truth = labels.classes[predicted], labels.classes[truth.astype(int)]
    words = decision_words(named.classes, decision)
    settings |= {"sample_weight": part.weight, "class_names": words}
    settings["attributes"] = attributes
    if len(labels.classes) == 2:
        settings["scores"] = decision.chance(z).cpu().numpy()
    found = audit(truth, predicted, sensitive_features=part.compared, **settings)
    return replace(found, positive_label=positive_label(named.classes, decision))


def _check_rows(part: Part, *, one_output: bool) -> None:
    """Raise if a label is missing from the table."""
    if one_output and len(np.unique(part.y)) == 1:
        raise InvalidInputError(
            f"The table must have rows of both labels, but all of them have {part.label[0]!s}: "
            "give rows of both."
        )


@contextmanager
def model_speaks() -> Iterator[None]:
    """Turn any error of the model's library into one clear error."""
    try:
        yield
    except (FairIJError, OSError, MemoryError):
        raise
    except Exception as error:  # libraries raise errors of any kind
        if _raised_here(error):
            raise
        text = " ".join(str(error).split())[:400].rstrip(".")
        raise InvalidInputError(
            f"The model must take these features as they are, but it says: {text}. Give the "
            "columns that it was trained on, prepared in the same way."
        ) from error


def _raised_here(error: Exception) -> bool:
    """Whether the error comes from the code of this package, so is a bug."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Path(fairij.__file__).parent in Path(last.filename).parents
