"""Checkpoints: a stopped run goes on and ends with the same bits; anything else is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from biased import fair, fitted, problem
from fairij import FairIJ, Grid, Neumann, SharedConjugateGradient
from fairij.errors import CheckpointError, FairIJError
from fairij.method.losses import BinaryCrossEntropy
from fairij.scale import checkpoints
from fairij.scale.checkpoints import Journal
from fairij.solvers import conjugate_gradient

DATA = problem()
SETTINGS: dict[str, Any] = {"search": Grid(points=4, scales=(1.0, 3.0))}


def same(left: FairIJ, right: FairIJ) -> None:
    assert left.influence_.tobytes() == right.influence_.tobytes()
    assert left.edit_.delta.numpy().tobytes() == right.edit_.delta.numpy().tobytes()
    np.testing.assert_array_equal(left.dropped_, right.dropped_)
    pd.testing.assert_frame_equal(left.candidates_, right.candidates_, check_exact=True)


@pytest.fixture(autouse=True)
def _write_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)


class Stopped(BaseException):
    """Like a killed process: nothing handles it."""


@contextmanager
def stopped_after(passes: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    write, count = checkpoints.write_sealed, [0]

    def counted(*given: Any) -> None:
        if count[0] == passes:
            raise Stopped
        count[0] += 1
        write(*given)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_sealed", counted)
        with pytest.raises(Stopped):
            yield


def records(folder: Path) -> list[Path]:
    return sorted(folder.glob("process-0/*.safetensors"))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"validation": "cross_fit", "drop": "loss_aware"},
        {"solver": "woodbury", "damping": (0.01, 0.1)},
        {"curvature": "hessian", "damping": 0.1},
        {"search": "path", "validation": "split"},
        {"search": "reweight", "damping": (0.01, 0.1)},
        {"solver": Neumann(steps=20, batch_size=50, tolerance=None), "damping": 1.0},
    ],
    ids=str,
)
def test_a_stopped_run_ends_with_the_same_bits(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = DATA.fit(fair(**SETTINGS | settings))
    watched = DATA.fit(fair(**SETTINGS | settings, checkpoint=tmp_path / "whole"))
    same(watched, plain)
    passes = len(records(tmp_path / "whole"))
    assert passes > 5
    for done in (0, 1, passes // 2, passes - 1):
        folder = tmp_path / f"stopped-{done}"
        with stopped_after(done, monkeypatch):
            DATA.fit(fair(**SETTINGS | settings, checkpoint=folder))
        assert len(records(folder)) == done
        same(DATA.fit(fair(**SETTINGS | settings, checkpoint=folder)), plain)
        assert len(records(folder)) == passes


def test_a_finished_run_makes_no_pass_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = DATA.fit(fair(**SETTINGS, checkpoint=tmp_path))

    def never(*given: Any) -> None:
        raise AssertionError("a pass was made again")

    monkeypatch.setattr(checkpoints, "write_sealed", never)
    same(DATA.fit(fair(**SETTINGS, checkpoint=tmp_path)), first)


@pytest.mark.parametrize("wide", [conjugate_gradient.WIDE, 1])
def test_a_solver_that_several_fits_share_goes_on_whatever_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide: int
) -> None:
    monkeypatch.setattr(conjugate_gradient, "WIDE", wide)  # by products, and among rows
    solver = SharedConjugateGradient(sample_rows=5)
    first = DATA.fit(fair(**SETTINGS, solver=solver, checkpoint=tmp_path))
    same(DATA.fit(fair(**SETTINGS, solver=solver, checkpoint=tmp_path)), first)
    DATA.fit(fair(**SETTINGS, solver=solver))  # which leaves something to share
    same(DATA.fit(fair(**SETTINGS, solver=solver, checkpoint=tmp_path)), first)


def test_passes_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 1e9)
    first = DATA.fit(fair(**SETTINGS, checkpoint=tmp_path))
    assert len(records(tmp_path)) == 1
    same(DATA.fit(fair(**SETTINGS, checkpoint=tmp_path)), first)


def moved(module: torch.nn.Module) -> torch.nn.Module:
    import copy

    other = copy.deepcopy(module)
    with torch.no_grad():
        other[0].bias[0] += 1e-6
    return other


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"damping": 0.02}, "its settings differs"),
        ({"search": Grid(points=5)}, "its settings differs"),
        ({"constraints": "equal_opportunity"}, "its settings differs"),
        ({"batch_size": 7}, "its settings differs"),
        ({"weight_decay": 0.5}, "its settings differs"),
        ({"loss": BinaryCrossEntropy()}, "its settings differs"),
        ({"module": moved(fitted())}, "its parameters differs"),
        ({"X": DATA.X + np.float32(1e-6)}, "its training rows differs"),
        ({"y": 1 - DATA.y}, "its training rows differs"),
        ({"X_val": DATA.X_val * 2}, "its validation rows differs"),
        ({"sensitive_features_val": DATA.race_val}, "its groups differs"),
        ({"sample_weight": np.arange(1.0, 241)}, "its sample weights differs"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_run_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    DATA.fit(fair(**SETTINGS, checkpoint=tmp_path))
    before = {path: path.read_bytes() for path in records(tmp_path)}
    change = dict(change)
    module = change.pop("module", fitted())
    data = {n: change.pop(n) for n in list(change) if n.startswith(("X", "y", "sens", "sample"))}
    with pytest.raises(CheckpointError) as caught:
        DATA.fit(fair(module, **SETTINGS | change, checkpoint=tmp_path), **data)
    assert "is of another run" in str(caught.value)
    assert said in str(caught.value)
    assert "delete this one to start over" in str(caught.value)
    assert {path: path.read_bytes() for path in records(tmp_path)} == before


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    kind = rng.integers(4)
    if kind == 0:
        return content[: rng.integers(len(content))]
    if kind == 1:
        place, bit = int(rng.integers(len(content))), int(rng.integers(8))
        return content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]
    if kind == 2:
        return content + rng.bytes(int(rng.integers(1, 40)))
    start, length = int(rng.integers(len(content))), int(rng.integers(1, 30))
    return content[:start] + rng.bytes(length) + content[start + length :]


def test_damaged_records_are_never_used(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, {"model": "m"})
    value = torch.linspace(0, 1, 50)
    journal.recalled("vjp", torch.ones(3), lambda: value)
    (path,) = records(tmp_path)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(300):
        bad = damaged(whole, rng)
        if bad == whole:
            continue
        path.write_bytes(bad)
        again = Journal.open(tmp_path, {"model": "m"})
        with pytest.raises(CheckpointError, match=r"cannot be used: .*start over"):
            again.recalled("vjp", torch.ones(3), lambda: value)
    path.write_bytes(whole)
    again = Journal.open(tmp_path, {"model": "m"})
    assert torch.equal(again.recalled("vjp", torch.ones(3), lambda: 0 * value), value)


def test_damaged_descriptions_are_never_used(tmp_path: Path) -> None:
    facts = {"model": "m" * 16, "settings": "{'damping': 0.01}"}
    Journal.open(tmp_path, facts)
    path = tmp_path / "process-0" / "run.json"
    whole, rng = path.read_bytes(), np.random.default_rng(1)
    for _ in range(300):
        path.write_bytes(damaged(whole, rng))
        try:
            Journal.open(tmp_path, facts)
        except CheckpointError as error:
            assert "start over" in str(error)  # noqa: PT017
        else:  # blanks, or an equal byte
            assert json.loads(path.read_bytes()) == json.loads(whole)
    for odd in (b"", b"[]", b"{}", b'{"format": 3, "facts": {}}', b"\xff", b"[" * 10**5):
        path.write_bytes(odd)
        with pytest.raises(CheckpointError, match="does not describe a checkpoint"):
            Journal.open(tmp_path, facts)
    path.write_bytes(b" " * (2**20 + 1))
    with pytest.raises(CheckpointError, match="too large"):
        Journal.open(tmp_path, facts)


def test_a_record_of_another_computation(tmp_path: Path) -> None:
    Journal.open(tmp_path, {}).recalled("vjp", torch.ones(3), lambda: torch.ones(2))
    again = Journal.open(tmp_path, {})
    with pytest.raises(CheckpointError, match="of another computation"):
        again.recalled("vjp", torch.zeros(3), lambda: torch.ones(2))


def test_a_missing_record_ends_what_is_known(tmp_path: Path) -> None:
    first = DATA.fit(fair(**SETTINGS, checkpoint=tmp_path))
    records(tmp_path)[4].unlink()
    same(DATA.fit(fair(**SETTINGS, checkpoint=tmp_path)), first)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(CheckpointError, match="cannot be written: Not a directory"):
        DATA.fit(fair(**SETTINGS, checkpoint=tmp_path / "file"))
    real, left = checkpoints.write_sealed, [3]

    def full(*given: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        real(*given)

    monkeypatch.setattr(checkpoints, "write_sealed", full)
    model = fair(**SETTINGS, checkpoint=tmp_path / "full")
    with pytest.raises(FairIJError, match=r"No space left on device. What was written before is"):
        DATA.fit(model)
    assert not hasattr(model, "estimator_")
    assert len(records(tmp_path / "full")) == 3
    monkeypatch.undo()
    same(DATA.fit(fair(**SETTINGS, checkpoint=tmp_path / "full")), DATA.fit(fair(**SETTINGS)))


def test_records_left_half_written_are_not_seen(tmp_path: Path) -> None:
    DATA.fit(fair(**SETTINGS, checkpoint=tmp_path))
    first = records(tmp_path)[0]
    shutil.copy(first, first.with_name(f".{first.name}.0123"))
    (first.parent / "notes.txt").write_text("someone's own")
    DATA.fit(fair(**SETTINGS, checkpoint=tmp_path))
