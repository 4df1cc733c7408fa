"""The commands: their options, help and examples. Each loads its work when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairij._version import __version__
from fairij.cli.audit_options import AuditOptions, CompareOptions
from fairij.cli.errors import EPILOG
from fairij.cli.options import (
    LABEL_CONSTRAINTS,
    USUAL,
    ApplyOptions,
    Config,
    DataHome,
    Force,
    InfluenceOptions,
    Json,
    MaxMemory,
    MitigateOptions,
    ModelOptions,
    MoveOptions,
    ShowColumn,
)
from fairij.cli.registration import command, teaching

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, epilog=EPILOG)
data = typer.Typer(help="List or fetch the data sets of the experiments.", no_args_is_help=True)

# by the names of the loaders, `fairij.datasets.fetch_NAME`
DATASETS = {
    "adult": "UCI Adult: income above 50K, by sex or race",
    "compas": "ProPublica COMPAS: arrest within two years, by race",
    "german_credit": "UCI German credit: good or bad risk",
    "credit_card": "UCI credit card clients of Taiwan: default in the next month, by sex",
    "university_admissions": "UFRGS entrance exams: good grades at university, by gender",
    "acs_public_coverage": "Folktables ACSPublicCoverage, California 2014: public health "
    "insurance, by race",
    "wikipedia_comments": "Comments labelled for toxicity, by identities that they mention",
    "civil_comments": "CivilComments (WILDS' file, from --path), by identities that people marked",
}


@command(
    app,
    "fairij audit --model model.txt --table test.csv --label income --sensitive sex",
    "fairij audit --table predictions.csv --label income --score p --sensitive sex "
    "--page audit.html",
    "fairij audit --model model.skops --table people.parquet --label y --sensitive sex "
    "--sensitive race --json",
    "fairij audit --model net.safetensors --model-class net.py:Net --table shop.duckdb "
    '--query "select * from orders" --label paid --sensitive gender',
)
def audit(asked: AuditOptions) -> None:
    """Show how a model treats groups: rates and gaps on a table, with intervals.

    Give a model file, or a table in which any model's scores or predicted labels stand.
    """
    from fairij.cli.audits import run_audit

    run_audit(asked)


@command(
    app,
    "fairij influence --model model.txt --train train.csv --validation validation.csv "
    "--label income --sensitive sex --out scores.parquet",
    "fairij influence --config scores.settings.toml --out again.csv",
)
def influence(asked: InfluenceOptions) -> None:
    """Score every training row: positive means that dropping it lowers the smooth gap.

    The file has one line per row of --train, in the same order: row, influence, and rank (1 is the
    most harmful). Rows that were split off for validation have no score. With three or more groups
    there is also joint_influence, by which `mitigate` drops rows: it is for all gaps together. With
    --drop loss_aware there is also loss_influence: positive means that dropping the row lowers the
    validation loss.
    A file of the same name that ends in .settings.toml can repeat the run.
    """
    from fairij.cli.fitting import write_scores

    write_scores(asked)


@command(
    app,
    "fairij mitigate --model model.txt --train train.csv --validation validation.csv "
    "--test test.csv --label income --sensitive sex --out result",
    "fairij mitigate --model model.skops --train train.parquet --validation validation.parquet "
    "--label y --sensitive race --constraints equal_opportunity --accuracy-budget 0.01 "
    "--out result",
    "fairij mitigate --score p --train train.csv --validation validation.csv --label y "
    "--sensitive sex --out result",
    "fairij mitigate --config result/settings.toml --out again",
)
def mitigate(asked: MitigateOptions) -> None:
    """Edit a model so that a gap between groups shrinks, without training it again.

    The folder holds the edited model in its own format (model.*), edit.safetensors to apply or
    undo the edit, report.html, summary.json, candidates.csv, influence.csv, settings.toml to
    repeat the run, and contents.json, which says what each file holds.
    """
    from fairij.cli.mitigation import run

    run(asked)


@command(
    app,
    "fairij apply --model model.txt --edit result/edit.safetensors --out fair-model.txt",
    "fairij apply --score p --edit result/black_box.safetensors --table new.csv --out scored.csv",
)
def apply(asked: ApplyOptions) -> None:
    """Apply a saved edit to the model that it was made for, or score a table by the edited model.

    With --table, the new table has the columns of the old one, fair_score (the chance of the
    positive label) and fair_prediction.
    """
    from fairij.cli import edits

    edits.apply(asked)


@command(
    app, "fairij undo --model fair-model.txt --edit result/edit.safetensors --out original.txt"
)
def undo(asked: MoveOptions) -> None:
    """Remove an edit: the original parameters come back, to the last bit."""
    from fairij.cli.edits import move

    move(asked, undo=True)


@command(
    app,
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
    asked: CompareOptions,
) -> None:
    """Measure several models, or edits of the first one, side by side on one table."""
    from fairij.cli.measure import compare_models

    compare_models(models, asked)


@command(app, 'fairij report result --out for-the-board.html --title "Loans, 2026"')
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `mitigate` wrote.")],
    opening: ModelOptions,
    out: Annotated[Path | None, "The new page. Default: report.html in the folder."] = None,
    title: Annotated[str | None, "Another title for the page."] = None,
    show_rows: Annotated[int | None, "As for `mitigate`. Default: as in that run."] = None,
    show_column: ShowColumn = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Write the report page of an earlier run again, from its folder and the tables it names.

    Only the measurements on test rows are computed again. If the model was opened with options
    that can run code, they have to be given again.
    """
    from fairij.cli.console import tell
    from fairij.cli.report_again import write_again

    page = write_again(
        folder,
        out,
        opening,
        {"title": title, "show_rows": show_rows, "show_column": show_column},
        force=force,
    )
    tell({"out": str(page)}, f"The page is {page}", as_json=as_json)


