"""`fairij compare`: several models or edits on one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairij.cli.measure import measured
from fairij.cli.options import ColumnOptions, Config, Json, ModelOptions, TableOptions
from fairij.cli.outputs import MARK
from fairij.cli.rows import read_part
from fairij.cli.show import audit_dict, groups_table, metrics_table, print_json, show
from fairij.edits import FORMAT, Edit

HEADER_BYTES = 4096

EXAMPLES = (
    "fairij compare model.txt result/ other-edit.safetensors --table test.csv --label "
    "income --sensitive sex",
)


def compare(
    models: Annotated[
        list[Path],
        typer.Argument(
            help="A model, then other models, edit files, or folders that `mitigate` wrote; edits "
            "are put on the first model.",
            show_default=False,
        ),
    ],
    table: TableOptions,
    columns: ColumnOptions,
    opening: ModelOptions,
    loss: Annotated[str, typer.Option(help="squared_error for regression; else auto.")] = "auto",
    confidence: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Measure several models, or edits of the first one, side by side on one table."""
    base = opening.open(models[0])
    part = read_part(table.table, table.query, columns, base)
    found = {}
    for path in models:
        edit = _edit_at(path)
        if edit is not None:
            model: Any = edit.apply(base.model)
            rows = part
        elif path == models[0]:
            model, rows = base.model, part
        else:
            file = opening.open(path)
            model, rows = file.model, read_part(table.table, table.query, columns, file)
        audit = measured(model, rows, loss=loss, confidence=confidence, seed=seed)
        found[path.name if path.name not in found else str(path)] = audit
    if as_json:
        print_json(
            {
                "rows": len(part),
                "models": {name: audit_dict(audit) for name, audit in found.items()},
            }
        )
        return
    show(metrics_table(f"{len(part)} rows of {table.table.name}", found))
    for name, audit in found.items():
        show(groups_table(name, audit))


def _edit_at(path: Path) -> Edit | None:
    """The edit in a file or in a folder that `mitigate` wrote; None where there is a model."""
    if path.is_dir() and (path / MARK).is_file():
        return Edit.load(path / "edit.safetensors")
    if path.suffix == ".safetensors" and path.is_file():
        with path.open("rb") as stream:
            if FORMAT.encode() in stream.read(HEADER_BYTES):
                return Edit.load(path)
    return None
