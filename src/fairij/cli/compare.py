"""`fairij compare`: several models or edits on one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairij.cli.console import print_json
from fairij.cli.options import (
    ColumnOptions,
    Config,
    Json,
    MeasureOptions,
    ModelOptions,
    TableOptions,
)
from fairij.cli.outputs import MARK
from fairij.errors import InvalidInputError

if TYPE_CHECKING:
    from fairij.storage.edits import Edit

HEADER_BYTES = 4096

EXAMPLES = (
    "fairij compare model.txt result/ other-edit.safetensors --table test.csv --label "
    "income --sensitive sex",
)


def compare(
    models: Annotated[
        list[Path],
        typer.Argument(
            help="A model, then other models, edit files, or folders that `mitigate` wrote. Edits "
            "are applied to the first model.",
            show_default=False,
        ),
    ],
    table: TableOptions,
    columns: ColumnOptions,
    opening: ModelOptions,
    how: MeasureOptions,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Measure several models, or edits of the first one, side by side on one table."""
    from fairij.cli.display import audit_dict, show_audits
    from fairij.cli.measure import measured
    from fairij.cli.rows import check_two_groups, read_part

    names = _names(models)
    if _edit_at(models[0]) is not None:
        raise InvalidInputError(
            f"The first must be the model that edits are applied to, but {models[0]} holds an "
            "edit: name the model before it."
        )
    base = opening.open(models[0])
    part = check_two_groups(read_part(table.table, table.query, columns, base), table.table)
    found = {names[0]: measured(base.model, part, how)}
    for name, path in zip(names[1:], models[1:], strict=True):
        edit = _edit_at(path)
        if edit is not None:
            found[name] = measured(edit.apply(base.model), part, how)
        else:
            file = opening.open(path)
            rows = read_part(table.table, table.query, columns, file)
            found[name] = measured(file.model, rows, how)
    if as_json:
        print_json(
            {
                "rows": len(part),
                "models": {name: audit_dict(audit) for name, audit in found.items()},
            }
        )
        return
    show_audits(f"{len(part)} rows of {table.table.name}", found)


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
    from fairij.storage.edits import FORMAT, Edit

    if path.is_dir() and (path / MARK).is_file():
        return Edit.load(path / "edit.safetensors")
    if path.suffix == ".safetensors" and path.is_file():
        with path.open("rb") as stream:
            if FORMAT.encode() in stream.read(HEADER_BYTES):
                return Edit.load(path)
    return None
