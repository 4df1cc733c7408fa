"""Model and data files, settings and results, each damaged in many ways.

Every one is refused in words or read as what it is; none ends the process, none hangs, and where
the format can tell that its content has changed, none is believed.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import plain_files
from apart import run_apart
from damage import damaged
from fairij.cli import app
from fairij.cli.folder import read_result
from fairij.errors import FairIJError, InvalidInputError
from fairij.mitigator import FairIJ
from fairij.storage.model_files import Opening, load_model
from fairij.storage.model_files.estimators import lightgbm_content
from fairij.storage.model_files.xgboost_content import canonical_xgboost
from fairij.storage.tables import read_table

TIMES = 15
TABLE = plain_files.make_table(120, 0)
NATIVE = ("model.txt", "model.json", "model.ubj", "table.duckdb")  # read by compiled code
COLUMNS = ("--label", "repaid", "--sensitive", "sex")
pytestmark = pytest.mark.usefixtures("times")


@pytest.fixture(scope="module", params=[TIMES, pytest.param(200, marks=pytest.mark.slow)])
def times(request: pytest.FixtureRequest) -> Iterator[int]:
    """How often each file is changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "TIMES", request.param)
        yield request.param


def changed(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut, flipped, lengthened, overwritten, or with two of its parts exchanged."""
    if rng.random() < 0.8:
        return damaged(content, rng)
    size = int(rng.integers(1, max(len(content) // 4, 2)))
    first, second = sorted(rng.integers(0, max(len(content) - size, 1), 2).tolist())
    second = max(second, first + size)
    middle = content[first + size : second]
    rest = content[second + size :]
    return (
        content[:first] + content[second : second + size] + middle + content[first:][:size] + rest
    )


def tried(path: Path, read: Callable[[], Any], seed: int = 0) -> Counter[str]:
    """How many changed files were read and how many refused; any other error is a failure.

    What ``read`` returns must be true: whether the content is as good as it can be known to be.
    """
    whole, rng, found = path.read_bytes(), np.random.default_rng(seed), Counter[str]()
    assert read()
    for turn in range(TIMES):
        path.write_bytes(changed(whole, rng))
        try:
            assert read(), f"change {turn} of {path.name} was believed"
            found["read"] += 1
        except FairIJError as error:
            found["refused" if len(str(error)) > 20 else "refused without a word"] += 1
    path.write_bytes(whole)
    assert read()
    assert "refused without a word" not in found
    return found


def read_and_used(path: Path) -> bool:
    """Open a model of trees and let it predict, which trusts what was read."""
    file = load_model(path)
    rows = TABLE[plain_files.FEATURES]
    if file.columns is not None:
        rows = rows.set_axis(list(file.columns), axis=1)
    try:
        made = file.prepare(rows)
        model = getattr(file.model, "get_booster", lambda: file.model)()
        model.predict(made)
    except FairIJError:
        raise
    except Exception:  # a feature of another name or kind is not the reader's matter
        return True
    return True


def try_native(folder: str, times: str) -> None:
    """In a process of its own, which a crash would end; one line a format."""
    global TIMES
    TIMES = int(times)
    warnings.simplefilter("ignore")
    for name in NATIVE:
        path = Path(folder) / name
        print(name, flush=True)
        if name.endswith(".duckdb"):
            found = tried(path, lambda path=path: len(read_table(path, query="from people")) > 0)
        else:
            found = tried(path, lambda path=path: read_and_used(path))
        print(json.dumps(found), flush=True)


@pytest.fixture(scope="module")
def native(times: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    duckdb = pytest.importorskip("duckdb")
    folder = tmp_path_factory.mktemp("native")
    plain_files.save_lightgbm(TABLE, folder)
    plain_files.save_xgboost(TABLE, folder)
    with duckdb.connect(str(folder / "table.duckdb")) as connection:
        connection.register("given", TABLE)
        connection.execute("create table people as from given")
    here = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    code = "import sys; sys.path[:0] = sys.argv[3:]; import test_damaged_models as t; "
    code += "t.try_native(*sys.argv[1:3])"
    done = run_apart(code, folder, times, *here)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{") or line in NATIVE]
    assert done.returncode == 0, f"{lines[-1:]} ended the process: {done.stderr[-3000:]}"
    return {name: json.loads(text) for name, text in zip(lines[::2], lines[1::2], strict=True)}


@pytest.mark.parametrize("name", NATIVE)
def test_files_that_compiled_code_reads(native: dict[str, dict[str, int]], name: str) -> None:
    assert native[name]["refused"] > TIMES // 4
    assert sum(native[name].values()) == TIMES


def same_state(model: Any, other: Any) -> bool:
    mine, theirs = model.state_dict(), other.state_dict()
    return all(torch.equal(mine[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_files_of_torch_parameters(tmp_path: Path, ending: str) -> None:
    """A .pt file carries checksums, which torch passes over; safetensors carries none."""
    net = plain_files.save_torch(TABLE, tmp_path)
    opening = Opening(model_class=f"{tmp_path / 'net.py'}:Net", model_args={"inputs": 3})
    path = tmp_path / f"net.{ending}"

    def read() -> bool:
        model = load_model(path, opening).model
        return ending != "pt" or same_state(model, net)

    assert tried(path, read)["refused"] > TIMES // 4


def test_skops_files(tmp_path: Path) -> None:
    model = plain_files.save_sklearn(TABLE, tmp_path)
    path, rows = tmp_path / "model.skops", TABLE[plain_files.FEATURES]
    expected = model.predict_proba(rows)

    def read() -> bool:
        return np.array_equal(load_model(path).model.predict_proba(rows), expected)

    assert tried(path, read)["refused"] > TIMES // 4


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.tsv"])
def test_text_tables(tmp_path: Path, name: str) -> None:
    """Another number is another table; but what was packed carries a checksum."""
    path = tmp_path / name
    TABLE.to_csv(path, index=False, sep="\t" if name.endswith("tsv") else ",")
    expected = read_table(path)

    def read() -> bool:
        found = read_table(path)
        return not name.endswith("gz") or found.equals(expected)

    assert tried(path, read)["refused"] > TIMES // 40


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    plain_files.make_tables(tmp_path)
    plain_files.save_lightgbm(TABLE, tmp_path)
    return tmp_path


def said(*arguments: str) -> bool:
    """Run a command; FairIJError where it refuses, with what it said."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code:
        raise FairIJError(result.stderr)
    return True


def test_settings_files(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the settings were understood is not of interest here, and is left out."""
    for name in ("measured", "_show"):
        monkeypatch.setattr(f"fairij.cli.audits.{name}", lambda *_, **__: None)
    settings = files / "audit.toml"
    settings.write_text(
        'model = "model.txt"\ntable = "test.csv"\nlabel = "repaid"\nsensitive = ["sex"]\n'
        'features = ["income", "debt", "age at entry", "job"]\nconfidence = 0.9\nseed = 3\n'
    )
    assert tried(settings, lambda: said("audit", "--config", "audit.toml"))["refused"] > TIMES // 10


def test_result_folders(files: Path) -> None:
    asked = ("mitigate", "--model", "model.txt", "--train", "train.csv", "--validation")
    asked += ("validation.csv", *COLUMNS, "--max-k", "10", "--scale", "1", "--out", "result")
    assert said(*asked)
    model = load_model("model.txt").model
    for name in ("summary.json", "candidates.csv", "influence.csv", "edit.safetensors"):
        found = tried(
            files / "result" / name, lambda: bool(read_result(files / "result", FairIJ(model)))
        )
        assert found["refused"] > TIMES // 20


def test_lightgbm_files_that_lightgbm_does_not_come_back_from(tmp_path: Path) -> None:
    """It goes round for ever at a byte 0, and ends the process where parameters are cut."""
    plain_files.save_lightgbm(TABLE, tmp_path)
    path = tmp_path / "model.txt"
    whole = path.read_bytes()
    word = re.sub(rb"(?<=leaf_value=)(-?\d)", b"!", whole, count=1)
    odd = whole.replace(b"[seed: 0]", b"[seed0]")
    cut = whole[: whole.index(b"[num_machines")]
    for content in (whole + b"\0 and more\n", whole + b"\xff\n", cut, odd, word):
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match=r"cannot be read as a LightGBM text model"):
            lightgbm_content(path)


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("trees", 0, "left_children"), [1, -1], "numbers as its left_children"),
        (("trees", 0, "id"), 5, "tree 0 is not in its place"),
        (("tree_info",), [0], "it says that it has 12 trees"),
        (("iteration_indptr",), [0, 50], "its rounds do not divide its trees"),
        (("cats", "sorted_idx"), [0, 9, 1], "its categories do not fit together"),
    ],
)
def test_lengths_that_xgboost_would_trust(
    tmp_path: Path, place: tuple[Any, ...], value: Any, told: str
) -> None:
    plain_files.save_xgboost(TABLE, tmp_path)
    path = tmp_path / "model.json"
    content = json.loads(path.read_text())
    part = content["learner"]["gradient_booster"]["model"]
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=told):
        canonical_xgboost(path.read_bytes(), is_json=True)
