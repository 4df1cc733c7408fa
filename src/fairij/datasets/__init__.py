"""Loaders that check hashes, and the splits of the paper's experiments.

Every loader returns a scikit-learn `Bunch` with `data`, a 0/1 `target`, `sensitive_features` and
the official `split`, if one is published.
"""

from fairij.datasets._files import DatasetUnavailable, HashMismatch, get_data_home
from fairij.datasets.acs import fetch_acs_public_coverage
from fairij.datasets.adult import fetch_adult
from fairij.datasets.civil_comments import fetch_civil_comments
from fairij.datasets.compas import fetch_compas
from fairij.datasets.encoding import Encoded, encode
from fairij.datasets.german_credit import fetch_german_credit
from fairij.datasets.splits import Split, Splits, make_splits, three_way_split
from fairij.datasets.trials import adult_splits, coverage_splits
from fairij.datasets.two_moons import make_two_moons
from fairij.datasets.wikipedia_comments import fetch_wikipedia_comments

__all__ = [
    "DatasetUnavailable",
    "Encoded",
    "HashMismatch",
    "Split",
    "Splits",
    "adult_splits",
    "coverage_splits",
    "encode",
    "fetch_acs_public_coverage",
    "fetch_adult",
    "fetch_civil_comments",
    "fetch_compas",
    "fetch_german_credit",
    "fetch_wikipedia_comments",
    "get_data_home",
    "make_splits",
    "make_two_moons",
    "three_way_split",
]
