"""The journal of a run: damaged, odd and foreign records are never used."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from damage import damaged
from fairij.errors import CheckpointError
from fairij.scale import checkpoints
from fairij.scale.checkpoints import Journal
from fairij.storage.checksummed import read_sealed, write_sealed


@pytest.fixture(autouse=True)
def _write_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)


def test_damaged_records_are_never_used(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, {"model": "m"})
    value = torch.linspace(0, 1, 50)
    journal.recalled("vjp", torch.ones(3), lambda: value)
    (path,) = tmp_path.glob("process-0/*.safetensors")
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


# --- which run a record is of -----------------------------------------------------------------

FACTS = {"model": "m", "training rows": "0123"}
OTHER = FACTS | {"training rows": "4567"}


def recorded(folder: Path, facts: dict[str, str] = FACTS) -> Path:
    """One pass of a run, and where it is written."""
    Journal.open(folder, facts).recalled("outputs", None, lambda: torch.ones(2))
    (path,) = folder.glob("process-0/0*.safetensors")
    return path


def recall(folder: Path, facts: dict[str, str]) -> torch.Tensor:
    return Journal.open(folder, facts).recalled("outputs", None, lambda: torch.zeros(2))


def without_facts(path: Path) -> None:
    """The record as 0.1.0 wrote it."""
    header, tensors = read_sealed(path, checkpoints.FORMAT)
    del header["facts"], header["sha256"]
    write_sealed(path, tensors, header)


def test_records_say_of_which_run_they_are(tmp_path: Path) -> None:
    recorded(tmp_path)
    (tmp_path / "process-0" / "run.json").unlink()
    with pytest.raises(CheckpointError, match=r"is of another run: its training rows differs"):
        recall(tmp_path, OTHER)
    assert not (tmp_path / "process-0" / "run.json").exists()
    assert torch.equal(recall(tmp_path, FACTS), torch.ones(2))


def test_a_record_that_comes_from_another_run(tmp_path: Path) -> None:
    path, foreign = recorded(tmp_path / "mine"), recorded(tmp_path / "other", OTHER)
    path.write_bytes(foreign.read_bytes())
    with pytest.raises(CheckpointError, match=r"0.safetensors.* its training rows differs"):
        recall(tmp_path / "mine", FACTS)


def test_records_of_the_first_version(tmp_path: Path) -> None:
    """They have no facts, so those beside them have to do."""
    without_facts(recorded(tmp_path))
    assert torch.equal(recall(tmp_path, FACTS), torch.ones(2))
    with pytest.raises(CheckpointError, match="another run: its training rows"):
        recall(tmp_path, OTHER)
    (tmp_path / "process-0" / "run.json").unlink()
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"does not say of which run it is.*start over"):
            recall(tmp_path, FACTS)


@pytest.mark.parametrize("odd", ["[]", "{", '{"model": 3}', "null", "[" * 10**5])
def test_odd_facts(tmp_path: Path, odd: str) -> None:
    path = recorded(tmp_path)
    header, tensors = read_sealed(path, checkpoints.FORMAT)
    write_sealed(path, tensors, {**header, "facts": odd})
    with pytest.raises(CheckpointError, match=r"cannot be used: .*start over"):
        recall(tmp_path, FACTS)


# --- odd folders ------------------------------------------------------------------------------


def test_places_that_are_no_files(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    path.unlink()
    os.mkfifo(path)  # reading it would wait for ever
    with pytest.raises(CheckpointError, match=r"cannot be used: it is no plain file"):
        recall(tmp_path, FACTS)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match=r"cannot be used: it is no plain file"):
        recall(tmp_path, FACTS)
    run = tmp_path / "process-0" / "run.json"
    run.unlink()
    run.symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match=r"does not describe a checkpoint: it is no plain"):
        recall(tmp_path, FACTS)


@pytest.mark.parametrize("place", ["", "process-0"])
def test_a_file_in_place_of_a_folder(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "kept"
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"cannot be (read|written): Not a directory"):
        recall(folder, FACTS)


def test_a_folder_in_place_of_the_description(tmp_path: Path) -> None:
    (tmp_path / "process-0" / "run.json").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="does not describe a checkpoint: it is no plain"):
        recall(tmp_path, FACTS)
