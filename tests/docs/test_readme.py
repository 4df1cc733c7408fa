"""The README is short, its code runs as it stands, and a package index can show it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from blocks import ROOT, blocks_of

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert len(re.findall(r"\w+", TEXT)) <= 700


def test_its_code_runs_and_is_twelve_lines(tmp_path: Path) -> None:
    (block,) = (block for block in blocks_of(TEXT) if block.kind == "python")
    assert sum(bool(line.strip()) for line in block.text.splitlines()) == 12
    printed = block.run_here(tmp_path)
    gap = re.findall(r"demographic_parity_difference +([\d.]+)", printed)
    before, after = (float(value) for value in gap)
    assert after < 0.5 * before
    assert (tmp_path / "edit.safetensors").is_file()


def test_a_package_index_shows_no_relative_link() -> None:
    pytest.importorskip("hatchling")
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.plugin.manager import PluginManager

    readme = ProjectMetadata(str(ROOT), PluginManager()).core.readme
    assert "](" in TEXT
    assert re.findall(r"\]\((?!https?:)", readme) == []
    assert "`docs/results.md`" in readme


def test_its_results_are_those_of_the_record() -> None:
    """The table of the README, which the front page has too, rounded to three decimals."""
    record = json.loads((ROOT / "benchmarks/results/adult_fresh_seeds.json").read_text())["test"]
    front = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    constraints = ("demographic_parity", "equal_opportunity")
    asked = ("ERM", *(f"{name}, default" for name in constraints))
    metrics = (
        "accuracy",
        "auc",
        "demographic_parity_difference",
        "equal_opportunity_difference",
    )
    rows = [line for line in TEXT.splitlines() if line.startswith("|") and "±" in line]
    assert len(rows) == len(asked)
    for row, name in zip(rows, asked, strict=True):
        found = re.findall(r"[\d.]+ ± [\d.]+", row)
        assert found == ["{:.3f} ± {:.3f}".format(*record[name][metric]) for metric in metrics]
        assert row in front
