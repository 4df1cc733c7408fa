"""Every public callable has an example in its docstring, and every example runs."""

from __future__ import annotations

import doctest
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from blocks import blocks

import fairij

sys.path.insert(0, str(Path(__file__).parents[1] / "language"))
import tiny

ROOMS = ("fairij", *(f"fairij.{room}" for room in sorted(fairij._ROOMS)))
# they read files of megabytes, draw pages, or load a large library
HEAVY = ("fairij.datasets.adult_splits", "fairij.datasets.fetch_", "fairij.datasets.make_splits",
         "fairij.mlflow.", "fairij.report.write_report", "fairij.baselines.HGR")  # fmt: skip
SET_UP, FOR_TEXTS = (block.text for block in blocks("api/examples.md"))


def public() -> Iterator[tuple[str, Any]]:
    """Every public function and class, once; protocols and errors are not called by users."""
    seen = set[int]()
    for room in ROOMS:
        module = import_module(room)
        for name in getattr(module, "__all__", ()):
            found = getattr(module, name)
            is_error = inspect.isclass(found) and issubclass(found, Exception)
            if not callable(found) or id(found) in seen or is_error:
                continue
            seen.add(id(found))
            if not getattr(found, "_is_protocol", False):
                yield f"{room}.{name}", found


PUBLIC = dict(public())


@cache
def set_up() -> dict[str, Any]:
    scope: dict[str, Any] = {}
    exec(SET_UP, scope)
    return scope


@cache
def with_texts(folder: Path) -> dict[str, Any]:
    """The names of the page for texts; the folder holds a small random model."""
    tiny.classifier().save_pretrained(folder / "bert")
    tiny.tokenizer().save_pretrained(folder / "bert")
    scope = dict(set_up())
    exec(FOR_TEXTS.replace('"bert"', repr(str(folder / "bert"))), scope)
    return scope


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


def cases() -> list[Any]:
    return [
        pytest.param(name, marks=[pytest.mark.slow] * name.startswith(HEAVY), id=name)
        for name in PUBLIC
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", cases())
def test_it_has_an_example_that_runs(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'store'}")
    scope = with_texts(folder) if ".language." in name else set_up()
    text = inspect.getdoc(PUBLIC[name]) or ""
    examples = doctest.DocTestParser().get_doctest(text, dict(scope), name, None, 0)
    assert examples.examples, f"{name} has no example"
    torch.manual_seed(0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    runner.run(examples, out=said.append)
    assert not runner.failures, "".join(said)
