"""fairij works with the oldest versions that pyproject.toml allows.

torch is the exception: it stays at the version of constraints.txt, because builds without GPU
libraries of older versions cannot be had from the package index.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import plain_files

ROOT = Path(__file__).parents[2]
COMMANDS = ("audit", "influence", "mitigate", "apply", "undo", "compare", "report", "demo",
            "reproduce", "datasets list", "datasets fetch")  # fmt: skip
COLUMNS = ("--label", "repaid", "--sensitive", "sex")
TABLES = ("--train", "train.csv", "--validation", "validation.csv", "--test", "test.csv")
QUICK_TESTS = (
    "tests/storage/test_edits.py",
    "tests/method/test_selection.py",
    "tests/test_bad_input.py",
)


def oldest() -> list[str]:
    """Each dependency at its lower bound; of the extras, what the tests here need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    bounds = [*project["dependencies"], *extras["lightgbm"], *extras["tables"]]
    pinned = [bound.replace(">=", "==") for bound in bounds if not bound.startswith("torch>")]
    fixed = (ROOT / "constraints.txt").read_text().splitlines()
    return [*pinned, next(line for line in fixed if line.startswith("torch=="))]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a virtual environment with the oldest versions."""
    place = tmp_path_factory.mktemp("oldest") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    path = place / "bin" / "python"
    for what in ([*oldest(), "pytest", "hypothesis"], ["--no-deps", str(ROOT)]):
        done = subprocess.run(
            [path, "-m", "pip", "install", "--quiet", *what],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def folder(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables, and a LightGBM model that the old version has trained."""
    place = tmp_path_factory.mktemp("files")
    tables = plain_files.make_tables(place)
    rows = plain_files.as_categories(tables["train"]).assign(y=tables["train"]["repaid"])
    rows.rename(columns=lambda name: name.replace(" ", "_")).to_csv(place / "rows.csv", index=False)
    code = (
        "import lightgbm, pandas as pd; rows = pd.read_csv('rows.csv').astype({'job': 'category'});"
        "model = lightgbm.LGBMClassifier(n_estimators=12, n_jobs=1, verbose=-1);"
        "model.fit(rows.drop(columns='y'), rows['y']).booster_.save_model('model.txt')"
    )
    subprocess.run([python, "-W", "ignore", "-c", code], cwd=place, check=True)
    return place


def fairij(python: Path, folder: Path, *words: str) -> str:
    """What a command prints. It must succeed, and libraries must not complain of each other."""
    done = subprocess.run(
        [python.with_name("fairij"), *words], cwd=folder, capture_output=True, text=True,
        check=False, env=os.environ | {"COLUMNS": "100"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.slow
def test_help(python: Path, folder: Path) -> None:
    assert "mitigate" in fairij(python, folder, "--help")
    for command in COMMANDS:
        assert "Exit codes" in fairij(python, folder, *command.split(), "--help")


@pytest.mark.slow
def test_a_model_is_audited_edited_and_put_back(python: Path, folder: Path) -> None:
    asked = ("--model", "model.txt", *COLUMNS)
    assert "demographic parity gap" in fairij(
        python, folder, "audit", *asked, "--table", "test.csv"
    )
    fairij(python, folder, "mitigate", *asked, *TABLES, "--max-k", "30", "--out", "result")
    edit = ("--edit", "result/edit.safetensors", "--out", "undone.txt")
    fairij(python, folder, "undo", "--model", "result/model.txt", *edit)
    fairij(python, folder, "report", "result", "--out", "again.html")
    page = (folder / "result" / "report.html").read_text(encoding="utf-8")
    assert (folder / "again.html").read_text(encoding="utf-8") == page


@pytest.mark.slow
def test_quick_tests_pass(python: Path) -> None:
    """Deprecation warnings of old versions are no errors here."""
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "filterwarnings=ignore",
    ]
    done = subprocess.run(
        [*command, *QUICK_TESTS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
