"""A stopped fit resumes and ends with the same bits; a checkpoint of another fit is refused."""

from __future__ import annotations

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
from fairij.data import hashing
from fairij.data.sources import ArraySource
from fairij.errors import CheckpointError, FairIJError, InvalidInputError
from fairij.models.losses import BinaryCrossEntropy
from fairij.scale import checkpoints
from fairij.solvers import conjugate_gradient
from fairij.storage.checksummed import read_sealed

DATA = problem()
SETTINGS: dict[str, Any] = {
    "search": Grid(points=4, scales=(1.0, 3.0)),
    "selection": "lowest_gap",
}
BETWEEN = 1  # a row that a sample of every third row leaves out


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


def passes(folder: Path) -> list[tuple[str, bytes]]:
    """The names and results of all recorded passes, in order, if each is in a file."""
    found = []
    for number, path in enumerate(records(folder)):
        header, results = read_sealed(path, checkpoints.FORMAT)
        found.append((header[f"given {number}"], results[str(number)].numpy().tobytes()))
    return found


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"validation_use": "cross_fit", "drop": "loss_aware"},
        {"solver": "woodbury", "damping": (0.01, 0.1)},
        pytest.param({"curvature": "hessian", "damping": 0.1}, marks=pytest.mark.slow),
        {"search": "path", "validation_use": "split"},
        pytest.param({"search": "reweight", "damping": (0.01, 0.1)}, marks=pytest.mark.slow),
        {"solver": Neumann(steps=20, batch_size=50, tolerance=None), "damping": 1.0},
    ],
    ids=str,
)
def test_a_stopped_run_ends_with_the_same_bits(
    tmp_path: Path, settings: dict[str, Any], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle, and if tried four times also at both ends."""
    plain = DATA.fit(fair(**SETTINGS | settings))
    watched = DATA.fit(fair(**SETTINGS | settings, checkpoint=tmp_path / "whole"))
    same(watched, plain)
    passes = len(records(tmp_path / "whole"))
    assert passes > 5
    for done in (passes // 2, 0, 1, passes - 1)[: times if settings else 4]:
        folder = tmp_path / f"stopped-{done}"
        with stopped_after(done, monkeypatch):
            DATA.fit(fair(**SETTINGS | settings, checkpoint=folder))
        assert len(records(folder)) == done
        same(DATA.fit(fair(**SETTINGS | settings, checkpoint=folder)), plain)
        assert len(records(folder)) == passes


@pytest.fixture(scope="module")
def comments() -> tuple[torch.nn.Module, dict[str, Any]]:
    """A classifier with trigger tokens, trained for a few steps, and rows for a fit."""
    pytest.importorskip("transformers")
    from fairij.models.text.triggers import TriggerTokens
    from language.tiny import bert, biased_rows

    torch.manual_seed(0)
    model = TriggerTokens(bert(), 3)
    (X, y, _), (X_val, y_val, s_val) = biased_rows(150, 0), biased_rows(150, 1)
    steps = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
    for _ in range(15):
        steps.zero_grad()
        z = model(**X).view(-1)
        torch.nn.functional.binary_cross_entropy_with_logits(z, torch.tensor(y).float()).backward()
        steps.step()
    given = {"X": X, "y": y, "X_val": X_val, "y_val": y_val, "sensitive_features_val": s_val}
    return model, given


@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
def test_a_model_that_estimates_candidates_is_judged_as_without_a_checkpoint(
    tmp_path: Path,
    comments: tuple[torch.nn.Module, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, given = comments

    def run(**settings: Any) -> FairIJ:
        return FairIJ(model, verbose=False, **SETTINGS | settings).fit(**given)

    plain = run()
    same(run(checkpoint=tmp_path / "whole"), plain)
    same(run(checkpoint=tmp_path / "whole"), plain)
    whole = passes(tmp_path / "whole")
    first = [name.split()[0] for name, _ in whole].index("confirm")
    for done in (first, first + 2):  # estimates after this run are improved by it
        folder = tmp_path / f"stopped-{done}"
        with stopped_after(done, monkeypatch):
            run(checkpoint=folder)
        same(run(checkpoint=folder), plain)
        assert passes(folder) == whole


def test_the_names_of_passes_stay(tmp_path: Path) -> None:
    """Checkpoints of earlier versions contain them."""
    DATA.fit(fair(**SETTINGS, checkpoint=tmp_path))
    found = {name.split()[0] for name, _ in passes(tmp_path)}
    assert found == {"outputs", "jvp", "vjp", "sandwich", "diagonal", "sums", "along"}


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


@pytest.fixture
def _sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third row of the problem is a sample of it."""
    monkeypatch.setattr(hashing, "HASHED_ROWS", 100)
    monkeypatch.setattr(hashing, "READ_ROWS", 37)


def changed(X: Any, row: int = BETWEEN) -> Any:
    other = X.copy()
    other[row] = other[row] + 1
    return other


@pytest.mark.usefixtures("_sampled")
@pytest.mark.parametrize("form", [np.asarray, ArraySource], ids=["array", "source"])
@pytest.mark.parametrize("what", ["X", "y"])
def test_a_run_on_other_rows_does_not_go_on(tmp_path: Path, form: Any, what: str) -> None:
    DATA.fit(fair(**SETTINGS, checkpoint=tmp_path), X=form(DATA.X))
    other = {"X": form(DATA.X), "y": DATA.y}
    if what == "X":
        other["X"] = form(changed(DATA.X))
    else:
        other["y"] = np.where(np.arange(240) == BETWEEN, 1 - DATA.y, DATA.y)
    with pytest.raises(CheckpointError, match="its training rows differs"):
        DATA.fit(fair(**SETTINGS, checkpoint=tmp_path), **other)


@pytest.mark.usefixtures("_sampled")
def test_a_run_on_other_validation_rows_does_not_go_on(tmp_path: Path) -> None:
    DATA.fit(fair(**SETTINGS, checkpoint=tmp_path))
    with pytest.raises(CheckpointError, match="its validation rows differs"):
        DATA.fit(fair(**SETTINGS, checkpoint=tmp_path), X_val=changed(DATA.X_val))


@pytest.mark.parametrize("folder", [5, "", "a\0b", b"run", True], ids=repr)
def test_a_checkpoint_that_is_no_folder(
    tmp_path: Path, folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="`checkpoint` must be a path, of text"):
        DATA.fit(fair(**SETTINGS, checkpoint=folder))
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_needs_a_seed_that_stays(tmp_path: Path) -> None:
    settings = SETTINGS | {"random_state": None, "validation_use": "split"}
    with pytest.raises(InvalidInputError, match=r"must be a whole number .*Pass random_state=0"):
        DATA.fit(fair(**settings, checkpoint=tmp_path))
    assert list(tmp_path.iterdir()) == []
    DATA.fit(fair(**settings))
