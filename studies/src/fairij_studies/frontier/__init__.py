"""Which method is best, on how many tables, models and constraints, at equal loss of accuracy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd

from fairij.datasets import get_data_home
from fairij_studies.driver import Scalar, Study, Unit
from fairij_studies.frontier.measured import AS_TRAINED, CONSTRAINTS, MODELS, NETWORK, Case
from fairij_studies.frontier.methods import METHODS, records_of
from fairij_studies.frontier.tables import Source, bunch
from fairij_studies.trees import coverage_file
from fairij_studies.trees.data import ADULT, COMPAS, CREDIT_CARD, Places
from fairij_studies.trees.models import LIGHTGBM, LOGISTIC

SEEDS = tuple(range(110, 120))  # not used to choose any setting
SIZE = {ADULT: 1.0, COMPAS: 0.2, CREDIT_CARD: 0.6}  # cost; others 0.7
QUICK = {  # the cases and constraints of the quick form
    (ADULT, LIGHTGBM): CONSTRAINTS[:1],
    (ADULT, NETWORK): CONSTRAINTS[:1],
    (COMPAS, LOGISTIC): CONSTRAINTS[1:2],
}
QUICK_ROWS, QUICK_EPOCHS, QUICK_SETTINGS = 400, 3, 3


def draw(records: pd.DataFrame, folder: Path) -> None:
    """Draw the page; the drawing library is loaded when it is needed."""
    from fairij_studies.frontier import page

    page.draw(records, folder)


def make_study(
    *,
    data_home: str | os.PathLike[str] | None = None,
    path: str | os.PathLike[str] | None = None,
    packed: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Study:
    """Return the study. ``path`` is a Parquet file of ACSPublicCoverage, or a folder with one.

    Without it, Coverage is California 2014 through folktables. ``packed`` is a folder with the
    tables as `python -m fairij_studies.frontier pack` writes them; then nothing else is read.
    ``cache`` is the folder of trained networks.
    """
    coverage = None if path is None else coverage_file(Path(path))
    kept = get_data_home(data_home) / "studies" if cache is None else Path(cache)
    source = Source(
        Places(None if data_home is None else os.fspath(data_home), coverage),
        None if packed is None else os.fspath(packed),
        str(kept),
    )
    return Study("frontier", partial(study_units, source), draw)


def study_units(source: Source, quick: bool) -> list[Unit]:
    """Return all units, seed by seed; in each, units of a base model are together."""
    return [unit for case in _cases(source, quick) for unit in _units_of(case, quick)]


def _cases(source: Source, quick: bool) -> Iterator[Case]:
    for seed in SEEDS[:1] if quick else SEEDS:
        for model in MODELS:
            for title in source.titles:
                if not quick:
                    yield Case(title, model, seed, source)
                elif (title, model) in QUICK:
                    yield Case(title, model, seed, source, QUICK_ROWS, QUICK_EPOCHS)


def _units_of(case: Case, quick: bool) -> Iterator[Unit]:
    constraints = QUICK[case.title, case.model] if quick else CONSTRAINTS
    for name, method in METHODS.items():
        if case.model not in method.models:
            continue
        for constraint in constraints:
            key: dict[str, Scalar] = {
                "seed": case.seed,
                "data": case.title,
                "model": case.model,
                "constraint": constraint,
                "method": name,
            }
            arguments = {
                "case": case,
                "method": name,
                "constraint": constraint,
                "at_most": QUICK_SETTINGS if quick else None,
            }
            cost = method.cost.get(case.model, 1.0) * SIZE.get(case.title, 0.7)
            yield Unit(key, records_of, arguments, cost)


__all__ = ["AS_TRAINED", "SEEDS", "bunch", "make_study", "study_units"]
