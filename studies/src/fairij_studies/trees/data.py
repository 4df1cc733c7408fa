"""The tables of the study of trees: the source of their rows, and their splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from sklearn.utils import Bunch

from fairij.datasets import (
    Split,
    Splits,
    fetch_acs_public_coverage,
    fetch_adult,
    fetch_compas,
    fetch_credit_card,
    fetch_german_credit,
    fetch_university_admissions,
    make_splits,
)
from fairij.datasets.adult import VALIDATION

ADULT, COMPAS, GERMAN = "UCI Adult", "COMPAS", "German credit"
COVERAGE, COVERAGE_SAMPLE = "ACSPublicCoverage", "ACSPublicCoverage, sample"
CREDIT_CARD, ADMISSIONS = "Credit card clients", "University admissions"  # of other studies
TUNING_TEST = 0.3  # of the training rows: they replace the test rows while settings are chosen


@dataclass(frozen=True)
class Places:
    """Where data files are: the cache, and a Parquet file with a sample of Coverage."""

    data_home: str | None = None
    coverage: str | None = None

    @property
    def titles(self) -> tuple[str, ...]:
        return (ADULT, COMPAS, GERMAN, COVERAGE_SAMPLE if self.coverage else COVERAGE)


def _adult(places: Places, include: bool) -> Bunch:
    return fetch_adult(include_sensitive=include, data_home=places.data_home)


def _compas(places: Places, include: bool) -> Bunch:
    return fetch_compas(include_sensitive=include, data_home=places.data_home)


def _german(places: Places, include: bool) -> Bunch:
    return fetch_german_credit(include_sensitive=include, data_home=places.data_home)


def _credit_card(places: Places, include: bool) -> Bunch:
    return fetch_credit_card(include_sensitive=include, data_home=places.data_home)


def _admissions(places: Places, include: bool) -> Bunch:
    return fetch_university_admissions(include_sensitive=include, data_home=places.data_home)


def _coverage(places: Places, include: bool) -> Bunch:
    return fetch_acs_public_coverage(
        include_sensitive=include, data_home=places.data_home, path=places.coverage
    )


LOADERS: dict[str, Callable[[Places, bool], Bunch]] = {
    ADULT: _adult,
    COMPAS: _compas,
    GERMAN: _german,
    COVERAGE: _coverage,
    COVERAGE_SAMPLE: _coverage,
    CREDIT_CARD: _credit_card,
    ADMISSIONS: _admissions,
}


@lru_cache(maxsize=2)
def _bunch(title: str, places: Places, include: bool) -> Bunch:
    return LOADERS[title](places, include)


def source(title: str, places: Places, include: bool) -> str:
    """Return the names of the files with the first digits of their SHA-256."""
    hashes = _bunch(title, places, include).sha256
    return ", ".join(f"{name} {digest[:16]}" for name, digest in hashes.items())


@lru_cache(maxsize=2)
def load_splits(title: str, places: Places, include: bool, seed: int) -> Splits:
    """Split Adult into UCI's test set and 33 % of the rest for validation, the others 50/20/30."""
    bunch = _bunch(title, places, include)
    if bunch.split is None:
        return make_splits(bunch, seed, validation=0.2, test=0.3)
    return make_splits(bunch, seed, validation=VALIDATION)


def tuning_splits(splits: Splits) -> Splits:
    """Return splits without the test set. A part of the training rows replaces it."""
    train = splits.train
    cut = len(train) - round(TUNING_TEST * len(train))

    def part(rows: slice) -> Split:
        return Split(train.X[rows], train.y[rows], train.s[rows])

    return replace(splits, train=part(slice(cut)), test=part(slice(cut, None)))
