from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import plain_files
from fairij.cli import app
from plain_files import Run


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tables and models, made once; tests that write take a copy, `files`."""
    folder = tmp_path_factory.mktemp("plain")
    tables = plain_files.make_tables(folder)
    plain_files.save_lightgbm(tables["train"], folder)
    plain_files.save_xgboost(tables["train"], folder)
    plain_files.save_catboost(tables["train"], folder)
    plain_files.save_sklearn(tables["train"], folder)
    plain_files.save_torch(tables["train"], folder)
    return folder


@pytest.fixture(scope="session")
def bert_made(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    folder = tmp_path_factory.mktemp("language")
    plain_files.save_huggingface(plain_files.make_table(300, 0), folder)
    return folder / "bert"


@pytest.fixture
def bert(bert_made: Path, files: Path) -> str:
    """A Hugging Face folder among the files."""
    shutil.copytree(bert_made, files / "bert")
    return "bert"


@pytest.fixture
def files(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "files"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages stay empty: for tests of other things, since drawing takes longer than a small edit."""

    def touch(_: object, target: Path, **__: object) -> None:
        target.touch()

    monkeypatch.setattr("fairij.cli.folder.write_report", touch)


@pytest.fixture
def run(files: Path) -> Run:
    """Run a command in the folder of files; its exit code must be the one expected."""

    def invoke(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke
