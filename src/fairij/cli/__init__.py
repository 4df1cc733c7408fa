"""The command line. Each command is one file, registered here; its work is loaded when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from fairij._version import __version__
from fairij.cli import audit, compare, datasets, demo, edits, influence, mitigate, report, reproduce
from fairij.cli.commands import register, teaching
from fairij.cli.errors import EPILOG

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=EPILOG,
)
data = typer.Typer(help="List or fetch the data sets of the experiments.", no_args_is_help=True)

register(app, "audit", audit.audit, audit.EXAMPLES)
register(app, "influence", influence.influence, influence.EXAMPLES)
register(app, "mitigate", mitigate.mitigate, mitigate.EXAMPLES)
register(app, "apply", edits.apply, edits.APPLY_EXAMPLES)
register(app, "undo", edits.undo, edits.UNDO_EXAMPLES)
register(app, "compare", compare.compare, compare.EXAMPLES)
register(app, "report", report.report, report.EXAMPLES)
register(app, "demo", demo.demo, demo.EXAMPLES)
register(app, "reproduce", reproduce.reproduce, reproduce.EXAMPLES)
register(data, "list", datasets.list_datasets)
register(data, "fetch", datasets.fetch, datasets.EXAMPLES)
app.add_typer(data, name="datasets")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fairij {__version__}")
        raise typer.Exit


def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Make a model that you already have fair, without training it again.

    You need a model file, and tables of rows with labels and groups. `fairij audit` shows how the
    model treats the groups. `fairij mitigate` writes an edited model and a report page.
    `fairij compare` measures models side by side. `fairij undo` removes an edit. Each command has
    a --help with examples. `fairij demo` runs everything on real data.
    """


app.callback(help=teaching(main))(main)
