"""The work of `fairij reproduce`: run studies again, if the package of studies is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fairij.cli.console import tell
from fairij.cli.contents import CONTENTS, Holds, differences, write_contents
from fairij.errors import FairIJError, InvalidInputError
from fairij.report.progress import bar_or_lines

INSTALL = "pip install ./studies"
PAGE_HOLDS = Holds("The page of the study, or a figure of it.")
RECORDS_HOLD = Holds("The records: the figures of each unit of work.")


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
    name = name.replace("_", "-")
    if name not in studies.STUDIES:
        raise InvalidInputError(
            f"The study must be one of {', '.join(studies.STUDIES)}; got {name!r}."
        )
    path = options.get("path")
    if path is not None and not (path.is_file() or path.is_dir()):
        raise InvalidInputError(f"--path must be a file or a folder of data, got {path}.")
    command = f"reproduce {name}"
    _check_folder(folder, command)
    given = {key: value for key, value in options.items() if value is not None}
    with _listed(folder, command), bar_or_lines() as progress:
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


def _check_folder(folder: Path, command: str) -> None:
    """Raise if a README or figures of another kind could be overwritten."""
    if folder.is_file():
        raise FileExistsError(f"--out must be a folder, but {folder} is a file.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / CONTENTS).exists():
        _check_earlier(folder, command)
        return
    for name, why in differences(folder, command):
        if _is_drawn(name):
            raise FileExistsError(
                f"{folder} holds {name!r}, which {why}, and the study would replace it: move it "
                "away, or name a new folder."
            )


def _check_earlier(folder: Path, command: str) -> None:
    """Raise unless a folder without a list, as version 0.1.0 wrote it, has records of the study."""
    from fairij_studies.records import has_records, read_records

    try:
        is_own = has_records(folder) and all(
            command == f"reproduce {record['study']}" for record in read_records(folder)
        )
    except Exception:  # files of the same names, but of another kind
        is_own = False
    if not is_own:
        raise FileExistsError(
            f"--out must be a new or empty folder, or that of the study, but {folder} holds files "
            "that are not of this study. A README and figures could replace them. Name a new "
            "folder."
        )


def _is_drawn(name: str) -> bool:
    return name == "README.md" or name.endswith(".svg")


@contextmanager
def _listed(folder: Path, command: str) -> Iterator[None]:
    """List what the study has written, before it goes on and when it ends, however that comes."""
    from fairij_studies.records import JOURNAL, RESULTS

    def write() -> None:
        drawn = {path.name: PAGE_HOLDS for path in folder.iterdir() if _is_drawn(path.name)}
        write_contents(folder, command, drawn | {RESULTS: RECORDS_HOLD, JOURNAL: RECORDS_HOLD})

    folder.mkdir(parents=True, exist_ok=True)
    write()
    try:
        yield
    finally:
        if {path.name for path in folder.iterdir()} == {CONTENTS}:  # nothing came of it
            (folder / CONTENTS).unlink()
            folder.rmdir()
        else:
            write()
