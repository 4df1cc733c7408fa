"""`fairij demo`: the whole way on Adult."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fairij.cli.display import print_json, say, show
from fairij.cli.errors import BAD_INPUT, errors, fail
from fairij.cli.options import Config, Force, Json

EXAMPLES = ("fairij demo --out my-demo",)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page, plots, summary and edit.")],
    seed: Annotated[int, typer.Option(min=0, help="Of the split and the training.")] = 0,
    constraint: Annotated[
        str,
        typer.Option(
            help="demographic_parity, equal_opportunity, equalized_odds or equalized_odds_balanced."
        ),
    ] = "demographic_parity",
    data_home: Annotated[
        Path | None, typer.Option(help="Where data files are kept; default as for the loaders.")
    ] = None,
    as_json: Json = False,
    force: Force = False,
    config: Config = None,
) -> None:
    """Train the paper's network on Adult, edit it, and show before and after on the test set."""
    from fairij.cli.demonstration import GAP_METRIC, check_folder, run_demo, write_demo

    if constraint not in GAP_METRIC:
        fail(f"--constraint must be one of {', '.join(GAP_METRIC)}; got {constraint!r}.", BAD_INPUT)
    check_folder(out.resolve(), force=force)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=errors, transient=True, disable=not errors.is_terminal
    ) as progress:
        task = progress.add_task("training the network on Adult", total=100)
        result = run_demo(
            seed=seed,
            constraint=constraint,
            data_home=data_home,
            on_epoch=lambda done, total: progress.update(task, completed=done, total=total),
        )
    write_demo(result, out, force=force)
    if as_json:
        print_json({**result.summary(), "out": out})
        return
    table = Table(title="UCI Adult, official test set")
    frame = result.table()
    table.add_column("")
    for name in frame.columns:
        table.add_column(name, justify="right")
    for row in frame.itertuples():
        table.add_row(*map(str, row))
    show(table)
    say(result.answer())
    say("Training took {train:.1f} s, the edit {mitigate:.1f} s.".format(**result.seconds))
    say(f"The page is {out / 'report.html'}")
