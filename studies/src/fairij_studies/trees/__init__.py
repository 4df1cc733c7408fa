"""Tree ensembles and logistic regression on four tables, edited instead of trained again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fairij_studies.driver import Scalar, Study, Unit
from fairij_studies.trees.data import ADULT, COVERAGE, COVERAGE_SAMPLE, Places
from fairij_studies.trees.models import HISTOGRAM, LIGHTGBM, LOGISTIC, MODELS
from fairij_studies.trees.refit_comparison import COUNTS, refit_records
from fairij_studies.trees.runs import (
    BUDGETS,
    FORMS,
    RIVALS,
    Case,
    base_records,
    edit_records,
    rival_records,
)

SEEDS = tuple(range(30, 35))  # not used to choose any setting
LARGE = (ADULT, COVERAGE, COVERAGE_SAMPLE)
REDUCTIONS = "ExponentiatedGradient"
QUICK_ROWS, QUICK_COUNTS = 300, (20, 60)


def draw(records: pd.DataFrame, folder: Path) -> None:
    """Draw the page; the drawing library is loaded when it is needed."""
    from fairij_studies.trees import page

    page.draw(records, folder)


def make_study(
    *, data_home: str | os.PathLike[str] | None = None, path: str | os.PathLike[str] | None = None
) -> Study:
    """Return the study. ``path`` is a Parquet file of ACSPublicCoverage, or a folder with one.

    Without it, Coverage is California 2014 through folktables.
    """
    home = None if data_home is None else os.fspath(data_home)
    places = Places(home, None if path is None else coverage_file(Path(path)))
    return Study("trees", partial(study_units, places), draw)


def study_units(places: Places, quick: bool) -> list[Unit]:
    """Return all units. Those of a base model are together, so that they share it."""
    units = [unit for case in _cases(places, quick) for unit in _units_of(case, quick)]
    for seed in SEEDS[:1] if quick else SEEDS:
        arguments = {
            "places": places,
            "seed": seed,
            "counts": QUICK_COUNTS if quick else COUNTS,
            "rows": QUICK_ROWS if quick else None,
        }
        units.append(Unit({"seed": seed, "work": "left out"}, refit_records, arguments, 40))
    return units


def _cases(places: Places, quick: bool) -> Iterator[Case]:
    for title in places.titles:
        for seed in SEEDS[:1] if quick else SEEDS:
            for group_is_feature in (False, True):
                for model in MODELS:
                    if quick and not _is_quick(title, model, group_is_feature):
                        continue
                    rows = QUICK_ROWS if quick else None
                    yield Case(title, model, group_is_feature, seed, places, rows)


def _is_quick(title: str, model: str, group_is_feature: bool) -> bool:
    """Say whether a case is in the quick form: each table, each model, and the group once."""
    if group_is_feature:
        return title == ADULT and model == LOGISTIC
    return title == ADULT or model == LIGHTGBM


def _units_of(case: Case, quick: bool) -> list[Unit]:
    key: dict[str, Scalar] = {
        "seed": case.seed,
        "data": case.title,
        "model": case.model,
        "group_is_feature": case.group_is_feature,
    }
    size = 1.0 if case.title in LARGE else 0.2
    size *= 0.2 if case.model == LOGISTIC else 2.0 if case.model == HISTOGRAM else 1.0
    units = [Unit({**key, "work": "ERM"}, base_records, {"case": case}, cost=size)]
    for form in FORMS:
        rules: dict[str, Any] = {"budgets": (), "targets": 1} if quick else {"budgets": BUDGETS}
        arguments: dict[str, Any] = {"case": case, "form": form, **rules}
        units.append(Unit({**key, "work": form}, edit_records, arguments, cost=20 * size))
    for rival in RIVALS:
        if rival == REDUCTIONS and _too_expensive(case, quick):
            continue
        values = RIVALS[rival][1][-1:] if quick else RIVALS[rival][1]
        arguments = {"case": case, "rival": rival, "values": values}
        cost = (90 if rival == REDUCTIONS else 6) * size
        units.append(Unit({**key, "work": rival}, rival_records, arguments, cost=cost))
    return units


def _too_expensive(case: Case, quick: bool) -> bool:
    """Say whether reductions cost too much: they train the model about 25 times per setting."""
    if quick or case.model == LOGISTIC:
        return case.model != LOGISTIC
    return case.title in LARGE and (case.model == HISTOGRAM or case.group_is_feature)


def coverage_file(path: Path) -> str:
    from fairij_studies.coverage import SAMPLE_FILE

    return str(path / SAMPLE_FILE if path.is_dir() else path)
