"""Every script of the gallery runs, and makes what its page shows."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from blocks import ROOT

pytest.importorskip("mkdocs")
SCRIPTS = sorted((ROOT / "docs" / "gallery").glob("*.py"))


@pytest.fixture
def gallery(tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "hooks" / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.KEPT = tmp_path  # type: ignore[attr-defined]
    return module


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_notebook_runs_and_draws_something(gallery: ModuleType, script: Path) -> None:
    folder = gallery.run(script)
    made = nbformat.read(folder / f"{script.stem}.ipynb", as_version=4)
    nbformat.validate(made)
    assert gallery.pictures(made)
    text = gallery.page(script, folder)
    assert f"({script.stem}.ipynb)" in text
    assert f"({script.stem}-figure-1.svg)" in text


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_becomes_cells(gallery: ModuleType, script: Path) -> None:
    made = gallery.notebook(script)
    nbformat.validate(made)
    code = [cell.source for cell in made.cells if cell.cell_type == "code"]
    assert len(code) >= 3
    assert all(ast.parse(source).body for source in code)
    kept = [line for source in code for line in source.splitlines() if line.strip()]
    text = script.read_text(encoding="utf-8").splitlines()
    assert set(kept) <= set(text)


def test_every_script_is_listed_and_has_a_title(gallery: ModuleType) -> None:
    listed = (ROOT / "docs" / "gallery" / "index.md").read_text(encoding="utf-8")
    assert len(SCRIPTS) >= 6
    for script in SCRIPTS:
        assert f"[{gallery.title(script)}]({script.stem}.md)" in listed
