from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

from fairij.datasets import (
    HashMismatch,
    fetch_adult,
    fetch_compas,
    fetch_credit_card,
    fetch_german_credit,
    fetch_university_admissions,
)
from fairij.datasets.credit_card import FEATURES as CARD_FEATURES
from fairij.datasets.german_credit import FEATURES as GERMAN_FEATURES
from fairij.datasets.university_admissions import EXAMS as ADMISSIONS_EXAMS

GERMAN_ROW = "A11 6 A34 A43 1169 A65 A75 4 {status} A101 4 A121 {age} A143 A152 2 A173 1 A192 A201"


@pytest.fixture
def compas_file(tmp_path: Path) -> Path:
    """Six defendants who pass ProPublica's filter, then one for each reason not to."""
    kept = pd.DataFrame(
        {
            "sex": ["Male", "Female"] * 3,
            "age": 30,
            "race": ["African-American", "Caucasian", "Hispanic"] * 2,
            "juv_fel_count": 0,
            "juv_misd_count": 0,
            "juv_other_count": 0,
            "priors_count": range(6),
            "days_b_screening_arrest": [-30, -1, 0, 1, 2, 30],
            "c_charge_degree": ["F", "M"] * 3,
            "is_recid": 0,
            "score_text": "Low",
            "two_year_recid": [0, 1] * 3,
            "name": "someone",
        }
    )
    reasons = {
        "days_b_screening_arrest": [31, -31, np.nan],
        "is_recid": [-1],
        "c_charge_degree": ["O"],
        "score_text": ["N/A"],
    }
    dropped = [kept[:1].assign(**{c: v}) for c, values in reasons.items() for v in values]
    target = tmp_path / "compas-scores-two-years.csv"
    pd.concat([kept, *dropped]).to_csv(target, index=False)
    return target


@pytest.fixture
def german_file(tmp_path: Path) -> Path:
    people = [("A91", 25, 1), ("A92", 26, 2), ("A93", 40, 1), ("A95", 19, 1)]
    lines = [f"{GERMAN_ROW.format(status=s, age=a)} {risk}" for s, a, risk in people]
    target = tmp_path / "german.data"
    target.write_text("\n".join(lines) + "\n")
    return target


@pytest.fixture
def card_file(tmp_path: Path) -> Path:
    """Four clients: codes of education 2, 0, 6, 1 and of marriage 1, 3, 2, 0."""
    one_hot = {f"EDUCATION_{c}": [int(c == e) for e in (2, 0, 6, 1)] for c in range(7)}
    one_hot |= {f"MARRIAGE_{c}": [int(c == m) for m in (1, 3, 2, 0)] for c in range(4)}
    numbers = {c: range(4) for c in CARD_FEATURES if c not in ("SEX", "EDUCATION", "MARRIAGE")}
    facts = {"ID": range(4), "SEX": [1, 0, 0, 1], "default-payment-next-month": [1, 0, 1, 0]}
    target = tmp_path / "UCI_Credit_Card.csv"
    pd.DataFrame({**facts, **numbers, **one_hot}).to_csv(target, index=False)
    return target


@pytest.fixture
def admissions_file(tmp_path: Path) -> Path:
    exams = {name: [500.5, 600.25, 450.0] for name in ADMISSIONS_EXAMS}
    target = tmp_path / "admissions.csv.zip"
    table = pd.DataFrame({"gender": [0, 1, 0], **exams, "gpa": [1, 0, 1]})
    table.to_csv(target, index=False, compression="zip")
    return target


def test_adult_reads_both_files(adult_folder: Path) -> None:
    adult = fetch_adult(path=adult_folder, verify=False)
    assert isinstance(adult, Bunch)
    assert adult.data.shape == (100, 14)
    assert adult.split.value_counts().to_dict() == {"train": 60, "test": 40}
    assert adult.target.groupby(adult.split).sum().to_dict() == {"train": 20, "test": 14}
    assert (adult.data["workclass"] == "?").sum() == 10
    assert list(adult.data["workclass"].cat.categories) == ["?", "Private", "State-gov"]
    assert set(adult.sensitive_features) == {"Female", "Male"}
    assert set(adult.sha256) == set(adult.source) == {"adult.data", "adult.test"}


def test_adult_wants_the_published_files(adult_folder: Path) -> None:
    with pytest.raises(HashMismatch, match=r"adult\.data must have the SHA-256 5b002646"):
        fetch_adult(path=adult_folder)


def test_adult_names_a_strange_label(adult_folder: Path) -> None:
    (adult_folder / "adult.test").write_text((adult_folder / "adult.data").read_text() + "1, 2\n")
    with pytest.raises(ValueError, match="must be one of"):
        fetch_adult(path=adult_folder, verify=False)


def test_sensitive_attributes_can_be_kept_from_the_features(adult_folder: Path) -> None:
    adult = fetch_adult(
        path=adult_folder, verify=False, sensitive=["sex", "race"], include_sensitive=False
    )
    assert list(adult.sensitive_features.columns) == ["sex", "race"]
    assert not {"sex", "race"} & set(adult.data.columns)
    assert adult.feature_names == list(adult.data.columns)
    assert adult.includes_sensitive is False


