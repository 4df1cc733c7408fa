"""Text that a command reads back, damaged at random: refused in one line, or right."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from damage import damaged
from fairij.cli import app, mitigation, report_again  # noqa: F401 (before it is patched)
from fairij.cli import folder as result_folder
from fairij.cli.config import fits, read_toml

COLUMNS = ("--label", "repaid", "--sensitive", "sex")
TABLES = ("--train", "train.csv", "--validation", "validation.csv", "--test", "test.csv")
SMALL = ("--max-k", "3", "--scale", "1", "--damping", "0.1")
NET = ("--model-class", "net.py:Net", "--model-args", '{"inputs": 3, "hidden": 4}')
DEEP = "[" * 5000 + "]" * 5000
ODD_TOML = ('""', '"x"', r'"a\u0000b"', '"' + "x" * 9000 + '"', "5", "-3", "true", "1.5", "nan",
            "inf", "1e308", "[]", "[1]", '["x"]', "[[1]]", "{}", "{a = 1}", "2026-01-01",
            "9" * 400, "9" * 5000, DEEP)  # fmt: skip
ODD_JSON: tuple[Any, ...] = (
    None, "", "x", "a\0b", 5, -3, True, 1.5, 10**400, [], [1], ["x"], [[1]], {}, {"a": 1},
    "x" * 9000,
)  # fmt: skip

Change = Callable[[str, np.random.Generator], bytes]


def by_bytes(text: str, rng: np.random.Generator) -> bytes:
    """Cut, flipped, lengthened, overwritten, or in another encoding."""
    if rng.random() < 0.1:
        return text.encode("utf-16")
    return damaged(text.encode(), rng)


def by_keys(text: str, rng: np.random.Generator) -> bytes:
    """A line of TOML left out, given twice, below another table, or with an odd value."""
    lines = text.splitlines()
    number = int(rng.choice([i for i, line in enumerate(lines) if " = " in line]))
    key, odd = lines[number].split(" = ")[0], str(rng.choice(ODD_TOML))
    new = {
        0: [],
        1: [lines[number]] * 2,
        2: [f"[{key}]", lines[number]],
        3: [f"{key} . more = {odd}"],
    }
    kind = int(rng.integers(12))
    lines[number : number + 1] = new.get(kind, [f"{key} = {odd}"])
    return "\n".join(lines).encode()


def by_values(text: str, rng: np.random.Generator) -> bytes:
    """An entry of a JSON object, however deep, left out or of another type."""
    whole = json.loads(text)
    inner = whole
    while True:
        key = str(rng.choice(list(inner)))
        if isinstance(inner[key], dict) and inner[key] and rng.random() < 0.7:
            inner = inner[key]
            continue
        break
    if rng.random() < 0.2:
        del inner[key]
    else:
        inner[key] = ODD_JSON[int(rng.integers(len(ODD_JSON)))]
    return json.dumps(whole).replace('"' + "x" * 9000 + '"', DEEP).encode()


def answered(*asked: str) -> tuple[int, str]:
    """How a command ended and what it said; one line, and never a traceback."""
    result = CliRunner().invoke(app, list(asked))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    said = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    if result.exit_code:
        is_usage = bool(said) and said[0].startswith("Usage: ")
        assert is_usage or len(said) == 1, result.stderr
        assert "Traceback" not in result.stderr
        assert "rror" in result.stderr
    return result.exit_code, " ".join(" ".join(said).replace("│", " ").split())


def tried(
    path: Path,
    change: Change,
    ask: Callable[[], tuple[int, str]],
    check: Callable[[Path, str], None],
    times: int,
    told: tuple[str, ...] = (),
) -> Counter[str]:
    """How many changed files were refused, by name (or one of ``told``), and how many were not."""
    whole, rng, found = path.read_text(encoding="utf-8"), np.random.default_rng(3), Counter[str]()
    for turn in range(times):
        path.write_bytes(change(whole, rng))
        code, said = ask()
        found["refused" if code else "done"] += 1
        if code:
            assert any(word in said for word in told or (path.name,)), f"change {turn}: {said}"
        else:
            check(path, whole)
    path.write_text(whole, encoding="utf-8")
    assert ask()[0] == 0
    return found


def has_the_types_of(path: Path, whole: str) -> None:
    """What was done was done by values of the right types, under names that were there."""
    found, before = read_toml(path), tomllib.loads(whole)
    assert found.keys() <= before.keys()
    for key, value in found.items():
        kind = list if isinstance(before[key], list) else type(before[key])
        assert fits(value, kind) or isinstance(value, kind), key


def is_the_same(path: Path, whole: str) -> None:
    assert json.loads(path.read_bytes()) == json.loads(whole)


def is_untouched(path: Path, whole: str) -> None:
    assert path.read_text() == whole


@pytest.fixture(scope="module")
def folder(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Files with two results: of a LightGBM model, and of a torch model."""
    place = tmp_path_factory.mktemp("damaged") / "files"
    shutil.copytree(made, place)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        numbers = ("--features", "income", "--features", "debt", "--features", "age at entry")
        for out, model in (("result", ("model.txt",)), ("net", ("net.pt", *NET, *numbers))):
            asked = ("mitigate", "--model", *model, *TABLES, *COLUMNS, *SMALL, "--out", out)
            assert answered(*asked)[0] == 0
        yield place


