import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import requests
from fairij_studies.coverage import CoverageRows, coverage_splits

from fairij.datasets import DatasetUnavailable, HashMismatch
from fairij.datasets import fetch_acs_public_coverage as fetch
from fairij.datasets.acs import CATEGORICAL, NUMERICAL

Write = Callable[..., Path]


@pytest.fixture
def survey(coverage_table: pd.DataFrame) -> bytes:
    """A survey file as the census publishes it: PUBCOV is 1 or 2, and there are blanks."""
    raw = coverage_table.assign(PUBCOV=2 - coverage_table["PUBCOV"], SERIALNO="1")
    raw.loc[0, "ESR"] = np.nan
    raw.loc[1, "AGEP"] = 70  # not of the task
    return raw.to_csv(index=False).encode()


def test_both_ways_to_count_races_give_the_same(
    coverage_table: pd.DataFrame, coverage_file: Write
) -> None:
    census = fetch(path=coverage_file())
    zero_based = fetch(path=coverage_file(RAC1P=coverage_table["RAC1P"] - 1))
    pd.testing.assert_frame_equal(census.data, zero_based.data)
    assert census.sensitive_features.value_counts().to_dict() == {"White": 20, "Black": 20}
    assert set(census.data["RAC1P"]) == {1, 2}


@pytest.mark.parametrize(("race_codes", "white"), [("census", 90), ("zero-based", 0)])
def test_races_that_tell_nothing_must_be_explained(
    coverage_file: Write, race_codes: str, white: int
) -> None:
    path = coverage_file(RAC1P=np.arange(180) % 2 + 1)
    with pytest.raises(ValueError, match=r"found \[1, 2\]. Pass `race_codes`"):
        fetch(path=path)
    race = fetch(path=path, race_codes=race_codes).sensitive_features
    assert (race == "White").sum() == white


def test_races_out_of_range_are_named(coverage_file: Write) -> None:
    with pytest.raises(ValueError, match="between 0 and 8 when race_codes='zero-based'"):
        fetch(path=coverage_file(), race_codes="zero-based")
    with pytest.raises(ValueError, match=r"one of \['auto', 'census', 'zero-based'\], got 'x'"):
        fetch(path=coverage_file(), race_codes="x")


def test_all_races_or_some(coverage_file: Write) -> None:
    assert len(fetch(path=coverage_file(), races=None).data) == 180
    assert set(fetch(path=coverage_file(), races=["Asian"]).sensitive_features) == {"Asian"}
    with pytest.raises(ValueError, match="`races` must be among"):
        fetch(path=coverage_file(), races=["Martian"])


def test_several_files_are_put_together(coverage_file: Write) -> None:
    survey = fetch(path=[coverage_file("a.parquet"), coverage_file("b.parquet")])
    assert len(survey.data) == 80
    assert set(survey.sha256) == {"a.parquet", "b.parquet"}


def test_a_pinned_hash_is_checked(coverage_file: Write) -> None:
    path = coverage_file()
    right = fetch(path=path).sha256
    assert fetch(path=path, sha256=right).sha256 == right
    with pytest.raises(HashMismatch, match="must have the SHA-256 0000"):
        fetch(path=path, sha256={"coverage.parquet": "0000"})


def test_columns_and_labels_are_checked(coverage_table: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "odd.parquet"
    coverage_table.drop(columns=["ST", "AGEP"]).to_parquet(path)
    with pytest.raises(ValueError, match=r"lacks \['AGEP'\]"):
        fetch(path=path)
    coverage_table.assign(PUBCOV=2).to_parquet(path)
    with pytest.raises(ValueError, match="PUBCOV must be 0 or 1"):
        fetch(path=path)
    with pytest.raises(DatasetUnavailable, match="must be a parquet file, found none"):
        fetch(path=tmp_path / "absent.parquet")


def test_sex_can_be_the_sensitive_attribute(coverage_file: Write) -> None:
    survey = fetch(path=coverage_file(), sensitive="sex", include_sensitive=False)
    assert set(survey.sensitive_features) == {"Male", "Female"}
    assert set(survey.feature_names) == {*NUMERICAL, *CATEGORICAL} - {"SEX"}


def test_folktables_reads_a_cached_survey(survey: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "folktables" / "2014" / "1-Year"
    folder.mkdir(parents=True)
    (folder / "ss14pca.csv").write_bytes(survey)
    coverage = fetch(data_home=tmp_path, races=None, download=False)
    assert len(coverage.data) == 179
    assert set(coverage.target) == {0, 1}
    assert (coverage.data["ESR"] == 0).sum() == 1
    assert "CA 2014" in coverage.DESCR
    assert list(coverage.sha256) == ["ss14pca.csv"]
    said = CoverageRows(str(tmp_path)).source()  # as the study's records have it
    assert said == f"ss14pca.csv {coverage.sha256['ss14pca.csv'][:16]}"


def test_a_download_lands_in_the_cache_without_a_word(
    survey: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("ss14pca.csv", survey)
    answer = SimpleNamespace(content=packed.getvalue())
    monkeypatch.setattr(requests, "get", lambda url: answer)
    assert len(fetch(data_home=tmp_path).data) == 39
    assert [f.name for f in tmp_path.rglob("*") if f.is_file()] == ["ss14pca.csv"]
    assert capsys.readouterr().out == ""


def test_a_failed_download_gives_its_cause_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = SimpleNamespace(content=b"half an archive")
    monkeypatch.setattr(requests, "get", lambda url: answer)
    with pytest.raises(DatasetUnavailable, match=r"ss14pca\.csv .*not a zip file.*`path=`"):
        fetch(data_home=tmp_path)
    assert [f for f in tmp_path.rglob("*") if f.is_file()] == []
    with pytest.raises(DatasetUnavailable, match="download=False"):
        fetch(data_home=tmp_path, download=False)


def test_year_and_state_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`year` must be 2014 or later"):
        fetch(data_home=tmp_path, year=2010)
    with pytest.raises(ValueError, match="got 'California'"):
        fetch(data_home=tmp_path, state="California")


@pytest.mark.parametrize(("one_hot", "n_inputs"), [(True, 3 + 14 * 2 + 1), (False, 18)])
def test_coverage_splits(coverage_file: Write, one_hot: bool, n_inputs: int) -> None:
    splits = coverage_splits(0, path=coverage_file(), one_hot=one_hot)
    assert [len(part) for part in splits] == [20, 8, 12]
    assert splits.train.X.shape == (20, n_inputs)
    assert splits.groups == ("Black", "White")
    assert splits.sensitive == "race"
    assert not splits.includes_sensitive
    assert not any(name.startswith("RAC1P") for name in splits.feature_names)
