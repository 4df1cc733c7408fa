"""Loaders that check hashes, and splits of their data.

Every loader returns a scikit-learn `Bunch` with `data`, a 0/1 `target`, `sensitive_features` and
the official `split`, if one is published.
"""

from fairij.datasets._files import DatasetUnavailable, HashMismatch, get_data_home
from fairij.datasets.acs import fetch_acs_public_coverage
from fairij.datasets.adult import adult_splits, fetch_adult
from fairij.datasets.comments import fetch_civil_comments, fetch_wikipedia_comments
from fairij.datasets.compas import fetch_compas
from fairij.datasets.credit_card import fetch_credit_card
from fairij.datasets.german_credit import fetch_german_credit
from fairij.datasets.splits import Encoded, Split, Splits, encode, make_splits, three_way_split
from fairij.datasets.university_admissions import fetch_university_admissions

__all__ = [
    "DatasetUnavailable",
    "Encoded",
    "HashMismatch",
    "Split",
    "Splits",
    "adult_splits",
    "encode",
    "fetch_acs_public_coverage",
    "fetch_adult",
    "fetch_civil_comments",
    "fetch_compas",
    "fetch_credit_card",
    "fetch_german_credit",
    "fetch_university_admissions",
    "fetch_wikipedia_comments",
    "get_data_home",
    "make_splits",
    "three_way_split",
]
