from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from fairij_studies import load_records, redraw, reproduce
from fairij_studies.two_moons.comparison import APPROXIMATIONS, DEPTHS, shared_top
from fairij_studies.two_moons.page import readme


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("two-moons")
    reproduce("two-moons", folder, quick=True)
    return folder


@pytest.fixture(scope="module")
def records(folder: Path) -> pd.DataFrame:
    return load_records(folder, quick=True)


@pytest.mark.slow
def test_every_approximation_is_compared_at_every_depth(records: pd.DataFrame) -> None:
    assert len(records) == len(APPROXIMATIONS) * len(DEPTHS)
    assert records["n_parameters"].tolist()[:: len(APPROXIMATIONS)] == [3, 21, 51]
    facts = ["damping", "condition", "smallest_eigenvalue", "largest_eigenvalue", "train_loss"]
    assert records[facts].notna().all(axis=None)
    assert (records["smallest_eigenvalue"] + records["damping"] > 0).all()


@pytest.mark.slow
def test_records_say_what_they_are_of(records: pd.DataFrame) -> None:
    (source,) = set(records["data_source"])
    assert source.startswith("drawn with seed 0, ")
    assert not records["group_is_feature"].any()
    assert (records["constraint"] == "the loss of one test point").all()
    assert records["seconds"].nunique() == len(records)  # its own, not the unit's


def test_the_committed_page_is_that_of_the_committed_records() -> None:
    folder = Path(__file__).parents[2] / "studies" / "two_moons"
    records = load_records(folder)
    assert readme(records) == (folder / "README.md").read_text()
    assert records.groupby(["method", "depth"])["seed"].nunique().eq(10).all()


@pytest.mark.slow
def test_without_a_hidden_layer_the_ggn_is_the_hessian(records: pd.DataFrame) -> None:
    row = records[(records["method"] == "GGN, exact inverse") & (records["depth"] == 1)].iloc[0]
    assert row["r2"] == pytest.approx(1, abs=1e-9)
    assert row["mad"] < 1e-9 * row["exact_spread"]
    assert row["top_100"] == 1


@pytest.mark.slow
def test_the_page_is_drawn_from_records_alone(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "results.parquet", tmp_path)
    redraw("two_moons", tmp_path, quick=True)
    text = (tmp_path / "README.md").read_text()
    assert text == (folder / "README.md").read_text()
    assert all(f"| {approximation.label} | 3 |" in text for approximation in APPROXIMATIONS)
    assert "WoodFisher as printed, depth 3" in (tmp_path / "agreement.svg").read_text()


def test_the_shared_part_of_the_largest_scores() -> None:
    exact = np.array([5.0, 4.0, 3.0, 2.0])
    assert shared_top(exact, np.array([4.0, 5.0, 0.0, 1.0]), 2) == 1.0
    assert shared_top(exact, -exact, 2) == 0.0
