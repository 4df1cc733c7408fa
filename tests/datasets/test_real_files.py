"""Facts about the published files, which are fetched once and then read from that cache."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fairij_studies.adult.paper import paper_splits
from fairij_studies.coverage import coverage_splits
from sklearn.utils import Bunch

from fairij.datasets import (
    DatasetUnavailable,
    Splits,
    adult_splits,
    fetch_acs_public_coverage,
    fetch_adult,
    fetch_credit_card,
    fetch_university_admissions,
)

SHARED = Path(__file__).parents[3] / "shared" / "data" / "acs_public_coverage"
CALIFORNIA = SHARED / "derived_CA2018_by_index_57720_196289.parquet"
needs_survey = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no survey sample at {SHARED}")


def test_adult_rows_and_rates(real_home: Path) -> None:
    adult = fetch_adult(data_home=real_home, download=False)
    assert adult.split.value_counts().to_dict() == {"train": 32561, "test": 16281}
    rates = adult.target.groupby([adult.split, adult.sensitive_features], observed=True).mean()
    expected = {
        ("train", "Female"): 0.109461,
        ("train", "Male"): 0.305737,
        ("test", "Female"): 0.108836,
        ("test", "Male"): 0.299816,
    }
    assert rates.to_dict() == pytest.approx(expected, abs=1e-6)
    assert (adult.data == "?").sum().sum() == 6465


@pytest.mark.parametrize(
    ("splits_of", "include_sensitive", "n_test", "n_inputs"),
    [
        (adult_splits, False, 16281, 106),
        (adult_splits, True, 16281, 108),
        (paper_splits, False, 12661, 13),
        (paper_splits, True, 12661, 14),
    ],
)
def test_adult_sizes_are_those_of_the_papers_table(
    real_home: Path,
    splits_of: Callable[..., Splits],
    include_sensitive: bool,
    n_test: int,
    n_inputs: int,
) -> None:
    splits = splits_of(1, include_sensitive=include_sensitive, data_home=real_home, download=False)
    assert [part.X.shape for part in splits] == [
        (21815, n_inputs),
        (10746, n_inputs),
        (n_test, n_inputs),
    ]
    assert all(np.isfinite(part.X).all() for part in splits)


@needs_survey
def test_the_survey_sample_counts_races_from_zero() -> None:
    files = [SHARED / f"ACSPublicCoverage.{part}.parquet" for part in ("test", "validation")]
    survey = fetch_acs_public_coverage(path=files)
    assert len(survey.data) == 382_789
    assert survey.sensitive_features.value_counts().to_dict() == {"White": 326_209, "Black": 56_580}


@needs_survey
def test_the_californian_sample_in_three_parts() -> None:
    splits = coverage_splits(0, path=CALIFORNIA)
    assert [len(part) for part in splits] == [17394, 6958, 10437]
    assert splits.groups == ("Black", "White")
    assert len(splits.feature_names) == 55


def cached(fetch: Callable[..., Bunch]) -> Bunch:
    try:
        return fetch(download=False)
    except DatasetUnavailable:
        pytest.skip("the file is not in the cache: fairij datasets fetch")


def test_card_clients_are_uci_s_thirty_thousand() -> None:
    card = cached(fetch_credit_card)
    assert len(card.data) == 30_000
    assert card.target.sum() == 6_636
    assert card.sensitive_features.value_counts().to_dict() == {"Female": 18_112, "Male": 11_888}
    education = card.data["EDUCATION"].value_counts().sort_index()  # as in UCI's spreadsheet
    assert list(education) == [14, 10_585, 14_030, 4_917, 123, 280, 51]
    assert list(card.data["MARRIAGE"].value_counts().sort_index()) == [54, 13_659, 15_964, 323]


def test_students_and_their_grades() -> None:
    students = cached(fetch_university_admissions)
    assert len(students.data) == 43_303
    rates = students.target.groupby(students.sensitive_features, observed=True).mean()
    assert rates.to_dict() == pytest.approx({"Female": 0.563668, "Male": 0.378061}, abs=1e-6)
