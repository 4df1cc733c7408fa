"""`fairij reproduce`: run the paper's experiments again, if the package of studies is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairij.cli.console import print_json, say
from fairij.cli.options import Json

EXAMPLES = (
    "fairij reproduce list",
    "fairij reproduce adult --quick --out my-adult",
)


INSTALL = "pip install ./studies"


def reproduce(
    name: Annotated[str, typer.Argument(help="The study; `fairij reproduce list` lists them.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for records and figures. Default: reproduced-NAME."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small form that takes minutes.")
    ] = False,
    processes: Annotated[int, typer.Option(help="Number of units to work on at a time.")] = 1,
    path: Annotated[
        Path | None, typer.Option(help="Read the data from this file or folder.")
    ] = None,
    data_home: Annotated[
        Path | None, typer.Option(help="Folder where data files are kept.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a study of the paper again. A study that was stopped continues where it stopped.

    The folder must be new or empty, or hold an earlier run of the study.
    """
    studies = _studies()
    if name == "list":
        if as_json:
            print_json({"studies": list(studies.STUDIES)})
        else:
            say("\n".join(studies.STUDIES))
        return
    folder = out or Path(f"reproduced-{name}")
    _check_folder(folder)
    given: dict[str, Any] = {"path": path, "data_home": data_home}
    options = {key: value for key, value in given.items() if value is not None}
    from fairij.report.progress import reporter

    with reporter("auto", or_lines=True) as progress:
        records = studies.reproduce(
            name, folder, quick=quick, processes=processes, progress=progress, **options
        )
    if as_json:
        print_json({"study": name, "records": len(records), "out": str(folder)})
    else:
        say(f"{len(records)} records and the figures of {name} are in {folder}")


def _studies() -> Any:
    """Return the package of studies, or say how to install it."""
    from importlib import import_module
    from importlib.util import find_spec

    from fairij.errors import FairIJError

    if find_spec("fairij_studies") is None:
        raise FairIJError(
            "`fairij reproduce` needs the package fairij-studies, which is not installed. It is in "
            f"the repository of fairij. Run `{INSTALL}` there."
        )
    return import_module("fairij_studies")


def _check_folder(folder: Path) -> None:
    """Raise if a README or figures of another kind could be overwritten."""
    from fairij_studies.records import has_records

    if folder.is_file():
        raise FileExistsError(f"--out must be a folder, but {folder} is a file.")
    if folder.is_dir() and any(folder.iterdir()) and not has_records(folder):
        raise FileExistsError(
            f"--out must be a new or empty folder, or that of a study, but {folder} holds files "
            "that are not of a study. A README and figures could replace them. Name a new folder."
        )
