"""Scores of a stream: those of `influence_`, in order, in files that are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biased import fair, fitted, problem
from fairij.data.sources import ArraySource
from fairij.errors import InvalidInputError
from fairij.scale import streaming as streamed
from fairij.scale.score_files import score_file
from fairij.scale.streamed_scores import TopRows, stream_influence


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "CHUNK_ROWS", 50)


@pytest.mark.parametrize("task", ["binary", "three", "real"])
def test_streamed_scores_are_those_of_the_fit(tmp_path: Path, task: str) -> None:
    data, settings = problem(task), {}
    if task == "real":
        settings = {"loss": "squared_error", "constraints": "mean_prediction"}
    model = data.fit(fair(fitted(task), **settings))
    top = stream_influence(model, ArraySource(data.X), data.y, out=tmp_path / "s.npy", top=9)
    scores = np.load(tmp_path / "s.npy")
    np.testing.assert_allclose(scores, model.influence_, rtol=1e-4, atol=1e-10)
    np.testing.assert_array_equal(top.rows, np.argsort(-scores, kind="stable")[:9])
    stream_influence(model, data.X, data.y, out=tmp_path / "s.parquet")
    table = pd.read_parquet(tmp_path / "s.parquet")
    np.testing.assert_array_equal(table["row"], np.arange(240))
    np.testing.assert_array_equal(table["influence"], scores)
    assert len(list(tmp_path.iterdir())) == 2  # nothing half-written is left


def test_what_is_refused(tmp_path: Path) -> None:
    data = problem()
    model, target = data.fit(fair()), tmp_path / "s.npy"
    target.write_text("earlier")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        stream_influence(model, data.X, data.y, out=target)
    bad = data.X.copy()
    bad[130, 1] = np.inf
    with pytest.raises(InvalidInputError, match=r"row 30, column 1.*from row 100 of the source"):
        stream_influence(model, bad, data.y, out=target, overwrite=True)
    assert target.read_text() == "earlier"
    with pytest.raises(InvalidInputError, match=r"must end in one of .npy, .parquet, got 's.csv'"):
        stream_influence(model, data.X, data.y, out=tmp_path / "s.csv")
    with pytest.raises(InvalidInputError, match="`y` must have one row per data point"):
        stream_influence(model, data.X, data.y[:-1])
    with pytest.raises(InvalidInputError, match=r"`y` must hold only the labels \[0, 1\]"):
        stream_influence(model, data.X, data.y + 1)
    with pytest.raises(InvalidInputError, match="`top` must be a whole number of at least 0"):
        stream_influence(model, data.X, data.y, top=-1)
    assert [path.name for path in tmp_path.iterdir()] == ["s.npy"]


@given(parts=st.lists(st.lists(st.integers(-5, 5), max_size=9), max_size=9), k=st.integers(0, 12))
def test_the_highest_of_a_stream(parts: list[list[int]], k: int) -> None:
    top, place = TopRows(k), 0
    for part in parts:
        top.add(np.array(part, float), place)
        place += len(part)
    scores: Any = np.array([score for part in parts for score in part], float)
    expected = np.argsort(-scores, kind="stable")[:k]
    np.testing.assert_array_equal(top.rows, expected)
    np.testing.assert_array_equal(top.scores, scores[expected])


def test_a_file_that_is_not_finished_does_not_appear(tmp_path: Path) -> None:
    for suffix in (".npy", ".parquet"):
        with pytest.raises(ZeroDivisionError), score_file(tmp_path / f"s{suffix}", 4) as writer:
            writer.write(np.zeros(2) + 1 // 0)
    assert not list(tmp_path.iterdir())
