from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fairij_studies.adult.paper import paper_splits
from sklearn.utils import Bunch

from fairij.datasets import Splits, adult_splits, fetch_adult, make_splits, three_way_split


@pytest.mark.parametrize(
    ("n", "validation", "test", "sizes"),
    [
        (10, 0.2, 0.3, (5, 2, 3)),
        (100, 0.07, 0.0, (93, 7, 0)),
        (32561, 0.33, 0.0, (21815, 10746, 0)),  # the paper's Adult
        (98394, 0.2211, 0.33, (44168, 21755, 32471)),  # the paper's Coverage
    ],
)
def test_three_way_split_parts_all_rows(
    n: int, validation: float, test: float, sizes: tuple[int, ...]
) -> None:
    parts = three_way_split(n, 0, validation=validation, test=test)
    assert tuple(map(len, parts)) == sizes
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))


def test_three_way_split_follows_the_seed() -> None:
    first, again, other = (three_way_split(50, seed)[1] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("n", "validation", "test", "complaint"),
    [
        (10, 0.5, 0.5, "sum to less than 1, got 0.5 and 0.5"),
        (10, -0.1, 0.3, "at least 0 .* got -0.1 and 0.3"),
        (2, 0.2, 0.3, "`n` must leave rows for training, got 2"),
    ],
)
def test_three_way_split_leaves_rows_for_training(
    n: int, validation: float, test: float, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        three_way_split(n, 0, validation=validation, test=test)


def small_adult(folder: Path, seed: int = 0, **options: object) -> Splits:
    return adult_splits(seed, path=folder, verify=False, **options)


def test_adult_keeps_its_test_rows_and_draws_validation_by_seed(adult_folder: Path) -> None:
    first, other = small_adult(adult_folder, 0), small_adult(adult_folder, 1)
    assert [len(part) for part in first] == [40, 20, 40]
    np.testing.assert_array_equal(first.test.y, other.test.y)
    assert not np.array_equal(first.validation.X[:, 0], other.validation.X[:, 0])
    assert first.feature_names == other.feature_names
    assert first.test.y.sum() == 14
    adult = fetch_adult(path=adult_folder, verify=False)
    is_male = (adult.sensitive_features == "Male").to_numpy()
    np.testing.assert_array_equal(first.test.s, is_male[60:])
    assert first.groups == ("Female", "Male")


def test_adult_arrays_fit_torch(adult_folder: Path) -> None:
    for part in small_adult(adult_folder):
        assert (part.X.dtype, part.y.dtype, part.s.dtype) == (np.float32, np.float32, np.int64)
        assert np.isfinite(part.X).all()


def test_adult_says_whether_sex_is_a_feature(adult_folder: Path) -> None:
    without, with_sex = (small_adult(adult_folder, include_sensitive=i) for i in (False, True))
    assert set(with_sex.feature_names) - set(without.feature_names) == {"sex_Female", "sex_Male"}
    assert (without.includes_sensitive, with_sex.includes_sensitive) == (False, True)


def test_adult_is_standardised_on_its_training_rows(adult_folder: Path) -> None:
    splits = small_adult(adult_folder)
    age = splits.feature_names.index("age")
    assert splits.train.X[:, age].mean() == pytest.approx(0.0, abs=1e-6)
    assert splits.train.X[:, age].std() == pytest.approx(1.0, abs=1e-6)
    assert abs(splits.test.X[:, age].mean()) > 1e-3
    assert not splits.train.X[:, splits.feature_names.index("education-num")].any()


def test_the_papers_adult_counts_complete_rows_through(adult_folder: Path) -> None:
    # 54 + 36 rows are complete; the first 60 are trained on, although 6 of them are test rows.
    splits = paper_splits(0, path=adult_folder, verify=False)
    assert [len(part) for part in splits] == [40, 20, 30]
    assert splits.train.X.shape[1] == 13
    marital = splits.feature_names.index("marital-status")
    assert len(np.unique(splits.train.X[:, marital])) == 2


def test_make_splits_wants_one_attribute_and_no_second_test_share(adult_folder: Path) -> None:
    with pytest.raises(ValueError, match="must hold one sensitive attribute"):
        make_splits(fetch_adult(path=adult_folder, verify=False, sensitive=["sex"]), 0)
    with pytest.raises(ValueError, match="`test` must be None"):
        make_splits(fetch_adult(path=adult_folder, verify=False), 0, test=0.3)


def test_official_rows_stay_on_their_side_wherever_they_lie() -> None:
    split = pd.Series(np.where(np.random.default_rng(0).permutation(100) < 20, "test", "train"))
    rows = pd.Series(range(100), name="row")
    bunch = Bunch(
        data=pd.DataFrame({"x": np.linspace(0, 1, 100)}),
        target=rows % 2,
        sensitive_features=rows,  # so that s names the row
        split=split,
        includes_sensitive=False,
    )
    train, validation, test = (part.s for part in make_splits(bunch, 0, validation=0.25))
    np.testing.assert_array_equal(test, np.flatnonzero(split == "test"))
    assert (len(train), len(validation)) == (60, 20)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, validation, test])), range(100))
