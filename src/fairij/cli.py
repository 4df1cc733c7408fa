"""The command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fairij._version import __version__
from fairij.errors import FairIJError

app = typer.Typer(
    help="Make a model that you already have fair, without training it again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fairij {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Make a model that you already have fair, without training it again."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page, plots, summary and edit.")],
    seed: Annotated[int, typer.Option(help="Of the split and the training.")] = 0,
    constraint: Annotated[
        str,
        typer.Option(
            help="demographic_parity, equal_opportunity, equalized_odds or equalized_odds_balanced."
        ),
    ] = "demographic_parity",
    data_home: Annotated[
        Path | None, typer.Option(help="Where data files are kept; default as for the loaders.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the folder if it exists.")
    ] = False,
) -> None:
    """Train the paper's network on Adult, edit it, and show before and after on the test set."""
    from fairij.demo import GAP_METRIC, check_folder, run_demo, write_demo

    if constraint not in GAP_METRIC:
        _fail(f"--constraint must be one of {', '.join(GAP_METRIC)}; got {constraint!r}.", 2)
    try:
        check_folder(out.resolve(), force=force)
    except FileExistsError as error:
        _fail(str(error), 2)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=errors, transient=True) as progress:
            task = progress.add_task("training the network on Adult", total=100)
            result = run_demo(
                seed=seed,
                constraint=constraint,
                data_home=data_home,
                on_epoch=lambda done, total: progress.update(task, completed=done, total=total),
            )
        write_demo(result, out, force=force)
    except (FairIJError, OSError) as error:
        _fail(str(error), 1)
    table = Table(title="UCI Adult, official test set")
    frame = result.table()
    table.add_column("")
    for name in frame.columns:
        table.add_column(name, justify="right")
    for row in frame.itertuples():
        table.add_row(*map(str, row))
    console.print(table)
    console.print(result.answer(), highlight=False)
    console.print(
        "Training took {train:.1f} s, the edit {mitigate:.1f} s.".format(**result.seconds),
        highlight=False,
    )
    console.print(f"The page is {out / 'report.html'}", highlight=False, soft_wrap=True)


def _fail(message: str, code: int) -> None:
    errors.print(f"error: {message}", style="red", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(code)
