"""`fairij apply` and `fairij undo`: apply an edit to a model file, or remove it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairij.cli.console import print_json, say
from fairij.cli.options import Config, Force, Json, ModelOptions, ModelPath
from fairij.cli.outputs import check_target, save_model, whole_file
from fairij.errors import InvalidInputError


@dataclass(frozen=True)
class Move:
    """The options of `apply` and `undo`."""

    model: ModelPath
    edit: Annotated[Path, typer.Option(help="The edit, as `mitigate` wrote it.")]
    out: Annotated[Path, typer.Option(help="New model file, in the same format.")]
    as_json: Json = False
    force: Force = False
    config: Config = None


APPLY_EXAMPLES = (
    "fairij apply --model model.txt --edit result/edit.safetensors --out fair-model.txt",
)
UNDO_EXAMPLES = (
    "fairij undo --model fair-model.txt --edit result/edit.safetensors --out original.txt",
)


def apply(asked: Move, opening: ModelOptions) -> None:
    """Apply a saved edit to the model that it was made for."""
    _move(asked, opening, undo=False)


def undo(asked: Move, opening: ModelOptions) -> None:
    """Remove an edit: the original parameters come back, to the last bit."""
    _move(asked, opening, undo=True)


def _move(asked: Move, opening: ModelOptions, *, undo: bool) -> None:
    from fairij.storage.edits import Edit

    model, out = asked.model, asked.out
    check_target(out, force=asked.force)
    file, change = opening.open(model), Edit.load(asked.edit)
    if out.suffix != file.suffix:
        raise InvalidInputError(
            f"The edited model is written in the format of {model}, so --out must end "
            f"{f'in {file.suffix}' if file.suffix else 'without a suffix'}; got {out}."
        )
    moved = change.undo(file.model) if undo else change.apply(file.model)
    with whole_file(out, force=asked.force) as target:
        save_model(file, moved, target, opening.open)
    if asked.as_json:
        print_json({"out": str(out), "kind": file.kind, "edit": dict(change.settings)})
    else:
        say(
            f"{'Removed' if undo else 'Applied'} {change} {'from' if undo else 'to'} {model}: {out}"
        )
