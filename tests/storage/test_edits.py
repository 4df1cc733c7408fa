"""Edits as files: they are applied and undone exactly, and damaged ones are never used."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import nn

from biased import fair, fitted, mlp, problem
from fairij import Edit, FairIJ, LowestGap
from fairij.errors import CorruptEditError, WrongModelError
from fairij.storage.checksummed import UNSEALED, write_whole
from fairij.storage.edits import FORMAT


@pytest.fixture(scope="session")
def mitigated() -> FairIJ:
    return problem().fit(fair())


@pytest.fixture
def edit(mitigated: FairIJ) -> Edit:
    return mitigated.edit_


@pytest.fixture
def saved(edit: Edit, tmp_path: Path) -> Path:
    return edit.save(tmp_path / "fair.safetensors")


def same_bits(left: nn.Module, right: nn.Module) -> bool:
    states = left.state_dict(), right.state_dict()
    return states[0].keys() == states[1].keys() and all(
        states[0][name].numpy().tobytes() == states[1][name].numpy().tobytes() for name in states[0]
    )


# --- the same bytes ---------------------------------------------------------------------------


def test_the_same_edit_gives_the_same_bytes(edit: Edit, tmp_path: Path) -> None:
    # safetensors orders its header by a random hash: twenty files would hardly be alike by chance
    files = {edit.save(tmp_path / f"{n}.safetensors").read_bytes() for n in range(20)}
    assert len(files) == 1


def test_an_address_is_no_setting(edit: Edit, tmp_path: Path) -> None:
    class Rule(LowestGap):
        def __repr__(self) -> str:
            return object.__repr__(self)

    kept = [problem().fit(fair(selection=rule)).edit_ for rule in (Rule(), Rule())]
    first, second = (e.save(tmp_path / f"{n}").read_bytes() for n, e in enumerate(kept))
    assert first == second


FIT_AND_SAVE = """
import sys, warnings
sys.path.insert(0, {tests!r})
warnings.simplefilter("ignore")
from biased import fair, problem
problem().fit(fair()).edit_.save(sys.argv[1])
"""


@pytest.mark.slow
def test_the_same_fit_gives_the_same_bytes(tmp_path: Path) -> None:
    script, files = FIT_AND_SAVE.format(tests=str(Path(__file__).parents[1])), set()
    for seed in ("0", "1", "2"):
        out = tmp_path / f"{seed}.safetensors"
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", script, str(out)], check=True, env=environment)
        files.add(out.read_bytes())
    assert len(files) == 1


# --- apply and undo ---------------------------------------------------------------------------


def test_apply_gives_the_edited_model_and_undo_the_original(mitigated: FairIJ, edit: Edit) -> None:
    module = fitted()
    before = copy.deepcopy(module)
    applied = edit.apply(module)
    assert same_bits(applied, mitigated.estimator_)
    assert not same_bits(applied, module)
    assert same_bits(module, before)
    undone = edit.undo(applied)
    assert same_bits(undone, before)
    assert same_bits(applied, mitigated.estimator_)
    assert undone is not module


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_undo_survives_rounding(dtype: torch.dtype) -> None:
    # before + delta - delta is not before in floating point; the file keeps both ends
    module = mlp().to(dtype)
    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    delta = torch.linspace(-1, 1, len(theta)).to(dtype) / torch.finfo(dtype).eps
    assert not torch.equal(theta + delta - delta, theta)
    edit = made_for(module, delta)
    assert same_bits(edit.undo(edit.apply(module)), module)


def made_for(module: nn.Module, delta: torch.Tensor, names: Any = None) -> Edit:
    from fairij.models import adapt

    editable = adapt(module, parameters=names or "all")
    return Edit(
        before=editable.theta,
        delta=delta,
        dropped=np.array([3, 1]),
        parameter_names=tuple(editable.parameter_names),
        frame=editable.frame_fingerprint(),
        data="0" * 64,
        settings={"k": 2, "note": 'odd "text" \n \u2713'},
    )


def test_an_edit_goes_once(edit: Edit) -> None:
    edited = edit.apply(fitted())
    with pytest.raises(WrongModelError, match="The edit is on this model already"):
        edit.apply(edited)
    with pytest.raises(WrongModelError, match="The edit is not on this model"):
        edit.undo(fitted())


def test_refuses_other_parameters_of_the_same_shape(edit: Edit) -> None:
    other = copy.deepcopy(fitted())
    with torch.no_grad():
        other[2].bias += 1e-6
    with pytest.raises(WrongModelError, match=r"parameters differ by up to [\d.e-]+\. Load the"):
        edit.apply(other)


@pytest.mark.parametrize(
    "other",
    [
        mlp(hidden=6),
        mlp(outputs=2),
        mlp().double(),
        nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1, bias=False)),
        nn.Linear(4, 1),
        nn.ModuleList(mlp()),
        "a string",
        None,
        object(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_refuses_another_model(edit: Edit, other: Any) -> None:
    with pytest.raises(WrongModelError, match="This edit is for another"):
        edit.apply(other)


def test_refuses_a_model_whose_frozen_part_differs() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    edit = made_for(module, torch.ones(4), "2.*")
    other = copy.deepcopy(module)
    assert edit.apply(other)[2].weight.shape == (1, 3)
    other[1].running_mean += 1  # a buffer
    with pytest.raises(WrongModelError, match="another model: it changes 4 parameters"):
        edit.apply(other)
    other = copy.deepcopy(module)
    with torch.no_grad():
        other[0].weight[0, 0] += 1e-3
    with pytest.raises(WrongModelError, match="another model"):
        edit.apply(other)


def test_apply_keeps_modes_and_gradients(edit: Edit) -> None:
    module = copy.deepcopy(fitted()).train()
    module[0].requires_grad_(False)
    applied = edit.apply(module)
    assert applied.training
    assert [p.requires_grad for p in applied.parameters()] == [False, False, True, True]


# --- save and load ----------------------------------------------------------------------------


def assert_same(left: Edit, right: Edit) -> None:
    assert torch.equal(left.before, right.before)
    assert torch.equal(left.delta, right.delta)
    assert left.before.dtype == right.before.dtype
    assert left.dropped.tolist() == right.dropped.tolist()
    for name in ("parameter_names", "frame", "data"):
        assert getattr(left, name) == getattr(right, name)
    assert dict(left.settings) == dict(right.settings)


def test_round_trip(mitigated: FairIJ, edit: Edit, saved: Path) -> None:
    loaded = Edit.load(saved)
    assert_same(loaded, edit)
    assert same_bits(loaded.apply(fitted()), mitigated.estimator_)
    assert same_bits(loaded.undo(mitigated.estimator_), fitted())
    assert loaded.settings["constraint"] == "demographic_parity"
    assert loaded.settings["k"] == len(mitigated.dropped_)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip_of_odd_contents(tmp_path: Path, dtype: torch.dtype) -> None:
    module = mlp().to(dtype)
    edit = made_for(module, torch.zeros(31, dtype=dtype))  # data is all zeros, as the blank seal
    assert_same(Edit.load(edit.save(tmp_path / "odd name ✓.safetensors")), edit)


def test_round_trip_without_dropped_rows(tmp_path: Path) -> None:
    edit = made_for(mlp(), torch.zeros(31))
    empty = Edit(**(vars(edit) | {"dropped": np.array([], dtype=np.int64)}))
    assert len(Edit.load(empty.save(tmp_path / "none")).dropped) == 0


def test_the_file_is_plain_safetensors(edit: Edit, saved: Path) -> None:
    with safe_open(saved, framework="pt") as file:
        assert set(file.keys()) == {"before", "delta", "dropped"}
        assert torch.equal(file.get_tensor("delta"), edit.delta)
        assert json.loads(file.metadata()["settings"])["k"] == len(edit.dropped)
        assert file.metadata()["format"] == FORMAT


def test_numpy_settings_can_be_saved(tmp_path: Path) -> None:
    model = problem().fit(
        fair(temperature=np.float32(1), random_state=np.int64(3), damping=np.array([0.01]))
    )
    loaded = Edit.load(model.edit_.save(tmp_path / "edit"))
    assert loaded.settings["random_state"] == 3
    assert loaded.settings["temperature"] == 1.0


def test_refuses_to_overwrite(edit: Edit, saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(FileExistsError, match=r"exists already; pass overwrite=True"):
        edit.save(saved)
    assert saved.read_bytes() == before
    other = made_for(mlp(), torch.ones(31))
    other.save(saved, overwrite=True)
    assert_same(Edit.load(saved), other)


def test_makes_the_folder_and_respects_the_umask(edit: Edit, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = edit.save(tmp_path / "a" / "b" / "edit")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No edit file at"):
        Edit.load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="No edit file at"):
        Edit.load(tmp_path)


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
def test_a_failed_save_leaves_nothing_behind(
    edit: Edit, saved: Path, monkeypatch: pytest.MonkeyPatch, fails: str, kind: type
) -> None:
    content = saved.read_bytes()

    def fail(*args: Any, **kwargs: Any) -> None:
        raise kind("disk full")

    if fails == "write":
        open_file = Path.open

        def open_failing(self: Path, *args: Any, **kwargs: Any) -> Any:
            file = open_file(self, *args, **kwargs)

            class Failing:
                def __enter__(self) -> Any:
                    return self

                def __exit__(self, *exc: object) -> None:
                    file.close()

                write = staticmethod(fail)

            return Failing()

        monkeypatch.setattr(Path, "open", open_failing)
    else:
        monkeypatch.setattr(os, fails, fail)
    with pytest.raises(kind, match="disk full"):
        edit.save(saved, overwrite=True)
    monkeypatch.undo()
    assert saved.read_bytes() == content  # the old file is whole
    assert list(saved.parent.iterdir()) == [saved]  # and alone


def test_a_reader_never_sees_half_a_file(
    edit: Edit, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, seen = saved.read_bytes(), []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (seen.append(saved.read_bytes()), fsync(fd))[1])
    made_for(mlp(), torch.ones(31)).save(saved, overwrite=True)
    assert seen == [old]
    assert saved.read_bytes() != old


def test_write_whole_does_not_follow_a_full_folder(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    with pytest.raises(OSError, match="target"):
        write_whole(tmp_path / "target", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


# --- damage -----------------------------------------------------------------------------------


def assert_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(CorruptEditError, match="does not hold a valid edit: ") as caught:
        Edit.load(path)
    assert str(path) in str(caught.value)


def test_truncated_anywhere(saved: Path) -> None:
    content = saved.read_bytes()
    for length in {*range(0, len(content), 7), *range(16), len(content) - 1}:
        assert_refused(saved, content[:length])


@pytest.mark.parametrize("flip", [0x01, 0x20, 0x80, 0xFF])
def test_one_byte_changed_anywhere(saved: Path, flip: int) -> None:
    content = saved.read_bytes()
    for position in range(0, len(content), 5):
        damaged = bytearray(content)
        damaged[position] ^= flip
        assert_refused(saved, bytes(damaged))


def test_blanks_in_the_header(saved: Path) -> None:
    # a tab for a space in the padding would leave valid JSON of the same meaning
    content = saved.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    padding = range(len(content[:size].rstrip()), size)
    for position in [*range(0, size, 9), *padding]:
        for blank in b" \t":
            if content[position] != blank:
                assert_refused(saved, content[:position] + bytes([blank]) + content[position + 1 :])


def test_bytes_added_or_swapped(saved: Path) -> None:
    content = saved.read_bytes()
    assert_refused(saved, content + b"\0")
    assert_refused(saved, b"\0" + content)
    assert_refused(saved, content + content)
    half = len(content) // 2
    assert_refused(saved, content[half:] + content[:half])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"not an edit at all",
        b"\xff" * 64,
        (2).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"12",
        (4).to_bytes(8, "little") + b"null",
        (20).to_bytes(8, "little") + b'{"__metadata__":[1]}',
        (20).to_bytes(8, "little") + b'{"__metadata__": {}}',
        (200_000).to_bytes(8, "little") + b"[" * 200_000,
        b"PK\x03\x04" + b"\0" * 60,
    ],
)
def test_other_files(tmp_path: Path, content: bytes) -> None:
    assert_refused(tmp_path / "file", content)


def test_a_model_checkpoint_is_no_edit(tmp_path: Path) -> None:
    assert_refused(tmp_path / "model", save(dict(fitted().state_dict())))
    assert_refused(
        tmp_path / "model", save(dict(fitted().state_dict()), {"format": "pt", "sha256": "x"})
    )


SOUND = {"before": torch.zeros(3), "delta": torch.ones(3), "dropped": torch.arange(2)}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({}, None),
        ({"delta": torch.ones(4)}, "vectors of one length"),
        ({"delta": torch.ones(3, 1), "before": torch.ones(3, 1)}, "vectors of one length"),
        ({"delta": torch.ones(3).double()}, "one floating-point type"),
        ({"before": torch.arange(3), "delta": torch.arange(3)}, "one floating-point type"),
        ({"delta": torch.tensor([0, 1, torch.nan])}, "must be finite"),
        ({"before": torch.tensor([0, 1, torch.inf])}, "must be finite"),
        ({"dropped": torch.tensor([1, 1])}, "without repeats"),
        ({"dropped": torch.tensor([-1, 1])}, "non-negative"),
        ({"dropped": torch.tensor([0.5])}, "whole, non-negative"),
        ({"dropped": torch.tensor([1.0], dtype=torch.bfloat16)}, "bfloat16|BFloat16"),
        ({"dropped": torch.tensor([[1]])}, "row numbers"),
        ({"dropped": None}, "has no 'dropped'"),
        ({"frame": None}, "has no 'frame'"),
        ({"format": "fairij.edit/999"}, "format is 'fairij.edit/999', not"),
        ({"parameter_names": "[1, 2]"}, "names must be text"),
        ({"parameter_names": "3"}, "not iterable"),
        ({"parameter_names": "{"}, "Expecting property name"),
        ({"settings": "[]"}, "settings must be a table"),
    ],
)
def test_contents_are_checked_even_where_the_seal_is_whole(
    tmp_path: Path, change: dict[str, Any], complaint: str | None
) -> None:
    text = {
        "format": FORMAT,
        "parameter_names": '["weight"]',
        "frame": "f",
        "data": "d",
        "settings": "{}",
        "sha256": UNSEALED,
    }
    tensors = {k: change.get(k, v) for k, v in SOUND.items() if change.get(k, v) is not None}
    header = {k: change.get(k, v) for k, v in text.items() if change.get(k, v) is not None}
    content = save({k: v.contiguous() for k, v in tensors.items()}, header)
    digest = hashlib.sha256(content).hexdigest()
    path = tmp_path / "edit"
    path.write_bytes(content.replace(UNSEALED.encode(), digest.encode(), 1))
    if complaint is None:
        assert Edit.load(path).delta.tolist() == [1, 1, 1]
    else:
        with pytest.raises(CorruptEditError, match=complaint):
            Edit.load(path)
