"""Pages that are followed word for word in an empty folder, and print what they show."""

from __future__ import annotations

from pathlib import Path

import pytest
from blocks import blocks, check_output


@pytest.mark.parametrize("page", ["audit.md", "gate.md"])
def test_every_block_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    found = blocks(page)
    assert sum(block.output is not None for block in found) >= 2
    for block in found:
        check_output(block, block.run_here(tmp_path))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # MLflow complains of its own parts
def test_so_does_the_page_on_registries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    for name in ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "true")  # taken back after the page has set it
    before = mlflow.get_tracking_uri()
    found = blocks("registries.md")
    assert sum(block.output is not None for block in found) >= 4
    try:
        for block in found:
            check_output(block, block.run_here(tmp_path))
    finally:
        mlflow.set_tracking_uri(before)
