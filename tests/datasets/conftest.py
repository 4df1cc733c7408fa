from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import requests

from fairij.datasets import _files, acs, fetch_adult
from fairij.datasets.adult import FEATURES


@pytest.fixture(scope="session")
def real_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the real Adult files, from the first source that can be reached."""
    home = tmp_path_factory.mktemp("fairij_data")
    fetch_adult(data_home=home)
    return home


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test reach out; `real_home` was made before this."""

    def refuse(*args: object, **kwargs: object) -> None:
        pytest.fail("a test tried to reach the network")

    monkeypatch.setattr(_files.urllib.request, "urlopen", refuse)
    monkeypatch.setattr(_files.subprocess, "run", refuse)
    monkeypatch.setattr(requests, "get", refuse)  # folktables' way out


def adult_row(rng: np.random.Generator, workclass: str, label: str) -> str:
    values = {
        "age": rng.integers(17, 90),
        "workclass": workclass,
        "fnlwgt": rng.integers(10_000, 400_000),
        "education": rng.choice(["HS-grad", "Masters"]),
        "education-num": 9,  # a constant column
        "marital-status": rng.choice(["Married-civ-spouse", "Never-married", "Widowed"]),
        "occupation": rng.choice(["Sales", "Tech-support"]),
        "relationship": rng.choice(["Husband", "Wife"]),
        "race": rng.choice(["Black", "White"]),
        "sex": rng.choice(["Female", "Male"]),
        "capital-gain": rng.integers(0, 5_000),
        "capital-loss": rng.integers(0, 500),
        "hours-per-week": rng.integers(10, 60),
        "native-country": "Cuba",
    }
    assert tuple(values) == FEATURES
    return ", ".join([*map(str, values.values()), label])


@pytest.fixture
def adult_folder(tmp_path: Path) -> Path:
    """60 training and 40 test rows; rows 0, 10, 20, ... of both lack their workclass."""
    rng = np.random.default_rng(0)

    def rows(n: int, dot: str) -> list[str]:
        return [
            adult_row(
                rng,
                "?" if i % 10 == 0 else ("Private", "State-gov")[i % 2],
                (">50K", "<=50K", "<=50K")[i % 3] + dot,
            )
            for i in range(n)
        ]

    folder = tmp_path / "adult"
    folder.mkdir()
    (folder / "adult.data").write_text("\n".join(rows(60, "")) + "\n\n")
    test = ["|1x3 Cross validator", *rows(40, ".")]
    (folder / "adult.test").write_text("\n".join(test) + "\n\n")
    return folder


@pytest.fixture
def coverage_table() -> pd.DataFrame:
    """180 rows of ACSPublicCoverage with RAC1P as the census counts, 1 to 9, 20 rows of each."""
    rng = np.random.default_rng(0)
    n = 180
    codes = {c: rng.integers(1, 3, n).astype(float) for c in acs.CATEGORICAL}
    numbers = {"AGEP": rng.integers(16, 65, n), "SCHL": 16, "PINCP": rng.integers(0, 30_001, n)}
    fixed = {"ST": 6.0, "RAC1P": np.arange(n) % 9 + 1, "PUBCOV": np.arange(n) % 2}
    return pd.DataFrame({**codes, **numbers, **fixed})


@pytest.fixture
def coverage_file(coverage_table: pd.DataFrame, tmp_path: Path) -> Callable[..., Path]:
    """Write the coverage table to a parquet file, with changed columns if wanted."""

    def write(name: str = "coverage.parquet", **columns: object) -> Path:
        target = tmp_path / name
        coverage_table.assign(**columns).to_parquet(target)
        return target

    return write
