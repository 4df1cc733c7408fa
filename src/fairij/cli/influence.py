"""`fairij influence`: how much each training row pushes the gap."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairij.cli.config import as_asked, note_changed, settings_toml
from fairij.cli.console import print_json, say
from fairij.cli.options import (
    ColumnOptions,
    Config,
    EditOptions,
    FitTables,
    Force,
    Json,
    ModelOptions,
    ModelPath,
)
from fairij.cli.outputs import check_target, whole_file
from fairij.errors import InvalidInputError

EXAMPLES = (
    "fairij influence --model model.txt --train train.csv --validation validation.csv "
    "--label income --sensitive sex --out scores.parquet",
    "fairij influence --config scores.settings.toml --out again.csv",
)


def influence(
    model: ModelPath,
    tables: FitTables,
    columns: ColumnOptions,
    opening: ModelOptions,
    edit: EditOptions,
    out: Annotated[Path, typer.Option(help="New .csv or .parquet file, one line per row.")],
    as_json: Json = False,
    force: Force = False,
    config: Config = None,
) -> None:
    """Score every training row: positive means that dropping it lowers the gap.

    The file has one line per row of --train, in the same order: row, influence, and rank (1 is the
    most harmful). Rows that were split off for validation have no score. With --drop loss_aware
    there is also loss_influence: positive means that dropping the row lowers the validation loss.
    A file of the same name that ends in .settings.toml can repeat the run.
    """
    from fairij.cli.fitting import fit, scores_frame
    from fairij.storage.tables import table_kind, write_table

    if table_kind(out) not in ("csv", "parquet"):
        raise InvalidInputError(f"--out must end in .csv or .parquet, got {out}.")
    settings_file = out.with_name(f"{out.name.split('.')[0]}.settings.toml")
    for target in (out, settings_file):
        check_target(target, force=force)
    files = {"model": model, **tables.files()}
    note_changed(config, files)
    mitigator = fit(opening.open(model), tables, columns, edit, scores_only=True).mitigator
    frame = scores_frame(mitigator)
    settings = as_asked({"model": model}, opening, tables, columns, edit)
    with whole_file(out, force=force) as target, whole_file(settings_file, force=force) as noted:
        write_table(frame, target)
        noted.write_text(settings_toml("influence", settings, files), encoding="utf-8")
    found: dict[str, Any] = {
        "out": str(out),
        "settings": str(settings_file),
        "rows": len(frame),
        "positive": int((mitigator.influence_ > 0).sum()),
        "constraint": edit.constraint,
        "gap": float(mitigator.candidates_["gap"].iloc[0]),
        "worst_rows": frame.nsmallest(10, "rank")["row"].tolist(),
        "diagnostics": mitigator.diagnostics_,
    }
    if as_json:
        print_json(found)
        return
    say(
        f"Wrote the scores of {found['rows']} rows to {out}. Dropping any of {found['positive']} "
        f"of them would lower the {edit.constraint.replace('_', ' ')} gap, now {found['gap']:.4f} "
        f"on validation rows. The worst rows: {', '.join(map(str, found['worst_rows']))}."
    )