@pytest.fixture(params=[40, pytest.param(200, marks=pytest.mark.slow)])
def times(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many changes to try. The few of them leave out the drawing of the page."""
    if request.param < 200:
        monkeypatch.setattr(result_folder, "write_page", lambda _, target, **__: target.touch())
    return int(request.param)


def page_again(of: str = "result", *opening: str) -> tuple[int, str]:
    Path("again.html").unlink(missing_ok=True)
    code, said = answered("report", of, *opening, "--out", "again.html")
    assert Path("again.html").exists() == (code == 0)
    return code, said


@pytest.mark.parametrize("change", [pytest.param(by_bytes, marks=pytest.mark.slow), by_keys])
def test_settings_of_a_result(folder: Path, change: Change, times: int) -> None:
    path = folder / "result" / "settings.toml"
    found = tried(path, change, page_again, has_the_types_of, times)
    assert found["refused"] > times // 2
    assert found["done"] > times // 50


def by_arguments(text: str, rng: np.random.Generator) -> bytes:
    """Other JSON for the arguments of a model's constructor, or none."""
    values = tomllib.loads(text)
    given = values["model_args"]
    change = by_bytes if rng.random() < 0.5 else by_values
    new = change(given, rng).decode(errors="replace")
    return text.replace(json.dumps(given), json.dumps(new)).encode()


@pytest.mark.usefixtures("times")
def test_arguments_of_a_model_are_only_noted(folder: Path) -> None:
    """Whatever they are: those of the command line count."""
    path = folder / "net" / "settings.toml"
    found = tried(path, by_arguments, lambda: page_again("net", *NET), lambda *_: None, 5)
    assert found["done"] > 2


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_arguments_of_a_model(folder: Path, times: int) -> None:
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(times):
        change = by_bytes if rng.random() < 0.5 else by_values
        given = change(NET[3], rng).decode(errors="replace").replace("\0", "")
        code, _ = page_again("net", *NET[:3], given)
        refused += code != 0
    assert refused > times // 2


@pytest.mark.parametrize("change", [pytest.param(by_bytes, marks=pytest.mark.slow), by_values])
def test_summary_of_a_result(folder: Path, change: Change, times: int) -> None:
    path = folder / "result" / "summary.json"
    assert tried(path, change, page_again, is_the_same, times)["refused"] > times // 2


@pytest.mark.parametrize(
    "name", ["candidates.csv", pytest.param("influence.csv", marks=pytest.mark.slow)]
)
def test_tables_of_a_result(folder: Path, name: str, times: int) -> None:
    path = folder / "result" / name
    assert tried(path, by_bytes, page_again, is_untouched, times)["refused"] > times // 2


def test_the_edit_of_another_run_is_refused(folder: Path) -> None:
    asked = ("--model", "model.txt", *TABLES, *COLUMNS, "--max-k", "30", "--damping", "0.1")
    assert answered("mitigate", *asked, "--out", "other")[0] == 0
    edit, own = folder / "result" / "edit.safetensors", folder / "own.safetensors"
    shutil.copy(edit, own)
    shutil.copy(folder / "other" / edit.name, edit)
    code, said = page_again()
    shutil.copy(own, edit)
    assert code != 0
    assert edit.name in said
    assert page_again()[0] == 0


@pytest.mark.parametrize("change", [pytest.param(by_bytes, marks=pytest.mark.slow), by_keys])
def test_settings_of_a_run(
    folder: Path, change: Change, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work itself is left out: what it would be given is of the types of the options."""
    asked: list[Any] = []

    def noted(_: Any, options: Any, **__: Any) -> None:
        asked[:] = [options.tables, options.columns, options.edit]
        raise typer.Exit

    monkeypatch.setattr(mitigation, "fit", noted)

    def ask() -> tuple[int, str]:
        return answered("mitigate", "--config", "result/settings.toml", "--out", "new")

    def check(*_: Any) -> None:
        tables, columns, edit = asked
        assert isinstance(tables.train, Path)
        assert type(edit.random_state) is int
        assert type(edit.confidence) is float
        assert all(type(scale) is float for scale in edit.scale or [])
        assert all(type(name) is str for name in [columns.label, *columns.sensitive])

    path = folder / "result" / "settings.toml"
    told = (
        "settings.toml",
        "--",
        "check the path",
        "column",
        "must end in",
    )  # what was asked, or where
    assert tried(path, change, ask, check, times, told)["refused"] > times // 4


def test_what_is_a_path() -> None:
    assert all(fits(text, Path) for text in (".", "..", "a/b.csv", "/", "ø"))
    assert not any(fits(value, Path) for value in ("", "a\0b", "x" * 256, 5, True, ["a"]))


def test_arguments_of_a_model_as_a_table(folder: Path) -> None:
    """TOML has dates, which are noted as text."""
    (folder / "own.toml").write_text(
        "model='net.pt'\nmodel-args = {inputs = 3, since = 2026-01-01}"
    )
    net = (*NET[:2], "--table", "test.csv", *COLUMNS)
    code, said = answered("audit", "--config", "own.toml", *net)
    assert code == 2
    assert """--model-args '{"inputs": 3, "since": "2026-01-01"}'""" in said
