"""Files of long runs: other rows are refused, full disks and odd records end in clear errors."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
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

from biased import fair, problem
from disks import small_disk
from fairij import Grid
from fairij.data import hashing
from fairij.data.hashing import data_fingerprint
from fairij.data.sources import ArraySource, LoaderSource
from fairij.errors import CheckpointError, InvalidInputError
from fairij.scale import checkpoints, run
from fairij.scale.checkpoints import Journal
from fairij.scale.score_files import score_file
from fairij.scale.sharding import Shard

DATA = problem()
QUICK = {"search": Grid(points=3, scales=(1.0,))}
BETWEEN = 1  # a row that a sample of every third row leaves out


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


# --- other rows -------------------------------------------------------------------------------


@pytest.mark.usefixtures("_sampled")
@pytest.mark.parametrize("form", [np.asarray, ArraySource], ids=["array", "source"])
@pytest.mark.parametrize("what", ["X", "y"])
def test_a_run_on_other_rows_does_not_go_on(tmp_path: Path, form: Any, what: str) -> None:
    DATA.fit(fair(**QUICK, checkpoint=tmp_path), X=form(DATA.X))
    other = {"X": form(DATA.X), "y": DATA.y}
    if what == "X":
        other["X"] = form(changed(DATA.X))
    else:
        other["y"] = np.where(np.arange(240) == BETWEEN, 1 - DATA.y, DATA.y)
    with pytest.raises(CheckpointError, match="its training rows differs"):
        DATA.fit(fair(**QUICK, checkpoint=tmp_path), **other)


@pytest.mark.usefixtures("_sampled")
def test_a_run_on_other_validation_rows_does_not_go_on(tmp_path: Path) -> None:
    DATA.fit(fair(**QUICK, checkpoint=tmp_path))
    with pytest.raises(CheckpointError, match="its validation rows differs"):
        DATA.fit(fair(**QUICK, checkpoint=tmp_path), X_val=changed(DATA.X_val))


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


# --- full disks -------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 300) as folder:
        yield folder


WRITE = """
import sys
from pathlib import Path
import numpy as np
from fairij.scale.score_files import score_file
try:
    with score_file(Path(sys.argv[1]), 96_000) as writer:
        for part in np.random.default_rng(0).random((8, 12_000)):
            writer.write(part)
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["s.npy", "s.parquet"])
def test_scores_on_a_full_disk(disk: Path, name: str) -> None:
    """In a process of its own, which a memory map would end."""
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(disk / name)], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert not done.stderr
    assert "The scores cannot be written: " in done.stdout
    assert "No space left on device. Free some space there" in done.stdout
    assert list(disk.iterdir()) == []


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_room_for_scores_is_taken_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full)
    with (
        pytest.raises(OSError, match="The scores cannot be written: No space left") as caught,
        score_file(tmp_path / "s.npy", 100),
    ):
        raise AssertionError("scores were made")
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("problem", [None, errno.EOPNOTSUPP])
def test_scores_where_room_cannot_be_taken(
    tmp_path: Path, problem: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*_: Any) -> None:
        assert problem is not None
        raise OSError(problem, os.strerror(problem))

    if problem is None:
        monkeypatch.delattr(os, "posix_fallocate")
    else:
        monkeypatch.setattr(os, "posix_fallocate", unable)
    values = np.arange(7.0)
    with score_file(tmp_path / "s.npy", 7) as writer:
        writer.write(values[:3])
        writer.write(values[6:2:-1][::-1])
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), values)
    assert np.load(tmp_path / "s.npy", mmap_mode="r").shape == (7,)


def test_a_folder_for_scores_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(OSError, match="give `out` in a folder that can be written"),
        score_file(tmp_path / "file" / "s.npy", 3),
    ):
        raise AssertionError("scores were made")


# --- odd checkpoints --------------------------------------------------------------------------


@pytest.fixture
def _no_large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with an entry for every pass that a name promises would take all memory."""

    def small(*given: int) -> range:
        assert len(range(*given)) < 10**6, "a table as long as a file's name says"
        return range(*given)

    monkeypatch.setattr(checkpoints, "range", small, raising=False)


@pytest.mark.usefixtures("_no_large_tables")
def test_a_record_that_promises_more_than_it_holds(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, {})
    first = journal.recalled("vjp", None, lambda: torch.ones(2))
    journal.write()
    whole = tmp_path / "process-0" / "00000000-00000000.safetensors"
    odd = tmp_path / "process-0" / "00000001-99999999.safetensors"
    odd.touch()
    again = Journal.open(tmp_path, {})
    assert torch.equal(again.recalled("vjp", None, lambda: 0 * first), first)
    with pytest.raises(CheckpointError, match=r"99999999.safetensors cannot be used.*start over"):
        again.recalled("vjp", None, lambda: first)
    odd.unlink()
    whole.rename(odd.with_name("00000000-99999999.safetensors"))
    again = Journal.open(tmp_path, {})
    assert torch.equal(again.recalled("vjp", None, lambda: 0 * first), first)
    with pytest.raises(CheckpointError, match="its name says that it holds pass 1, but it does"):
        again.recalled("vjp", None, lambda: first)


@pytest.mark.parametrize("folder", [5, "", "a\0b", b"run", True], ids=repr)
def test_a_checkpoint_that_is_no_folder(
    tmp_path: Path, folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="`checkpoint` must be the path of a folder, got"):
        DATA.fit(fair(**QUICK, checkpoint=folder))
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_needs_a_seed_that_stays(tmp_path: Path) -> None:
    settings = QUICK | {"random_state": None, "validation": "split"}
    with pytest.raises(InvalidInputError, match=r"must be a whole number .*Pass random_state=0"):
        DATA.fit(fair(**settings, checkpoint=tmp_path))
    assert list(tmp_path.iterdir()) == []
    DATA.fit(fair(**settings))


def test_a_checkpoint_on_some_processes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "values_of_all", lambda kept: [kept, not kept])
    with pytest.raises(InvalidInputError, match="must be given on all processes or on none"):
        DATA.fit(fair(**QUICK, checkpoint=tmp_path))
