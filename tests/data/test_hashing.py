"""Fingerprints of rows: equal for equal rows, different for any other rows."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from biased import problem
from fairij.data import hashing
from fairij.data.hashing import data_fingerprint, in_background
from fairij.data.sources import ArraySource, LoaderSource
from fairij.scale.sharding import Shard

DATA = problem()
BETWEEN = 1  # a row that a sample of every third row leaves out


def test_data_fingerprint_sees_every_change() -> None:
    X, y = problem().X, problem().y
    base = data_fingerprint(X, y)
    assert base == data_fingerprint(X.copy(), y.copy())
    assert base == data_fingerprint(torch.tensor(X), torch.tensor(y))
    assert base == data_fingerprint(np.asfortranarray(X), y)
    moved = X.copy()
    moved[-1, -1] += 1e-6
    different = {
        base,
        data_fingerprint(moved, y),
        data_fingerprint(X[::-1], y),
        data_fingerprint(X, 1 - y),
        data_fingerprint(X[:-1], y[:-1]),
        data_fingerprint({"a": X, "b": X}, y),
        data_fingerprint(X.astype(np.float64), y),
    }
    assert len(different) == 7


def test_data_fingerprint_of_any_form() -> None:
    X, y = problem().X, problem().y
    frame = pd.DataFrame(X, columns=list("abcd")).assign(text="a")
    assert data_fingerprint(frame, y) != data_fingerprint(frame.assign(text="b"), y)
    assert data_fingerprint(X.tolist(), y.tolist()) == data_fingerprint(X.astype(np.float64), y)
    assert data_fingerprint(scipy.sparse.csr_array(X), y) == data_fingerprint(X, y)
    assert len(data_fingerprint(scipy.sparse.coo_matrix(X), pd.Series(y.astype(str)))) == 64


def test_texts_and_rows_of_unlike_lengths_have_fingerprints() -> None:
    texts = ["sky", "rain", "a" * 50]
    same = [texts, np.array(texts), np.array(texts, object), pd.Series(texts)]
    assert len({data_fingerprint(form, [0, 1, 1]) for form in same}) == 1
    assert data_fingerprint(texts, [0, 1, 1]) != data_fingerprint(["sky", "rai", "n"], [0, 1, 1])
    rows = {"input_ids": [[1, 2, 3], [4], [5, 6]]}
    assert data_fingerprint(rows, texts) == data_fingerprint(rows, texts, every_row=True)
    other = {"input_ids": [[1, 2], [3, 4], [5, 6]]}
    assert data_fingerprint(rows, texts) != data_fingerprint(other, texts)


def test_one_long_text_does_not_widen_the_others() -> None:
    texts = ["sky"] * 2000 + ["a" * 100_000]  # 0.8 GB as an array of texts
    tracemalloc.start()
    data_fingerprint(texts, [0] * len(texts))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_data_fingerprint_samples_long_tables() -> None:
    X, y = np.arange(250_000)[:, None], np.zeros(250_000)
    changed = X.copy()
    changed[1] += 1  # between the rows that are sampled
    assert data_fingerprint(X, y) == data_fingerprint(changed, y)
    changed[3] += 1
    assert data_fingerprint(X, y) != data_fingerprint(changed, y)


def test_rows_in_memory_are_hashed_beside_what_comes_next() -> None:
    threads: list[int] = []

    def work() -> str:
        threads.append(threading.get_ident())
        return "found"

    X = problem().X
    assert [in_background(work, rows)() for rows in (X, {"a": X}, ArraySource(X))] == ["found"] * 3
    here = threading.get_ident()
    assert [thread == here for thread in threads] == [False, False, True]


def test_an_error_beside_is_not_lost() -> None:
    def work() -> str:
        raise MemoryError("no room")

    told = in_background(work, problem().X)
    with pytest.raises(MemoryError, match="no room"):
        told()


@pytest.fixture
def _sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third row of the problem is a sample of it."""
    monkeypatch.setattr(hashing, "HASHED_ROWS", 100)
    monkeypatch.setattr(hashing, "READ_ROWS", 37)


@pytest.fixture
def _one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def changed(X: Any, row: int = BETWEEN) -> Any:
    other = X.copy()
    other[row] = other[row] + 1
    return other


def frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X).assign(text=[f"{value:.3f}" for value in X[:, 0]], whole=1)


def parts(X: np.ndarray) -> LoaderSource:
    rows = [{"left": row[:2], "right": row[2:]} for row in torch.tensor(X)]
    return LoaderSource(DataLoader(rows, batch_size=50), features=("left", "right"))


@pytest.mark.usefixtures("_sampled")
@pytest.mark.parametrize(
    "form",
    [
        torch.tensor,
        lambda X: torch.tensor(X, dtype=torch.bfloat16),
        frame,
        np.ndarray.tolist,
        scipy.sparse.csr_array,
        scipy.sparse.coo_matrix,
        ArraySource,
        lambda X: ArraySource(X).subset(np.arange(240)),
        lambda X: {"left": X[:, :2], "right": ArraySource(X[:, 2:])},
        parts,
    ],
)
def test_the_fingerprint_of_every_row(form: Any) -> None:
    def of(X: np.ndarray, y: np.ndarray = DATA.y) -> str:
        return data_fingerprint(form(X), y, every_row=True)

    base = of(DATA.X)
    assert base == of(DATA.X.copy())
    others = [of(changed(DATA.X, row)) for row in (0, BETWEEN, 239)]
    flipped = np.where(np.arange(240) == BETWEEN, 1 - DATA.y, DATA.y)
    assert len({base, *others, of(DATA.X, flipped), of(DATA.X[:-1], DATA.y[:-1])}) == 6


def test_the_fingerprint_of_batches_of_several_parts() -> None:
    """As one piece of text, only the first and last rows of a batch would be seen."""
    rows = np.tile(DATA.X, (6, 1))
    labels = np.tile(DATA.y, 6)
    left = data_fingerprint(parts(rows), labels)
    assert left != data_fingerprint(parts(changed(rows, 700)), labels)


@pytest.mark.usefixtures("_sampled", "_one_process")
def test_the_fingerprint_of_every_row_of_a_shard() -> None:
    base = data_fingerprint(Shard(DATA.X), DATA.y, every_row=True)
    assert base == data_fingerprint(Shard(DATA.X.copy()), DATA.y, every_row=True)
    assert base != data_fingerprint(Shard(changed(DATA.X)), DATA.y, every_row=True)
