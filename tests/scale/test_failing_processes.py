"""A process on which something unforeseen happens does not leave the others waiting for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parents[1]
WORKER = """
import json, os, sys, time, warnings
from pathlib import Path
sys.path.insert(0, {here!r})
warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
from fairij import Grid, mitigation, mitigator, prepared
from fairij.scale.sharding import Shard
from fairij.errors import InvalidInputError
from fairij.models.torch import linearization as _linearization
from biased import fair, problem

folder, rank = Path(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{{folder}}/meeting", rank=rank, world_size=2)
D = problem()
own, own_val = slice(120 * rank, 120 * (rank + 1)), slice(240 * rank, 240 * (rank + 1))


def fails(error, after=0):
    calls = []

    def failing(*args, **given):
        calls.append(1)
        if len(calls) > after:
            raise error
        return original(*args, **given)

    original = getattr(*place)
    return failing


def end(*args, **given):
    os._exit(1)


product = (_linearization.TorchLinearization, "sandwich")
cases = {{
    "in a product": (product, lambda: fails(ZeroDivisionError("a bug"), after=2)),
    "between exchanges": ((mitigation, "most_harmful"), lambda: fails(MemoryError())),
    "after the last one": ((mitigator, "edit_of"), lambda: fails(KeyError("edit"))),
    "told while facts are exchanged": (
        (mitigator.FairIJ, "_data"), lambda: fails(InvalidInputError("bad rows"))
    ),
    "told where errors are let pass": (
        (prepared, "check_runs"), lambda: fails(InvalidInputError("bad rows"))
    ),
    "told where errors are reworded": (
        (prepared, "speaking_of"), lambda: fails(InvalidInputError("bad rows"))
    ),
    "none": (None, None),
    "ended": (product, lambda: end),
}}
said = {{}}
for name, (place, failing) in cases.items():
    if rank == 1 and place:
        kept = getattr(*place)
        setattr(*place, failing())
    try:
        model = fair(search=Grid(points=4, scales=(1.0,))).fit(
            Shard(D.X[own]),
            D.y[own],
            X_val=Shard(D.X_val[own_val]),
            y_val=D.y_val[own_val],
            sensitive_features_val=D.sex_val[own_val],
        )
        said[name] = ["well", model.influence_.tolist()]
    except Exception as error:
        said[name] = [type(error).__name__, str(error)]
    if rank == 1 and place:
        setattr(*place, kept)
    (folder / f"{{rank}}.json").write_text(json.dumps(said))
os._exit(0)  # a group that lost a process cannot be taken down in order
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes met, case by case; neither ends before the last case."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "worker.py").write_text(WORKER.format(here=str(HERE)))
    with ExitStack() as opened:
        processes = [
            subprocess.Popen(
                [sys.executable, str(folder / "worker.py"), str(folder), str(rank)],
                stderr=opened.enter_context((folder / f"{rank}.txt").open("w")),
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            for rank in (0, 1)
        ]
        try:
            for process in processes:
                process.wait(120)  # one that waits for the other does not end
        finally:
            for process in processes:
                process.kill()
                process.wait()
    problems = [(folder / f"{rank}.txt").read_text()[-2000:] for rank in (0, 1)]
    assert (folder / "0.json").exists(), problems
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize(
    ("case", "kind", "text"),
    [
        ("in a product", "ZeroDivisionError", "a bug"),
        ("between exchanges", "MemoryError", ""),
        ("after the last one", "KeyError", "'edit'"),
    ],
)
def test_both_end_with_the_error(
    said: list[dict[str, Any]], case: str, kind: str, text: str
) -> None:
    assert said[1][case] == [kind, text]
    name, message = said[0][case]
    assert name == "ProcessError"
    described = f"{kind}: {text}" if text else kind
    assert f"Process 1 failed, and this one stopped with it: {described}. The output of process 1" in message


@pytest.mark.parametrize(
    "case",
    [
        "told while facts are exchanged",
        "told where errors are let pass",
        "told where errors are reworded",
    ],
)
def test_what_is_told_is_told_once(said: list[dict[str, Any]], case: str) -> None:
    assert said[1][case] == ["InvalidInputError", "bad rows"]
    assert said[0][case] == ["InvalidInputError", "On process 1: bad rows"]


def test_the_next_run_is_not_disturbed(said: list[dict[str, Any]]) -> None:
    assert said[0]["none"][0] == "well", said[0]["none"]
    assert said[0]["none"] == said[1]["none"]


def test_a_process_that_ended(said: list[dict[str, Any]]) -> None:
    name, message = said[0]["ended"]
    assert name == "ProcessError"
    assert "most likely because one of them has ended: see their output" in message
