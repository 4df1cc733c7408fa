"""Run a study: do every unit of work once and record it.

A study that was stopped continues with the units that are not recorded yet. If a unit fails, the
others are still done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fairij import __version__
from fairij.data.checks import whole_number
from fairij.errors import InvalidInputError
from fairij.method.run import Progress, silent
from fairij_studies.provenance import code_hash
from fairij_studies.records import (
    JOURNAL,
    UNIT,
    append_unit,
    cut_torn_end,
    fold_journal,
    identity,
    read_records,
    record_frame,
    sole_writer,
)
from fairij_studies.workers import Outcome, Scalar, StudyError, Unit, work_through

LOG = logging.getLogger(__name__)

__all__ = ["Scalar", "Study", "StudyError", "Unit", "load_records", "run_study"]


@dataclass(frozen=True)
class Study:
    """The units of a study, and how its README and figures are drawn from the records.

    Parameters
    ----------
    name : str
        The name in ``fairij reproduce NAME``.
    units : callable
        ``units(quick)`` returns the units of the study, or of its quick form.
    draw : callable
        ``draw(records, folder)`` writes README.md and the figures into a folder.
    source : callable, default=None
        Describes the data, in the same words as the field ``data_source`` of the records.
    """

    name: str
    units: Callable[[bool], Sequence[Unit]]
    draw: Callable[[pd.DataFrame, Path], None]
    source: Callable[[], str] | None = None


def run_study(
    study: Study,
    folder: Path | str,
    *,
    quick: bool = False,
    processes: int = 1,
    only: Callable[[Unit], bool] | None = None,
    progress: Progress = silent,
) -> pd.DataFrame:
    """Do all units that ``folder`` has no records of, and return all records.

    Parameters
    ----------
    study : Study
        The study.
    folder : path
        Where the records are kept.
    quick : bool, default=False
        Run the short form. Its records are kept separate from those of the whole study.
    processes : int, default=1
        Number of workers with one thread each. 1 works in this process.
    only : callable, default=None
        Returns whether to do a unit. None does all units.
    progress : callable, optional
        Called with ``(study, cost done, total cost)`` after each unit.

    Raises
    ------
    StudyError
        At the end, if units failed. Another run tries them again.
    """
    whole_number("processes", processes, 1)
    code_hash()  # now, because the files may change during the run
    folder = Path(folder)
    units = [unit for unit in study.units(quick) if only is None or only(unit)]
    _check_distinct(units)
    with sole_writer(folder):
        cut_torn_end(folder / JOURNAL)
        earlier = [r for r in read_records(folder) if r["quick"] == quick]
        _check_same_data(study, earlier, folder)
        recorded = {r[UNIT] for r in earlier}
        waiting = [unit for unit in units if identity(unit.key) not in recorded]
        total = round(sum(unit.cost for unit in units))
        reached = sum(unit.cost for unit in units) - sum(unit.cost for unit in waiting)
        progress(study.name, round(reached), total)
        failed: list[str] = []
        for unit, outcome in work_through(waiting, processes):
            reached += unit.cost
            if outcome.error is None:
                append_unit(folder / JOURNAL, unit_records(study, unit, outcome, quick=quick))
            else:
                failed.append(f"{identity(unit.key)}:\n{outcome.error}")
                LOG.warning("A unit failed: %s", failed[-1])  # now, since a long run may be stopped
            progress(study.name, round(reached), total)
        fold_journal(folder)
    if failed:
        raise StudyError(
            f"{len(failed)} of {len(waiting)} units of the study {study.name!r} failed. The other "
            f"units are recorded in {folder}. Run the study again to repeat the failed units.\n"
            + "\n".join(failed)
        )
    return load_records(folder, quick=quick)


def load_records(folder: Path | str, *, quick: bool = False) -> pd.DataFrame:
    """Return the records of a study without running anything."""
    records = read_records(Path(folder))
    return record_frame([record for record in records if record["quick"] == quick])


def unit_records(
    study: Study, unit: Unit, outcome: Outcome, *, quick: bool
) -> list[dict[str, Any]]:
    """Return the records of a finished unit with all that says where they come from."""
    return [
        {
            "study": study.name,
            "quick": quick,
            "version": __version__,
            "code": code_hash(),
            **unit.key,
            "seconds": outcome.seconds,  # of the unit, unless the record has its own
            **record,
            "unit_seconds": outcome.seconds,
            "unit_cpu_seconds": outcome.cpu_seconds,
            UNIT: identity(unit.key),
        }
        for record in outcome.records
    ]


def _check_same_data(study: Study, earlier: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Raise if the earlier records are of other data."""
    read = {r["data_source"] for r in earlier if r.get("data_source") is not None}
    if study.source is None or not read:
        return
    now = study.source()
    if read != {now}:
        raise InvalidInputError(
            f"The study must continue with the data that {folder} has records of "
            f"({', '.join(sorted(read))}), but it reads {now}. Give those data, or another folder."
        )


def _check_distinct(units: Sequence[Unit]) -> None:
    seen: set[str] = set()
    for unit in units:
        name = identity(unit.key)
        if name in seen:
            raise InvalidInputError(f"Every unit must have a key of its own, got {name} twice.")
        seen.add(name)
