"""`fairij audit`: metrics by group, with intervals, of a model on a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairij.cli.measure import measured
from fairij.cli.options import ColumnOptions, Config, Json, ModelOptions, TableOptions
from fairij.cli.rows import features_said, read_part
from fairij.cli.show import audit_dict, groups_table, metrics_table, print_json, say, show

EXAMPLES = (
    "fairij audit --model model.txt --table test.csv --label income --sensitive sex",
    "fairij audit --model model.skops --table people.parquet --label y --sensitive sex "
    "--sensitive race --json",
    "fairij audit --model net.safetensors --model-class net.py:Net --table shop.duckdb "
    '--query "select * from orders" --label paid --sensitive gender',
)


def audit(
    model: Annotated[Path, typer.Option(help="The model file, or a Hugging Face folder.")],
    table: TableOptions,
    columns: ColumnOptions,
    opening: ModelOptions,
    loss: Annotated[str, typer.Option(help="squared_error for regression; else auto.")] = "auto",
    confidence: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Show how a model treats groups: rates and gaps on a table, with bootstrap intervals."""
    file = opening.open(model)
    part = read_part(table.table, table.query, columns, file)
    found = measured(file.model, part, loss=loss, confidence=confidence, seed=seed)
    if as_json:
        print_json(
            {
                **audit_dict(found),
                "rows": len(part),
                "model": {"path": str(model), "kind": file.kind},
                "features": list(part.features.columns),
                "sensitive": columns.sensitive,
            }
        )
        return
    name = f"{model.name} on {len(part)} rows of {table.table.name}"
    show(metrics_table(name, {"value": found}))
    show(groups_table("by group", found))
    say(f"The model has {features_said(part, columns)}")
