"""`fairij reproduce`: the paper's experiments, run anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairij.cli.display import print_json, say
from fairij.cli.options import Json
from fairij.method.progress import reporter

EXAMPLES = (
    "fairij reproduce list",
    "fairij reproduce adult --quick --out my-adult",
)


def reproduce(
    name: Annotated[str, typer.Argument(help="The study; `fairij reproduce list` lists them.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for records and figures. Default: reproduced-NAME."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small form of it that takes minutes.")
    ] = False,
    processes: Annotated[int, typer.Option(help="How many units to work on at a time.")] = 1,
    path: Annotated[
        Path | None, typer.Option(help="Take the data from this file or folder.")
    ] = None,
    data_home: Annotated[Path | None, typer.Option(help="Where data files are kept.")] = None,
    as_json: Json = False,
) -> None:
    """Run a study of the paper again; one that was stopped goes on where it stopped.

    The folder must be new, empty, or that of an earlier run of the study.
    """
    from fairij_studies import STUDIES
    from fairij_studies import reproduce as run

    if name == "list":
        if as_json:
            print_json({"studies": list(STUDIES)})
        else:
            say("\n".join(STUDIES))
        return
    folder = out or Path(f"reproduced-{name}")
    _check_folder(folder)
    given: dict[str, Any] = {"path": path, "data_home": data_home}
    options = {key: value for key, value in given.items() if value is not None}
    with reporter("auto", lines=True) as progress:
        records = run(name, folder, quick=quick, processes=processes, progress=progress, **options)
    if as_json:
        print_json({"study": name, "records": len(records), "out": str(folder)})
    else:
        say(f"{len(records)} records and the figures of {name} are in {folder}")


def _check_folder(folder: Path) -> None:
    """Raise where a README or figures of somebody else's could be overwritten."""
    from fairij_studies.driver import RESULTS

    if folder.is_file():
        raise FileExistsError(f"--out must be a folder, but {folder} is a file.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / RESULTS).is_file():
        raise FileExistsError(
            f"{folder} holds files that are not of a study, which a README and figures could "
            "replace; name a new folder."
        )
