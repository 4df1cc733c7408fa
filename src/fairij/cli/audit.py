"""`fairij audit`: how a model treats groups."""

from __future__ import annotations

from fairij.cli.console import print_json, say
from fairij.cli.options import (
    ColumnOptions,
    Config,
    Json,
    MeasureOptions,
    ModelOptions,
    ModelPath,
    TableOptions,
)

EXAMPLES = (
    "fairij audit --model model.txt --table test.csv --label income --sensitive sex",
    "fairij audit --model model.skops --table people.parquet --label y --sensitive sex "
    "--sensitive race --json",
    "fairij audit --model net.safetensors --model-class net.py:Net --table shop.duckdb "
    '--query "select * from orders" --label paid --sensitive gender',
)


def audit(
    model: ModelPath,
    table: TableOptions,
    columns: ColumnOptions,
    opening: ModelOptions,
    how: MeasureOptions,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Show how a model treats groups: rates and gaps on a table, with bootstrap intervals."""
    from fairij.cli.display import audit_dict, show_audits
    from fairij.cli.measure import measured
    from fairij.cli.rows import check_two_groups, features_said, read_part

    file = opening.open(model)
    part = check_two_groups(read_part(table.table, table.query, columns, file), table.table)
    found = measured(file.model, part, how)
    if as_json:
        print_json(
            {
                **audit_dict(found),
                "rows": len(part),
                "model": {"path": str(model), "kind": file.kind},
                "features": part.feature_names,
                "sensitive": columns.sensitive,
            }
        )
        return
    name = f"{model.name} on {len(part)} rows of {table.table.name}"
    show_audits(name, {"value": found})
    say(f"The model has {features_said(part, columns)}")
