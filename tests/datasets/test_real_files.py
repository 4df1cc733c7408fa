"""Facts about the published files, which are fetched once and then read from that cache."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fairij_studies.adult.paper import paper_splits
from fairij_studies.coverage import coverage_splits

from fairij.datasets import Splits, adult_splits, fetch_acs_public_coverage, fetch_adult

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
