"""Two processes give what one gives; if something is wrong on one of them, both are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from apart import run_apart
from biased import L2, fitted, problem
from fairij import Constrained, FairIJ, Grid

SCRIPT = Path(__file__).parent / "two_processes.py"
Met = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run all cases of `two_processes.py` once."""
    folder = tmp_path_factory.mktemp("two")
    code = "import runpy, sys; runpy.run_path(sys.argv[2], run_name='__main__')"
    done = run_apart(code, folder, SCRIPT, timeout=240)  # one that waits for the other has no end
    assert (folder / "0.json").exists(), done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def met(folder: Path) -> Met:
    """What each process met, case by case."""
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


def test_two_processes_give_what_one_gives(met: Met) -> None:
    assert met[0]["agrees"][0] == "well", met[0]["agrees"]
    assert met[0]["agrees"] == met[1]["agrees"]
    two, data = met[0]["agrees"][1], problem()
    search = Grid(points=5, scales=(1.0, 3.0))
    one = FairIJ(
        fitted(dtype=torch.float64),
        selection="lowest_gap",
        verbose=False,
        weight_decay=L2,
        search=search,
    )
    data.fit(
        one,
        X=data.X.astype(float),
        X_val=data.X_val.astype(float),
        sample_weight=np.linspace(1, 2, 240),
    )
    np.testing.assert_allclose(two["influence"], one.influence_, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(two["delta"], one.edit_.delta, rtol=1e-5, atol=1e-9)
    assert two["dropped"] == one.dropped_.tolist()


def test_two_processes_follow_the_same_path(met: Met) -> None:
    assert met[0]["constrained"][0] == "well", met[0]["constrained"]
    assert met[0]["constrained"] == met[1]["constrained"]
    data = problem()
    one = FairIJ(
        fitted(dtype=torch.float64), verbose=False, weight_decay=L2, search=Constrained(steps=3)
    )
    data.fit(
        one,
        X=data.X.astype(float),
        X_val=data.X_val.astype(float),
        sensitive_features=data.sex,
    )
    delta = met[0]["constrained"][1]["delta"]
    assert one.edit_.delta.norm() > 0
    np.testing.assert_allclose(delta, one.edit_.delta, rtol=1e-4, atol=1e-7)


def test_a_checkpoint_of_two_processes(met: Met) -> None:
    assert [there["checkpointed"] for there in met] == [["well", True]] * 2


def test_two_processes_score_a_shard(met: Met, folder: Path) -> None:
    found = [there["scored"][1] for there in met]
    written = np.concatenate([np.load(folder / f"s-{rank}.npy") for rank in (0, 1)])
    np.testing.assert_allclose(written, found[0]["influence"], rtol=1e-4, atol=1e-9)
    best = np.argsort(-written, kind="stable")[:9]
    assert [there["rows"] for there in found] == [best.tolist()] * 2
    np.testing.assert_array_equal(found[0]["scores"], written[best])


def test_two_processes_keep_a_journal_each(met: Met, folder: Path) -> None:
    found = met[0]["scored"][1]
    assert found["again"] == [found["scores"]] * 3
    assert sorted(path.name for path in (folder / "kept").iterdir()) == ["process-0", "process-1"]


COLUMNS = "must have the same columns in the same order on all processes, but process 1 has "
ALL_OR_NONE = "on all processes or on none, but this is so on process "


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("model", "All processes must have the same parameters, but process 1 has"),
        ("validation rows", "All processes must have the same validation rows"),
        ("settings", "have the same settings, but process 1 has"),
        ("settings", "load the same model, rows and settings on each"),
        ("value", "On process 1: `X` must be finite, without NaN or infinity: row 3"),
        ("empty", "Every process needs at least one row of its own, but process 1 has none"),
        ("too few labels", "On process 1: `y` must have one row per data point"),
        ("order", f"`X` of a `Shard` {COLUMNS}'d' at place 0 and process 0 has 'a' there"),
        ("width", f"`X` of a `Shard` {COLUMNS}3 columns and process 0 has 4 columns"),
        ("names", f"{COLUMNS}columns with names and process 0 has columns without names"),
        ("form", "in the same form on all processes, but process 1 has `X['a']` and process 0"),
        ("part", f"`X[1]` of a `Shard` {COLUMNS}3 columns and process 0 has 2 columns"),
        ("weight", f"weights and groups must be given {ALL_OR_NONE}1 and not on process 0"),
        ("labels", f"Labels, weights and groups must be given {ALL_OR_NONE}0 and not"),
        ("label name", "must have a value for each of its rows, got 'y': pass the values"),
        ("groups", f"{COLUMNS}'race' at place 0 and process 0 has 'sex' there"),
        ("missing", "`sensitive_features` has 1 missing value(s), the first in row 120"),
        ("made", "process 1 is at the making of a `Shard` and process 0 at a fit: make a `Shard`"),
        ("passed", f"Rows must be a `Shard` {ALL_OR_NONE}1 and not on process 0"),
        ("rows", "process 1 has 220 of them and process 0 has 240: give it the same rows on each"),
        ("checkpoint", "`checkpoint` must be given on all processes or on none, but some have one"),
    ],
)
def test_both_are_told(met: Met, case: str, text: str) -> None:
    for kind, message in (there[case] for there in met):
        assert kind == "InvalidInputError", message
        assert text in message
    assert met[0][case] == met[1][case]


@pytest.mark.parametrize("case", ["well", "well after failures"])
def test_a_fit_after_errors_is_well(met: Met, case: str) -> None:
    assert met[0][case][0] == "well", met[0][case]
    assert met[0][case] == met[1][case]


def test_groups_in_a_dict_are_those_in_a_frame(met: Met) -> None:
    assert met[0]["frame"][0] == "well", met[0]["frame"]
    assert met[0]["dict"] == met[0]["frame"]


@pytest.mark.parametrize(
    ("case", "kind", "text"),
    [
        ("in a product", "ZeroDivisionError", "a bug"),
        ("between exchanges", "MemoryError", ""),
        ("after the last exchange", "KeyError", "'edit'"),
    ],
)
def test_both_end_with_a_bug_of_one(met: Met, case: str, kind: str, text: str) -> None:
    assert met[1][case] == [kind, text]
    name, message = met[0][case]
    assert name == "ProcessError"
    described = f"{kind}: {text}" if text else kind
    assert message.startswith(f"Process 1 failed, and this one stopped with it: {described}. The ")


def test_rows_that_one_process_refuses(met: Met) -> None:
    kind, message = met[1]["loader"]
    assert kind == "InvalidInputError"
    assert met[0]["loader"] == [kind, f"On process 1: {message}"]
    assert message.startswith("A DataLoader must give all its rows in the same order")


@pytest.mark.parametrize(
    "case", ["where columns are read", "where errors are ignored", "where errors are reworded"]
)
def test_an_error_is_reported_once(met: Met, case: str) -> None:
    assert met[1][case] == ["InvalidInputError", "bad rows"]
    assert met[0][case] == ["InvalidInputError", "On process 1: bad rows"]


def test_a_process_that_ended(met: Met) -> None:
    name, message = met[0]["ended"]
    assert name == "ProcessError"
    assert "most likely because one of them has ended: see their output" in message
