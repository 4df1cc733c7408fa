"""`fairij apply` and `fairij undo`: put an edit on a model file, or take it off."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairij.cli.options import Config, Force, Json, ModelOptions
from fairij.cli.outputs import check_target, save_model, whole_file
from fairij.cli.show import print_json, say
from fairij.edits import Edit
from fairij.errors import InvalidInputError

ModelPath = Annotated[Path, typer.Option(help="The model file, or a Hugging Face folder.")]
EditPath = Annotated[Path, typer.Option(help="The edit, as `mitigate` wrote it.")]
OutPath = Annotated[Path, typer.Option(help="New model file, in the same format.")]

APPLY_EXAMPLES = (
    "fairij apply --model model.txt --edit result/edit.safetensors --out fair-model.txt",
)
UNDO_EXAMPLES = (
    "fairij undo --model fair-model.txt --edit result/edit.safetensors --out original.txt",
)


def apply(
    model: ModelPath,
    edit: EditPath,
    out: OutPath,
    opening: ModelOptions,
    as_json: Json = False,
    force: Force = False,
    config: Config = None,
) -> None:
    """Put a saved edit on the very model that it was made for."""
    _move(model, edit, out, opening, as_json, force, undo=False)


def undo(
    model: ModelPath,
    edit: EditPath,
    out: OutPath,
    opening: ModelOptions,
    as_json: Json = False,
    force: Force = False,
    config: Config = None,
) -> None:
    """Take an edit off again: the original parameters, to the last bit."""
    _move(model, edit, out, opening, as_json, force, undo=True)


def _move(
    model: Path,
    edit: Path,
    out: Path,
    opening: ModelOptions,
    as_json: bool,
    force: bool,
    *,
    undo: bool,
) -> None:
    check_target(out, force=force)
    file, change = opening.open(model), Edit.load(edit)
    if out.suffix != file.suffix:
        raise InvalidInputError(
            f"The edited model is written in the format of {model}, so --out must end "
            f"{f'in {file.suffix}' if file.suffix else 'without a suffix'}; got {out}."
        )
    moved = change.undo(file.model) if undo else change.apply(file.model)
    with whole_file(out, force=force) as target:
        save_model(file, moved, target, opening.open)
    if as_json:
        print_json({"out": str(out), "kind": file.kind, "edit": dict(change.settings)})
    else:
        say(f"{'Took' if undo else 'Put'} {change} {'off' if undo else 'on'} {model}: {out}")
