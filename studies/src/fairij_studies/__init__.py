"""The experiments behind fairij, ready to be run again.

A study is one folder with a function ``make_study(**data_options) -> Study``, and one line in
`STUDIES`. It is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from fairij.errors import InvalidInputError
from fairij.method.run import Progress, silent
from fairij_studies.driver import Study, StudyError, Unit, load_records, run_study

STUDIES: dict[str, str] = {
    "adult": "fairij_studies.adult",
    "coverage": "fairij_studies.coverage",
    "two-moons": "fairij_studies.two_moons",
    "trees": "fairij_studies.trees",
    "comments": "fairij_studies.comments",
    "frontier": "fairij_studies.frontier",
}


def get_study(name: str, **data_options: Any) -> Study:
    """Return a study by name. The options say where its data are."""
    name = name.replace("_", "-")
    if name not in STUDIES:
        raise InvalidInputError(f"`name` must be one of {list(STUDIES)}, got {name!r}.")
    make: Callable[..., Study] = import_module(STUDIES[name]).make_study
    return make(**data_options)


def reproduce(
    name: str,
    folder: Path | str,
    *,
    quick: bool = False,
    processes: int = 1,
    progress: Progress = silent,
    **data_options: Any,
) -> pd.DataFrame:
    """Run the missing units of a study, then draw its README and figures into the same folder."""
    study = get_study(name, **data_options)
    records = run_study(study, folder, quick=quick, processes=processes, progress=progress)
    study.draw(records, Path(folder))
    return records


def redraw(name: str, folder: Path | str, *, quick: bool = False) -> pd.DataFrame:
    """Draw the README and figures of a study from its records, without running anything."""
    records = load_records(folder, quick=quick)
    get_study(name).draw(records, Path(folder))
    return records


__all__ = [
    "STUDIES",
    "Study",
    "StudyError",
    "Unit",
    "get_study",
    "load_records",
    "redraw",
    "reproduce",
    "run_study",
]
