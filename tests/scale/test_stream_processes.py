"""Scores of a `Shard`: each process its own rows, the highest of all processes on each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_distributed import launch

from biased import fair, problem
from fairij.errors import InvalidInputError
from fairij.scale.streamed_scores import stream_influence

STREAMED = """
from fairij.scale.streamed_scores import stream_influence
model = D.fit(fair(search=Grid(points=3)))
shard = Shard.of(D.X)
top = stream_influence(model, shard, own(D.y), out=out.with_name("s.npy"), top=9)
rows = [None] * size
torch.distributed.all_gather_object(rows, top.rows.tolist())
try:
    stream_influence(model, shard, own(D.y)[: 120 - rank])
except FairIJError as error:
    problem = str(error)
result = {"rows": rows, "scores": top.scores.tolist(), "problem": problem}
result["influence"] = model.influence_.tolist()
"""


def test_two_processes_score_a_shard(tmp_path: Path) -> None:
    two = launch(tmp_path, 2, STREAMED)
    influence = np.array(two["influence"])
    written = np.concatenate([np.load(tmp_path / f"s-{rank}.npy") for rank in (0, 1)])
    np.testing.assert_allclose(written, influence, rtol=1e-4, atol=1e-9)
    best = np.argsort(-written, kind="stable")[:9]
    assert two["rows"] == [best.tolist()] * 2
    np.testing.assert_array_equal(two["scores"], written[best])
    assert "On process 1: `y` must have one row per data point" in two["problem"]


def test_other_columns_are_refused() -> None:
    data = problem()
    model = data.fit(fair())
    with pytest.raises(InvalidInputError, match="expected 4, got 3"):
        stream_influence(model, data.X[:, :3], data.y)
