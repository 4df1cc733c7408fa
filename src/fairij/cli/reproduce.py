"""The work of `fairij reproduce`: run studies again, if the package of studies is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fairij.cli.console import tell
from fairij.errors import FairIJError
from fairij.report.progress import bar_or_lines

INSTALL = "pip install ./studies"


def list_studies(*, as_json: bool) -> None:
    names = list(_studies().STUDIES)
    tell({"studies": names}, "\n".join(names), as_json=as_json)


def run_study(
    name: str,
    out: Path | None,
    options: Mapping[str, Path | None],
    *,
    quick: bool,
    processes: int,
    as_json: bool,
) -> None:
    studies, folder = _studies(), out or Path(f"reproduced-{name}")
    _check_folder(folder)
    given = {key: value for key, value in options.items() if value is not None}
    with bar_or_lines() as progress:
        records = studies.reproduce(
            name, folder, quick=quick, processes=processes, progress=progress, **given
        )
    tell(
        {"study": name, "records": len(records), "out": str(folder)},
        f"{len(records)} records and the figures of {name} are in {folder}",
        as_json=as_json,
    )


def _studies() -> Any:
    """Return the package of studies, or say how to install it."""
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
