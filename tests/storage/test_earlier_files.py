"""Files that version 0.1.0 wrote are read, applied, undone and reported on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

from fairij import Edit, audit
from fairij.cli import app
from fairij.storage.model_files import load_model
from fairij.storage.tables import read_table

EARLIER = Path(__file__).parent / "earlier_files"


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files in the working folder."""
    folder = tmp_path / "earlier"
    shutil.copytree(EARLIER, folder)
    monkeypatch.chdir(folder)
    return folder


def run(*arguments: str) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output


def test_an_edit_of_a_network_is_applied_and_undone() -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    module.load_state_dict(load_file(EARLIER / "network.safetensors"))
    edit = Edit.load(EARLIER / "network_edit.safetensors")
    assert edit.settings["version"] == "0.1.0"
    applied = edit.apply(module)
    theta, before = (
        torch.cat([p.detach().reshape(-1) for p in m.parameters()]) for m in (applied, module)
    )
    assert torch.equal(theta, before + edit.delta)
    assert edit.delta.norm() > 0.1
    for name, value in edit.undo(applied).state_dict().items():
        assert torch.equal(value, module.state_dict()[name])


def figures(model: str) -> dict[str, float]:
    """The metrics of a model on the test rows."""
    file, rows = load_model(model), read_table("test.csv")
    features = json.loads(Path("result/summary.json").read_text())["features"]
    scores: Any = file.model.predict(file.prepare(rows[features]))
    found = audit(rows["repaid"], (scores > 0.5).astype(int), sensitive_features=rows["sex"])
    return {str(name): float(value) for name, value in found.metrics["value"].items()}


@pytest.mark.usefixtures("earlier")
def test_the_edit_of_a_result_folder_is_applied_and_undone() -> None:
    edit = ("--edit", "result/edit.safetensors")
    run("apply", "--model", "model.txt", *edit, "--out", "fair.txt")
    run("undo", "--model", "fair.txt", *edit, "--out", "again.txt")
    stored = json.loads(Path("result/summary.json").read_text())["test"]
    for model, when in (("model.txt", "before"), ("fair.txt", "after"), ("again.txt", "before")):
        found = figures(model)
        expected = {name: part["value"] for name, part in stored[when]["metrics"].items()}
        np.testing.assert_allclose([found[name] for name in expected], list(expected.values()))


@pytest.mark.usefixtures("earlier")
def test_the_page_of_a_result_folder_is_written_again() -> None:
    run("report", "result", "--out", "page.html")
    text = Path("page.html").read_text()
    for words in (
        "as if 25 of the 300 training rows",
        "the demographic parity gap went from 0.4212 to 0.1284",
        "Accuracy 0.7467 → 0.5900",
    ):
        assert words in text