@command(app, "fairij demo", "fairij demo --out my-demo --constraints equal_opportunity")
def demo(
    out: Annotated[Path, "New folder for the page, plots, summary and edit."] = Path("fairij-demo"),
    constraints: Annotated[str, f"The gap to lower: {LABEL_CONSTRAINTS}."] = USUAL,
    random_state: Annotated[
        int, typer.Option(min=0, help="Seed of the split, of training and of the edit.")
    ] = 0,
    data_home: DataHome = None,
    as_json: Json = False,
    force: Force = False,
    config: Config = None,
) -> None:
    """Train the paper's network on Adult, edit it, and show before and after on the test set."""
    from fairij.cli.demonstration import show_demo

    show_demo(out, random_state, constraints, data_home, as_json=as_json, force=force)


@command(app, "fairij reproduce list", "fairij reproduce adult --quick --out my-adult")
def reproduce(
    name: Annotated[str, typer.Argument(help="The study; `fairij reproduce list` lists them.")],
    out: Annotated[Path | None, "Folder for records and figures. Default: reproduced-NAME."] = None,
    quick: Annotated[bool, "Run a small form that takes minutes."] = False,
    processes: Annotated[int, "Number of units to work on at a time."] = 1,
    path: Annotated[Path | None, "Read the data from this file or folder."] = None,
    data_home: Annotated[Path | None, "Folder where data files are kept."] = None,
    as_json: Json = False,
) -> None:
    """Run a study of the paper again. A study that was stopped continues where it stopped.

    The folder must be new or empty, or hold an earlier run of the study.
    """
    from fairij.cli.reproduce import list_studies, run_study

    if name == "list":
        list_studies(as_json=as_json)
        return
    options = {"path": path, "data_home": data_home}
    run_study(name, out, options, quick=quick, processes=processes, as_json=as_json)


@command(data, name="list")
def list_datasets(data_home: DataHome = None, as_json: Json = False) -> None:
    """List the data sets, and the folder of their files."""
    from fairij.cli.datasets import show_datasets

    show_datasets(data_home, as_json=as_json)


@command(data, "fairij datasets fetch adult --out adult.csv")
def fetch(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(DATASETS)}.")],
    out: Annotated[Path | None, "Also write it as one table, .csv or .parquet."] = None,
    path: Annotated[Path | None, "Take the files from here instead of the network."] = None,
    data_home: DataHome = None,
    max_memory: MaxMemory = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Fetch a data set, check its hash, and keep it. --out writes it as one table.

    The table has the features, the sensitive columns, the 0/1 label as `target`, and `split` where
    one is published.
    """
    from fairij.cli.datasets import fetch_dataset

    fetch_dataset(name, out, path=path, data_home=data_home, as_json=as_json, force=force)


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
