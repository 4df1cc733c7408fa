"""On a GPU: running out of its memory, and processes that talk by NCCL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from biased import fair, fitted, problem
from fairij import ConjugateGradient, FairIJ, Grid, SharedConjugateGradient
from fairij.solvers import conjugate_gradient

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning"),
]

HERE = Path(__file__).parents[1]
WORKER = """
import sys, warnings
sys.path.insert(0, {here!r})
warnings.simplefilter("ignore")
import numpy as np, torch
from fairij.scale.sharding import Shard, start
from biased import fair, fitted, problem

D = problem()
alone = D.fit(fair(fitted().cuda())).influence_
assert start() == 0 and torch.distributed.get_world_size() == 1
sharded = D.fit(fair(fitted().cuda()), X=Shard(D.X)).influence_
assert torch.distributed.get_backend_config() == "cpu:gloo,cuda:nccl"
np.testing.assert_allclose(sharded, alone, rtol=1e-3, atol=1e-3 * np.abs(alone).max())
print("agree on", len(alone), "rows")
"""


@contextmanager
def little_memory(room: int) -> Iterator[None]:
    """At most so many bytes more than there are in use; fails if nothing ran out of them."""
    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(0).total_memory
    times = torch.cuda.memory_stats()["num_ooms"]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + room) / whole)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.cuda.memory_stats()["num_ooms"] > times


def test_a_fit_that_runs_out_of_memory_goes_on_with_less_and_ends_the_same() -> None:
    rows = 400_000
    draws = torch.Generator().manual_seed(0)
    X = torch.randn(rows, 32, generator=draws)
    s = (torch.rand(rows, generator=draws) < 0.4).long()
    y = (X[:, 0] + s + torch.randn(rows, generator=draws) > 0.5).long()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 512), nn.SELU(), nn.Linear(512, 1)).cuda()
    X, some = X.cuda(), slice(0, 20_000)

    def scores() -> np.ndarray:
        fair = FairIJ(
            model, search=Grid(points=2), memory_limit=2**35, selection="lowest_gap", verbose=False
        )
        val = {"X_val": X[some], "y_val": y[some], "sensitive_features_val": s[some]}
        return fair.fit(X, y, **val).influence_

    expected = scores()
    with little_memory(2**28):
        found = scores()
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-3 * np.abs(expected).max())


def test_the_jacobians_of_trigger_tokens_are_made_in_smaller_batches_where_memory_runs_out() -> (
    None
):
    pytest.importorskip("transformers")
    sys.path.insert(0, str(HERE / "language"))
    from tiny import bert, token_rows

    from fairij.models.text.trigger_editable import TriggerEditable
    from fairij.models.text.triggers import TriggerTokens

    model = TriggerTokens(bert(), 3).cuda()
    X = {name: part.cuda() for name, part in token_rows(100_000).items()}
    expected = TriggerEditable(model).linearize(X)
    with little_memory(2**28):
        found = TriggerEditable(model).linearize(X)
    r = torch.randn(len(TriggerEditable(model).theta), device="cuda")
    torch.testing.assert_close(found.outputs, expected.outputs, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.jvp(r), expected.jvp(r), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("wide", [conjugate_gradient.WIDE, 1])
def test_a_sample_and_shared_directions_give_what_plain_ones_give(
    monkeypatch: pytest.MonkeyPatch, wide: int
) -> None:
    monkeypatch.setattr(conjugate_gradient, "WIDE", wide)  # by products, and among rows
    data = problem()
    model = fitted(dtype=torch.float32).cuda()
    plain = data.fit(fair(model, solver=ConjugateGradient(tolerance=1e-4))).influence_
    solver = SharedConjugateGradient(tolerance=1e-4, sample_rows=25)
    for _ in range(2):
        found = data.fit(fair(model, solver=solver)).influence_
        np.testing.assert_allclose(found, plain, rtol=1e-2, atol=1e-3 * np.abs(plain).max())


def test_one_process_that_talks_by_nccl_gives_what_one_alone_gives() -> None:
    env = os.environ | {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    done = subprocess.run(
        [sys.executable, "-c", WORKER.format(here=str(HERE))],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "agree on 240 rows" in done.stdout, done.stderr
