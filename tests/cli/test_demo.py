"""The demo as a person runs it, on the real Adult files."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import fairij
from fairij.cli import app, demonstration
from fairij.cli.demonstration import REPORTED, Demo, run_demo, write_demo
from fairij.models.torch.training import mlp, train_mlp

runner = CliRunner()


@pytest.fixture(scope="module")
def made() -> list[Demo]:
    """What the command of `folder` ran, to be written again."""
    return []


@pytest.fixture(scope="module", params=[10, pytest.param(100, marks=pytest.mark.slow)])
def folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, made: list[Demo]
) -> Path:
    """The demo's folder; where time is short a smaller network is trained for fewer epochs."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("demo") / "fairij-demo"

    def noted(**options: Any) -> Demo:
        made[:] = [run_demo(**options, epochs=request.param)]
        return made[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(out.parent)
        patch.setattr(demonstration, "run_demo", noted)
        if request.param < 100:
            patch.setattr(
                demonstration, "train_mlp", partial(train_mlp, hidden=16, learning_rate=1e-3)
            )
        result = runner.invoke(app, ["demo"])
    assert result.exit_code == 0, result.output
    assert "UCI Adult, official test set" in result.output
    assert "report.html" in result.output
    return out


def test_the_summary_has_every_figure_and_the_gap_is_gone(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    for when in ("before", "after"):
        for part in ("validation", "test"):
            assert set(summary[when][part]) == set(REPORTED)
            assert all(0 <= value <= 2 for value in summary[when][part].values())
    assert set(summary["seconds"]) == {"train", "mitigate"}
    assert summary["rows"] == {"train": 21815, "validation": 10746, "test": 16281}
    before, after = summary["before"]["test"], summary["after"]["test"]
    assert before["demographic_parity_difference"] > 0.15
    assert after["demographic_parity_difference"] < 0.03
    assert after["accuracy"] > 0.82


def test_the_folder_holds_the_page_the_plots_and_a_usable_edit(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "candidates.csv", "candidates.png", "candidates.svg", "edit.safetensors",
        "influence.png", "influence.svg", "rates.png", "rates.svg", "report.html", "summary.json",
        "contents.json",
    }  # fmt: skip
    text = (folder / "report.html").read_text()
    assert "official test set" in text
    assert "Positive label: <b>&gt;50K</b>" in text
    assert not re.search(r"<(script|link)[^>]+(src|href)=", text)  # needs no network
    assert len(text) < 5_000_000
    table = pd.read_csv(folder / "candidates.csv")
    assert {"k", "scale", "damping", "gap", "accuracy", "pareto"} <= set(table.columns)
    edit = fairij.Edit.load(folder / "edit.safetensors")
    assert len(edit.dropped) == edit.settings["k"]
    with pytest.raises(fairij.errors.WrongModelError):
        edit.apply(mlp(106))


def test_nothing_is_overwritten_without_force(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (folder / "summary.json").read_bytes()
    result = runner.invoke(app, ["demo", "--out", str(folder)])
    assert result.exit_code == 2
    assert "exists already and is not empty" in result.output
    assert (folder / "summary.json").read_bytes() == before
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fairij-demo").mkdir()
    (tmp_path / "fairij-demo" / "notes.txt").write_text("mine")
    result = runner.invoke(app, ["demo"])
    assert result.exit_code == 2
    assert result.stderr == (
        "error: fairij-demo exists already and is not empty; name a new folder by --out, or pass "
        "--force to replace it, if fairij wrote it.\n"
    )


@pytest.mark.slow
def test_another_seed_and_gap_and_a_model_hardly_trained() -> None:
    with (
        pytest.warns(fairij.errors.FairIJWarning, match="cannot be told from zero"),
        pytest.warns(fairij.errors.NotStationaryWarning),  # one epoch is far from a minimum
    ):
        demo = run_demo(seed=1, constraint="equal_opportunity", epochs=1)
    assert demo.summary()["edit"]["constraint"] == "equal_opportunity"


def test_a_failed_write_leaves_the_earlier_folder_alone(
    folder: Path, made: list[Demo], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.setattr("fairij.cli.demonstration.save_chart", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_demo(made[0], folder, force=True)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--constraints", "fairness"], "must be one of demographic_parity"),
        (["--data-home", "/proc/nowhere"], "error:"),
    ],
)
def test_bad_arguments_give_one_clear_line(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = runner.invoke(app, ["demo", "--out", str(tmp_path / "new"), *arguments])
    assert result.exit_code in (1, 2)
    assert message in result.output
    assert not (tmp_path / "new").exists()


def test_training_is_repeatable_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(7)
    X, y = torch.randn(64, 3), torch.ones(64).bernoulli(0.5)
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    first = train_mlp(X, y, X, y, hidden=4, epochs=2, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == 2
    second = train_mlp(X, y, X, y, hidden=4, epochs=2, seed=3)
    assert torch.equal(first[0].weight, second[0].weight)


def test_force_replaces_only_what_the_demo_wrote(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    result = runner.invoke(app, ["demo", "--out", str(tmp_path), "--force"])
    assert result.exit_code == 2
    assert "was not written by this command" in result.output.replace("\n", " ")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    for name in ("summary.json", "settings.toml"):  # as in the folder of a `mitigate`
        (tmp_path / name).write_text("")
    result = runner.invoke(app, ["demo", "--out", str(tmp_path), "--force"])
    assert result.exit_code == 2
    assert (tmp_path / "settings.toml").is_file()
