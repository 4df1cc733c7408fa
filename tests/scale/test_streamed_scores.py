"""Scores of a stream are those of the fit; a stopped call resumes and ends with the same bits."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from biased import fair, fitted, problem
from fairij import FairIJ, Grid
from fairij.data.sources import ArraySource, Source
from fairij.errors import CheckpointError, InvalidInputError
from fairij.scale import checkpoints
from fairij.scale import streaming as streamed
from fairij.scale.streamed_scores import TopRows, stream_influence

DATA = problem()
BLOCK = 30
BLOCKS = len(DATA.X) // BLOCK
QUICK = {"search": Grid(points=2, scales=(1.0,))}


@pytest.fixture(autouse=True)
def _small_blocks_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "CHUNK_ROWS", BLOCK)
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)


@pytest.fixture(scope="module")
def model() -> FairIJ:
    return DATA.fit(fair(**QUICK))


def scored(model: FairIJ, folder: Path, X: Any = DATA.X, **given: Any) -> bytes:
    """The file of scores, as bytes."""
    out = folder / f"s{given.pop('suffix', '.npy')}"
    stream_influence(model, X, given.pop("y", DATA.y), out=out, overwrite=True, **given)
    return out.read_bytes()


def records(folder: Path) -> list[Path]:
    return sorted(folder.glob("process-0/*.safetensors"))


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
    with pytest.raises(InvalidInputError, match=r"row 10, column 1.*from row 120 of the source"):
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
        top.add(np.array(part, float), np.arange(place, place + len(part)))
        place += len(part)
    scores: Any = np.array([score for part in parts for score in part], float)
    expected = np.argsort(-scores, kind="stable")[:k]
    np.testing.assert_array_equal(top.rows, expected)
    np.testing.assert_array_equal(top.scores, scores[expected])


def test_other_columns_are_refused(model: FairIJ) -> None:
    with pytest.raises(InvalidInputError, match="expected 4, got 3"):
        stream_influence(model, DATA.X[:, :3], DATA.y)


class Stopped(BaseException):
    """Like a killed process: nothing handles it."""


class EndsAt(Source):
    """Rows of which some block is never given: the process ends first."""

    def __init__(self, block: int, end: Any) -> None:
        self._rows, self._block, self._end = ArraySource(DATA.X), block, end
        self.shape = self._rows.shape

    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        is_scoring = size == BLOCK  # rows are read for other ends in larger chunks
        for number, table in enumerate(self._rows.chunks(size, start, stop)):
            if is_scoring and number == self._block:
                self._end()
            yield table


def stop() -> None:
    raise Stopped


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("block", [0, 1, BLOCKS - 1])
def test_stopped_scores_end_with_the_same_bits(
    tmp_path: Path, model: FairIJ, block: int, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, kept = scored(model, tmp_path, suffix=suffix), tmp_path / "kept"
    with pytest.raises(Stopped):
        scored(model, tmp_path, EndsAt(block, stop), suffix=suffix, checkpoint=kept)
    assert len(records(kept)) == block
    assert (tmp_path / f"s{suffix}").read_bytes() == plain  # what was there before is untouched
    asked: list[int] = []
    linearize = streamed.StreamedEditable.linearize

    def counted(self: Any, X: Any, **given: Any) -> Any:
        asked.append(len(X))
        return linearize(self, X, **given)

    monkeypatch.setattr(streamed.StreamedEditable, "linearize", counted)
    assert scored(model, tmp_path, suffix=suffix, checkpoint=kept) == plain
    assert asked == [BLOCK] * (BLOCKS - block)
    assert scored(model, tmp_path, suffix=suffix, checkpoint=kept) == plain
    assert len(asked) == BLOCKS - block  # nothing is made twice


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
import test_streamed_scores as t
t.streamed.CHUNK_ROWS, t.checkpoints.EVERY_SECONDS = t.BLOCK, 0.0
rows = t.EndsAt(int(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGKILL))
folder = Path(sys.argv[1])
t.scored(t.DATA.fit(t.fair(**t.QUICK)), folder, rows, checkpoint=folder / "kept")
"""


@pytest.mark.slow
def test_killed_scores_end_with_the_same_bits(tmp_path: Path, model: FairIJ) -> None:
    block = int(np.random.default_rng(7).integers(1, BLOCKS))
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(block), *here],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    assert not (tmp_path / "s.npy").exists()
    assert len(records(tmp_path / "kept")) == block
    before = {path: path.stat().st_mtime_ns for path in records(tmp_path / "kept")}
    went_on = scored(model, tmp_path, checkpoint=tmp_path / "kept")
    assert went_on == scored(model, tmp_path)
    assert before.items() <= {p: p.stat().st_mtime_ns for p in records(tmp_path / "kept")}.items()


def moved(model: FairIJ) -> FairIJ:
    other = copy.copy(model)
    other._given = copy.deepcopy(fitted())  # the model that was edited
    with torch.no_grad():
        other._given[0].bias[0] += 1e-6
    return other


def turned(model: FairIJ) -> FairIJ:
    other = copy.copy(model)
    assert model.direction_ is not None
    other.direction_ = model.direction_ * 2
    return other


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": moved}, "its parameters differs"),
        ({"model": turned}, "its direction differs"),
        ({"model": lambda m: copy.copy(m).set_params(batch_size=7)}, "its settings differs"),
        ({"X": np.where(np.arange(240)[:, None] == 200, 0, DATA.X)}, "its rows differs"),
        ({"y": np.where(np.arange(240) == 200, 1 - DATA.y, DATA.y)}, "its rows differs"),
        ({"X": DATA.X[:-1], "y": DATA.y[:-1]}, "its rows differs"),
    ],
    ids=["parameters", "direction", "settings", "rows", "labels", "fewer rows"],
)
def test_scores_of_another_run_are_refused(
    tmp_path: Path, model: FairIJ, change: dict[str, Any], said: str
) -> None:
    whole = scored(model, tmp_path, checkpoint=tmp_path / "kept")
    other = change.get("model", lambda m: m)(model)
    given = {name: value for name, value in change.items() if name != "model"}
    with pytest.raises(CheckpointError, match=f"is of another run: {said}.*start over"):
        scored(other, tmp_path, checkpoint=tmp_path / "kept", **given)
    assert (tmp_path / "s.npy").read_bytes() == whole


def test_scores_in_other_blocks_are_refused(
    tmp_path: Path, model: FairIJ, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored(model, tmp_path, checkpoint=tmp_path / "kept")
    monkeypatch.setattr(streamed, "CHUNK_ROWS", 2 * BLOCK)
    with pytest.raises(CheckpointError, match=r"is of another computation.*start over"):
        scored(model, tmp_path, checkpoint=tmp_path / "kept")


def test_what_is_asked_of_the_scores_may_differ(tmp_path: Path, model: FairIJ) -> None:
    def best(top: int) -> TopRows:
        return stream_influence(model, DATA.X, DATA.y, top=top, checkpoint=tmp_path)

    assert best(9).rows[:4].tolist() == best(4).rows.tolist()
    with pytest.raises(InvalidInputError, match="`checkpoint` must be a path, of text"):
        stream_influence(model, DATA.X, DATA.y, checkpoint=5)  # type: ignore[arg-type]
