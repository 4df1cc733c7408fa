"""Every script of the gallery runs, and makes what its page shows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

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
def test_a_script_prints_and_makes_something(gallery: ModuleType, script: Path) -> None:
    folder = gallery.run(script)
    assert (folder / gallery.PRINTED).stat().st_size > 100
    assert [path for path in folder.iterdir() if path.suffix in (".svg", ".html")]


def test_every_script_is_listed_and_has_a_title(gallery: ModuleType) -> None:
    listed = (ROOT / "docs" / "gallery" / "index.md").read_text(encoding="utf-8")
    assert len(SCRIPTS) >= 3
    for script in SCRIPTS:
        assert f"[{gallery.title(script)}]({script.stem}.md)" in listed