def test_an_unknown_sensitive_attribute_is_named(adult_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"one or more of \['race', 'sex'\], got \['gender'\]"):
        fetch_adult(path=adult_folder, verify=False, sensitive="gender")


def test_arrays_instead_of_frames(adult_folder: Path) -> None:
    adult = fetch_adult(path=adult_folder, verify=False, as_frame=False)
    for name in ("data", "target", "sensitive_features", "split"):
        assert isinstance(adult[name], np.ndarray)
        assert len(adult[name]) == 100


def test_compas_takes_propublicas_filter(compas_file: Path) -> None:
    everyone = fetch_compas(path=compas_file, verify=False, races=None)
    assert list(everyone.data["priors_count"]) == [0, 1, 2, 3, 4, 5]
    assert list(everyone.target) == [0, 1] * 3
    assert everyone.split is None
    assert "name" not in everyone.data.columns


def test_compas_keeps_two_races_unless_told_otherwise(compas_file: Path) -> None:
    compas = fetch_compas(path=compas_file, verify=False)
    assert list(compas.sensitive_features) == ["African-American", "Caucasian"] * 2
    assert list(compas.data.index) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"`races` must be among.*'Hispanic'.*got \['Martian'\]"):
        fetch_compas(path=compas_file, verify=False, races=["Martian"])


def test_german_credit_reads_sex_and_age(german_file: Path) -> None:
    german = fetch_german_credit(path=german_file, verify=False, sensitive=["sex", "age"])
    assert list(german.target) == [1, 0, 1, 1]
    assert list(german.sensitive_features["sex"]) == ["Male", "Female", "Male", "Female"]
    assert list(german.sensitive_features["age"]) == ["up to 25", "over 25", "over 25", "up to 25"]
    assert german.feature_names == list(GERMAN_FEATURES)


@pytest.mark.parametrize(("sensitive", "column"), [("sex", "personal_status"), ("age", "age")])
def test_german_credit_hides_the_column_that_tells(
    german_file: Path, sensitive: str, column: str
) -> None:
    german = fetch_german_credit(
        path=german_file, verify=False, sensitive=sensitive, include_sensitive=False
    )
    assert set(GERMAN_FEATURES) - set(german.feature_names) == {column}


def test_credit_card_has_one_category_where_the_file_has_many_columns(card_file: Path) -> None:
    card = fetch_credit_card(path=card_file, verify=False)
    assert card.feature_names == list(CARD_FEATURES)
    assert list(card.data["EDUCATION"]) == ["2", "0", "6", "1"]
    assert list(card.data["MARRIAGE"]) == ["1", "3", "2", "0"]
    assert list(card.sensitive_features) == ["Female", "Male", "Male", "Female"]
    assert list(card.target) == [1, 0, 1, 0]
    assert card.split is None


def test_admissions_are_read_from_the_archive(admissions_file: Path) -> None:
    students = fetch_university_admissions(
        path=admissions_file, verify=False, include_sensitive=False
    )
    assert students.feature_names == list(ADMISSIONS_EXAMS)
    assert list(students.data["math"]) == [500.5, 600.25, 450.0]
    assert list(students.sensitive_features) == ["Female", "Male", "Female"]
    assert list(students.target) == [1, 0, 1]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"SEX": [1, 2, 1, 2]}, r"SEX must be one of \{0: 'Male'.*found \[2\]"),
        ({"EDUCATION_4": None}, r"must have the columns.*lacks \['EDUCATION_4'\]"),
    ],
)
def test_another_file_of_card_clients_is_refused(
    card_file: Path, change: dict[str, list[int] | None], complaint: str
) -> None:
    table = pd.read_csv(card_file)
    dropped = [name for name, values in change.items() if values is None]
    table.assign(**change).drop(columns=dropped).to_csv(card_file, index=False)
    with pytest.raises(ValueError, match=complaint):
        fetch_credit_card(path=card_file, verify=False)
    with pytest.raises(HashMismatch, match=r"SHA-256 af36211f"):
        fetch_credit_card(path=card_file)


LOADERS = {
    fetch_adult: "adult_folder",
    fetch_compas: "compas_file",
    fetch_credit_card: "card_file",
    fetch_german_credit: "german_file",
    fetch_university_admissions: "admissions_file",
}


@pytest.mark.parametrize(("fetch", "file"), LOADERS.items())
def test_every_loader_describes_itself(
    fetch: Callable[..., Bunch], file: str, request: pytest.FixtureRequest
) -> None:
    bunch = fetch(path=request.getfixturevalue(file), verify=False)
    assert set(bunch.target) == {0, 1}
    assert len(bunch.data) == len(bunch.target) == len(bunch.sensitive_features)
    assert all("local path" in source for source in bunch.source.values())
    assert {len(digest) for digest in bunch.sha256.values()} == {64}
    assert "Target: 1" in bunch.DESCR
    assert len(bunch.target_names) == 2
