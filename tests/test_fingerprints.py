"""Rows are known by a hash: equal for equal rows, another for any others."""

from __future__ import annotations

import threading
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from biased import problem
from fairij.data.hashing import data_fingerprint, in_background
from fairij.data.sources import ArraySource


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
