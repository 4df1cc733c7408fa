"""`fairij mitigate`: the edited model, the edit, the report, and the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairij.cli.options import (
    ColumnOptions,
    Config,
    EditOptions,
    FitTables,
    Force,
    Json,
    ModelOptions,
    ModelPath,
    PageOptions,
)

EXAMPLES = (
    "fairij mitigate --model model.txt --train train.csv --validation validation.csv "
    "--test test.csv --label income --sensitive sex --out result",
    "fairij mitigate --model model.skops --train train.parquet --validation validation.parquet "
    "--label y --sensitive race --constraint equal_opportunity --accuracy-budget 0.01 --out result",
    "fairij mitigate --config result/settings.toml --out again",
)


def mitigate(
    model: ModelPath,
    tables: FitTables,
    columns: ColumnOptions,
    opening: ModelOptions,
    edit: EditOptions,
    out: Annotated[Path, typer.Option(help="New folder for the results.")],
    page: PageOptions,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Folder of checkpoints. The same run continues where it stopped."),
    ] = None,
    as_json: Json = False,
    force: Force = False,
    config: Config = None,
) -> None:
    """Edit a model so that a gap between groups shrinks, without training it again.

    The folder holds the edited model in its own format (model.*), edit.safetensors to apply or
    undo the edit, report.html, summary.json, candidates.csv, influence.csv, and settings.toml to
    repeat the run.
    """
    from fairij.cli.mitigation import Asked, run

    asked = Asked(model, tables, columns, opening, edit, page)
    run(asked, out, checkpoint=checkpoint, as_json=as_json, force=force, config=config)
