"""Changed files of black boxes: corrections and ONNX models are read or refused in words."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from apart import run_apart
from biased import problem
from fairij import BlackBox
from fairij.errors import FairIJError, InvalidInputError
from fairij.storage.black_boxes import FILE
from fairij.storage.checksummed import read_sealed, write_sealed
from mutations import VALUES, pick

DATA = problem(n=200, n_val=100)
MODEL = LogisticRegression().fit(DATA.X, DATA.y)
FORMAT = "fairij.black_box/1"


@pytest.fixture(scope="module", params=["linear", "trees"])
def box(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    grouped = (DATA.X, (DATA.X[:, 0] > 0).astype(int))
    made = BlackBox(MODEL, correction=request.param).fit(DATA.X, grouped=grouped)
    made = made.with_theta(np.full(made.theta_.size, 0.1))
    return made.save(tmp_path_factory.mktemp("box"))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every list or mapping with each of its keys."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    found = [(value, key) for key in keys]
    return found + [place for _, key in found for place in places(value[key])]


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2))])
def test_changed_corrections_are_read_or_refused(box: Path, tmp_path: Path, seed: int) -> None:
    header, tensors = read_sealed(box, FORMAT)
    stored, rng, refused = json.loads(header["correction"]), np.random.default_rng(seed), 0
    for _ in range(150):
        made = copy.deepcopy(stored)
        for _ in range(int(rng.integers(1, 3))):
            where, key = pick(rng, places(made))
            if rng.random() < 0.2:
                where.pop(key)
            else:
                where[key] = copy.deepcopy(pick(rng, VALUES))
            if not places(made):
                break
        write_sealed(tmp_path / FILE, tensors, {**header, "correction": json.dumps(made)})
        try:
            p = BlackBox.load(tmp_path, MODEL).predict_proba(DATA.X_val)
        except FairIJError:
            refused += 1
            continue
        assert p.shape == (100, 2)
        assert np.isfinite(p).all()
    assert refused > 50


@pytest.mark.parametrize("name", ["centre", "width"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", None, [2.0]])
def test_what_is_near_must_be_numbers(box: Path, tmp_path: Path, name: str, value: Any) -> None:
    header, tensors = read_sealed(box, FORMAT)
    made = json.loads(header["correction"])
    if "near" not in made:
        made["near"] = {"centre": 0.0, "width": 1.0}  # trees have none
    made["near"][name] = value
    write_sealed(tmp_path / FILE, tensors, {**header, "correction": json.dumps(made)})
    with pytest.raises(InvalidInputError, match="does not hold the correction of a black box"):
        BlackBox.load(tmp_path, MODEL)


def test_corrections_without_what_is_near_stay_readable(box: Path, tmp_path: Path) -> None:
    import torch

    header, tensors = read_sealed(box, FORMAT)
    made = json.loads(header["correction"])
    made.pop("near", None)
    size = tensors["theta"].shape[0] if made["trees"] else DATA.X.shape[1] + 1
    theta = {"theta": torch.full((size,), 0.1, dtype=torch.float64)}
    write_sealed(tmp_path / FILE, theta, {**header, "correction": json.dumps(made)})
    loaded = BlackBox.load(tmp_path, MODEL)
    assert loaded.correction_.near is None
    assert loaded.predict_proba(DATA.X_val).shape == (100, 2)


CHANGED = """
import sys, numpy as np
from fairij import BlackBox
from fairij.errors import InvalidInputError
content, rows = open("model.onnx", "rb").read(), np.load("rows.npy")
found = {"read": 0, "refused": 0}
for seed in range(int(sys.argv[1])):
    rng, made = np.random.default_rng(seed), bytearray(content)
    for _ in range(rng.integers(1, 4)):
        place = rng.integers(len(made))
        if seed % 3 == 0:
            made[place] = rng.integers(256)
        elif seed % 3 == 1:
            del made[place : place + rng.integers(1, 30)]
        else:
            made[place : place + 8] = made[:8]
    open("changed.onnx", "wb").write(bytes(made))
    try:
        BlackBox("changed.onnx").predict_proba(rows)
        found["read"] += 1
    except InvalidInputError:
        found["refused"] += 1
print(found)
"""


@pytest.mark.parametrize("times", [24, pytest.param(600, marks=pytest.mark.slow)])
def test_changed_onnx_files_are_read_or_refused(tmp_path: Path, times: int) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    pytest.importorskip("onnxruntime")
    rows = DATA.X_val.astype("f4")
    made = skl2onnx.to_onnx(MODEL, rows[:1], options={"zipmap": False})
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    np.save(tmp_path / "rows.npy", rows)
    done = run_apart(CHANGED, times, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1].replace("'", '"'))
    assert sum(found.values()) == times
    assert found["refused"] > times // 3


def test_a_large_onnx_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    from fairij.data.memory import reading_at_most

    target = tmp_path / "model.onnx"
    target.write_bytes(bytes(4000))
    with reading_at_most(5000), pytest.raises(FairIJError, match="more than the 5"):
        BlackBox(str(target)).predict_proba(DATA.X_val)
