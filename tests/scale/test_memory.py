"""Where memory runs out less is taken; vectors of rows lie in files, and give the same numbers."""

from __future__ import annotations

import errno
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from biased import fair, fitted, problem
from fairij import Grid
from fairij.data import row_vectors
from fairij.data.row_vectors import lies_in_file, new_rows, release
from fairij.data.sources import ArraySource
from fairij.method.influence import most_harmful
from fairij.models import adapt
from fairij.scale import streaming as streamed
from fairij.scale.streaming import StreamedEditable

DATA = problem()
ROOT = Path(__file__).parents[2]


class Scarce(nn.Module):
    """A module for which memory runs out beyond some rows."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.body, self.most, self.failures = fitted(), most, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.most:
            self.failures += 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.body(x)


@pytest.mark.parametrize("batch", ["auto", 480])
def test_outputs_and_candidates_when_memory_runs_out(batch: Any) -> None:
    scarce, plain = StreamedEditable(adapt(Scarce(50), batch_size=batch)), adapt(fitted())
    close = torch.testing.assert_close
    close(scarce.outputs(DATA.X_val), plain.outputs(DATA.X_val))
    direction, scales = torch.ones(31), torch.tensor([0.5, 2.0])
    scarce = StreamedEditable(adapt(Scarce(50), batch_size=batch))
    expected = plain.evaluator(DATA.X_val).along(direction, scales)
    evaluator = scarce.evaluator(DATA.X_val)
    close(evaluator.along(direction, scales), expected)
    close(
        evaluator.along(-direction, scales), plain.evaluator(DATA.X_val).along(-direction, scales)
    )


def test_products_are_let_go_before_batches_are_halved() -> None:
    class Once(nn.Linear):
        full = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.full:
                self.full = False
                raise MemoryError
            return super().forward(x)

    torch.manual_seed(0)
    model = adapt(Once(4, 1), batch_size=100)
    model._writes_input = False
    model.evaluator(DATA.X).along(torch.ones(5), torch.ones(1))
    assert model.batch_rows(torch.tensor(DATA.X)) == 100


def test_not_even_one_row_fits() -> None:
    scarce = StreamedEditable(adapt(Scarce(0)))
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        scarce.outputs(DATA.X)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        scarce.evaluator(DATA.X).along(torch.ones(31), torch.ones(1))


def test_another_error_is_not_retried() -> None:
    calls: list[int] = []

    class Broken(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(len(x))
            raise RuntimeError("another matter")

    with pytest.raises(RuntimeError, match="another matter"):
        StreamedEditable(adapt(Broken(4, 1), batch_size=240)).outputs(DATA.X)
    assert calls == [32]  # some rows are run first, to see whether outputs are random


needs_files = pytest.mark.skipif(not row_vectors.CAN_MAP, reason="no such files on this system")


@needs_files
def test_a_vector_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_vectors, "SMALLEST", 4000)
    vector = new_rows(torch.empty(1, 3, dtype=torch.float64), 1000, in_file=True)
    assert lies_in_file(vector)
    assert lies_in_file(vector[7:])
    assert not lies_in_file(vector.clone())
    expected = torch.arange(3000, dtype=torch.float64).view(1000, 3)
    vector.copy_(expected)
    release()
    torch.testing.assert_close(vector, expected)
    before, view = len(row_vectors._maps), vector[5].numpy()
    del vector
    gc.collect()
    release()
    assert view.tolist() == [15, 16, 17]  # alive as long as anything looks at it
    del view
    gc.collect()
    assert len(row_vectors._maps) == before - 1


@needs_files
def test_what_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    like = torch.empty(1)
    assert not lies_in_file(new_rows(like, 10, in_file=True))
    monkeypatch.setattr(row_vectors, "SMALLEST", 1)
    assert not lies_in_file(new_rows(like, 10, in_file=False))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    vector = new_rows(like, 10, in_file=True)
    assert vector.shape == (10,)
    assert not lies_in_file(vector)


@needs_files
@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
@pytest.mark.parametrize("reads", [True, False])
def test_a_fit_with_vectors_in_files(monkeypatch: pytest.MonkeyPatch, reads: bool) -> None:
    settings = {"search": Grid(points=5, scales=(1.0, 3.0), max_k=30), "drop": "loss_aware"}
    settings |= {} if reads else {"memory_limit": 0, "batch_size": 37}
    monkeypatch.setattr(streamed, "CHUNK_ROWS", 37)
    expected = DATA.fit(fair(**settings), X=ArraySource(DATA.X) if reads else DATA.X)
    assert not lies_in_file(torch.from_numpy(expected.influence_))
    monkeypatch.setattr(row_vectors, "SMALLEST", 1)
    monkeypatch.setattr(row_vectors, "BLOCK_ROWS", 50)
    found = DATA.fit(fair(**settings), X=ArraySource(DATA.X) if reads else DATA.X)
    assert lies_in_file(torch.from_numpy(found.influence_))
    np.testing.assert_allclose(found.influence_, expected.influence_, rtol=1e-6)
    np.testing.assert_array_equal(found.dropped_, expected.dropped_)
    torch.testing.assert_close(found.edit_.delta, expected.edit_.delta)
    assert found.diagnostics_["n_positive"] == expected.diagnostics_["n_positive"]
    assert found.diagnostics_["train_loss"] == pytest.approx(expected.diagnostics_["train_loss"])


@given(
    values=st.lists(st.tuples(st.integers(-4, 9), st.integers(-2, 9)), min_size=1, max_size=60),
    most=st.one_of(st.none(), st.integers(0, 9)),
    block=st.integers(1, 20),
    with_also=st.booleans(),
)
def test_the_most_harmful_rows(
    values: list[tuple[int, int]], most: int | None, block: int, with_also: bool
) -> None:
    scores, others = torch.tensor(values, dtype=torch.float32).T
    able = (scores > 0) & (others > 0) if with_also else scores > 0
    ranked = sorted(torch.nonzero(able)[:, 0].tolist(), key=lambda n: -scores[n])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_vectors, "BLOCK_ROWS", block)
        rows, number = most_harmful(scores, others if with_also else None, most=most)
    assert rows.tolist() == ranked[:most]
    assert number == len(ranked)


FIT = """
import functools, json, sys
from benchmarks import generated, scale
generated.FEATURES = 4
scale.FairIJ = functools.partial(scale.FairIJ, memory_limit=2**22)
print(json.dumps(scale.fit(sys.argv[1], int(sys.argv[2]), 1)))
"""


@needs_files
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_memory_does_not_grow_with_rows(kind: str) -> None:
    few, many = 400_000, 2_000_000

    def peak(rows: int) -> float:
        command = [sys.executable, "-c", FIT, kind, str(rows)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found["peak_mb"]

    # each vector of float32 in memory would add 4 bytes a row, and there are five or more of them;
    # the heap itself varies by some MB from run to run
    lowest = [min(peak(rows) for _ in range(2)) for rows in (few, many)]
    assert 1e6 * (lowest[1] - lowest[0]) / (many - few) < 10
