"""Model files that are written: the work of `fairij apply` and `fairij undo`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fairij.cli.black_boxes import is_box_file, opened, reader, score_table
from fairij.cli.console import tell
from fairij.cli.options import ApplyOptions, MoveOptions
from fairij.cli.outputs import check_file, check_inputs_apart, whole_file
from fairij.errors import InvalidInputError
from fairij.models import adapt
from fairij.storage.edits import Edit
from fairij.storage.model_files import ModelFile

PROBE_BYTES = 2**16


def apply(asked: ApplyOptions) -> None:
    """Write the edited model, or a table with its scores."""
    if asked.table is not None:
        score_table(asked)
        return
    if asked.model is None or is_box_file(asked.edit):
        raise InvalidInputError(
            "The correction of a black box is applied to rows: name the table by --table, and "
            "the model by --model or the column of its scores by --score."
        )
    given = (asked.model, asked.edit, asked.out, asked.opening)
    move(MoveOptions(*given, asked.as_json, asked.force), undo=False)


def move(asked: MoveOptions, *, undo: bool) -> None:
    """Write the model with the edit, or without it."""
    model, out, opening = asked.model, asked.out, asked.opening
    check_file(out, force=asked.force)
    check_inputs_apart(out, {"edit": asked.edit})
    file, change = opened(opening, model, None), Edit.load(asked.edit)
    if out.suffix != file.suffix:
        raise InvalidInputError(
            f"The edited model is written in the format of {model}, so --out must end "
            f"{f'in {file.suffix}' if file.suffix else 'without a suffix'}; got {out}."
        )
    moved = change.undo(file.model) if undo else change.apply(file.model)
    with whole_file(out, force=asked.force) as target:
        save_model(file, moved, target, reader(file, opening))
    done, where = ("Removed", "from") if undo else ("Applied", "to")
    tell(
        {"out": str(out), "kind": file.kind, "edit": dict(change.settings)},
        f"{done} {change} {where} {model}: {out}",
        as_json=asked.as_json,
    )


def save_model(
    file: ModelFile, model: Any, target: Path, open_again: Callable[[Path], ModelFile]
) -> None:
    """Write a model in its own format, and read it back to compare the parameters.

    Some libraries give no clear error, or none, when a disk is full.
    """
    try:
        file.save(model, target)
        same = _parameters_equal(model, open_again(target).model)
    except Exception as error:
        _raise_if_full(target.parent)
        if isinstance(error, OSError):
            raise
        raise InvalidInputError(f"The model could not be written as {file.kind}: {error}") from None
    if not same:
        _raise_if_full(target.parent)
        raise InvalidInputError(
            f"The model could not be written as {file.kind}: read back, its parameters differ."
        )


def _parameters_equal(first: Any, second: Any) -> bool:
    if isinstance(first, torch.nn.Module):
        one, other = first.state_dict(), second.state_dict()
        return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)
    return torch.equal(adapt(first).theta, adapt(second).theta)


def _raise_if_full(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(b"\0" * PROBE_BYTES)
        probe.flush()
