"""Edits, result folders and paths of other people, at every command: refused in one sentence."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from fairij.cli import app
from fairij.cli.folder import SEAL, SUMMARY, _seal
from fairij.storage.checksummed import UNSEALED
from plain_files import Run

COLUMNS = ("--label", "repaid", "--sensitive", "sex")
FIT = ("--model", "model.txt", "--train", "train.csv", "--validation", "validation.csv", *COLUMNS)
SMALL = ("--max-k", "5", "--scale", "1")
Header = dict[str, Any]


def invoke(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def whole(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a result, which the tests only read."""
    folder = tmp_path_factory.mktemp("whole") / "files"
    shutil.copytree(made, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        invoke("mitigate", *FIT, *SMALL, "--out", "result")
    return folder


@pytest.fixture
def received(whole: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line in that folder."""
    monkeypatch.chdir(whole)
    return invoke


def error(result: Any) -> str:
    (line,) = [text for text in result.stderr.splitlines() if not text.startswith("note: ")]
    assert line.startswith("error: ")
    assert line.isprintable()
    return str(line)


def sealed_again(path: Path, target: Path, change: Callable[[Header, Header, bytes], Any]) -> None:
    """An edit with a change and a seal that fits, as anybody can write it."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header, rest = json.loads(content[8:start]), content[start:]
    rest = change(header, header["__metadata__"], rest) or rest
    header["__metadata__"]["sha256"] = UNSEALED
    text = json.dumps(header, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    first = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(first + rest).hexdigest()
    target.write_bytes(first.replace(UNSEALED.encode(), digest.encode(), 1) + rest)


def text(**values: str) -> Callable[[Header, Header, bytes], None]:
    return lambda header, about, rest: about.update(values)


def number(name: str, kind: str, value: float) -> Callable[[Header, Header, bytes], bytes]:
    def put(header: Header, about: Header, rest: bytes) -> bytes:
        at = header[name]["data_offsets"][0]
        return rest[:at] + struct.pack(kind, value) + rest[at + struct.calcsize(kind) :]

    return put


def exchanged(header: Header, about: Header, rest: bytes) -> None:
    header["before"], header["delta"] = header["delta"], header["before"]


def overlapping(header: Header, about: Header, rest: bytes) -> None:
    header["delta"]["data_offsets"] = header["before"]["data_offsets"]


def without_rows(header: Header, about: Header, rest: bytes) -> None:
    del header["dropped"]


EDITS: dict[str, tuple[Callable[[Header, Header, bytes], Any], str]] = {
    "names that are numbers": (text(parameter_names="[1,2]"), "names must be text"),
    "no names": (text(parameter_names="null"), "not hold a valid edit"),
    "deep names": (text(parameter_names="[" * 100_000), "not hold a valid edit"),
    "many names": (text(parameter_names=json.dumps(["x"] * 10_000)), "for another"),
    "half of a character": (text(parameter_names='["\\ud800"]'), "for another"),
    "settings in a list": (text(settings="[]"), "settings must be a table"),
    "another frame": (text(frame="\u202e" * 100), "for another model"),
    "another format": (text(format="fairij.edit/2"), "its format is"),
    "NaN": (number("delta", "<d", float("nan")), "must be finite"),
    "a negative row": (number("dropped", "<q", -1), "non-negative row numbers"),
    "exchanged": (exchanged, "the model as it was before the edit"),
    "overlapping": (overlapping, "not hold a valid edit"),
    "no rows": (without_rows, "not hold a valid edit"),
}


@pytest.mark.parametrize("case", EDITS)
def test_edits_with_a_seal_that_fits(received: Run, tmp_path: Path, case: str) -> None:
    change, said = EDITS[case]
    edit = tmp_path / "odd.safetensors"
    sealed_again(Path("result/edit.safetensors"), edit, change)
    moved = ("--model", "model.txt", "--edit", edit, "--out", tmp_path / "new.txt")
    code = 1 if "another" in said or "the model as" in said else 2
    assert said in error(received("apply", *moved, code=code))
    assert not (tmp_path / "new.txt").exists()


def test_the_way_of_these_tests_gives_an_edit_that_is_taken(received: Run, tmp_path: Path) -> None:
    edit = tmp_path / "same.safetensors"
    sealed_again(Path("result/edit.safetensors"), edit, text(settings='{"scale": "\\u001b[2J"}'))
    new = tmp_path / "new.txt"
    done = received("apply", "--model", "model.txt", "--edit", edit, "--out", new)
    assert "\x1b" not in done.output
    assert new.exists()


def of(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda summary: summary.update(values)


FIGURES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a choice beyond": (of(chosen=10**6), "has no line 1000000"),
    "a choice before": (of(chosen=-9), "has no line -9"),
    "ragged classes": (of(classes=[[1], [2, 3]]), "inhomogeneous"),
    "nested classes": (of(classes=[[1], [2]]), "classes a list"),
    "diagnostics in a list": (of(diagnostics=[]), "diagnostics must be a table"),
    "no diagnostics": (of(diagnostics={}), "no page can be made"),
    "notes in tables": (
        lambda summary: summary["validation"]["before"].update(notes=[{"a": 1}]),
        "no page can be made",
    ),
    "metrics in words": (
        lambda summary: summary["validation"]["before"].update(metrics="x"),
        "complete and unchanged",
    ),
}


@pytest.mark.parametrize("case", FIGURES)
def test_figures_with_a_seal_that_fits(received: Run, tmp_path: Path, case: str) -> None:
    change, said = FIGURES[case]
    folder = tmp_path / "odd"
    shutil.copytree("result", folder)
    summary = json.loads((folder / SUMMARY).read_text())
    change(summary)
    summary[SEAL] = _seal(folder, summary)
    (folder / SUMMARY).write_text(json.dumps(summary))
    page = tmp_path / "page.html"
    assert said in error(received("report", folder, "--out", page, code=2))
    assert not page.exists()


def test_pipes_and_devices_are_not_waited_for(received: Run, tmp_path: Path) -> None:
    for name in ("model.txt", "edit.safetensors", "table.csv", "adult.data"):
        os.mkfifo(tmp_path / name)
    table, new = ("--table", "test.csv", *COLUMNS), ("--out", tmp_path / "new.txt")
    model, edit = tmp_path / "model.txt", tmp_path / "edit.safetensors"
    mine = ("--model", "model.txt")
    for asked, said, code in (
        (("audit", "--model", model, *table), "must be a plain file or a folder", 2),
        (("compare", "model.txt", model, *table), "must be a plain file or a folder", 2),
        (("apply", *mine, "--edit", edit, *new), "No edit file", 2),
        (("undo", "--model", model, "--edit", edit, *new), "must be a plain file or a folder", 2),
        (("audit", *mine, "--table", tmp_path / "table.csv", *COLUMNS), "No table at", 2),
        (("datasets", "fetch", "adult", "--path", tmp_path), "a plain file", 1),
    ):
        assert said in error(received(*asked, code=code))


def test_data_sets_of_another_kind(received: Run, tmp_path: Path) -> None:
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "odd.parquet")
    fetch = ("datasets", "fetch", "acs_public_coverage", "--path", tmp_path / "odd.parquet")
    assert "must have the columns of folktables'" in error(received(*fetch, code=2))
    assert "--max-memory" in error(received(*fetch, "--max-memory", "1", code=2))
    other = ("datasets", "fetch", "civil_comments", "--path", "test.csv")
    assert "must have the columns of WILDS'" in error(received(*other, code=2))


def test_a_number_without_an_end(received: Run, tmp_path: Path) -> None:
    asked = ("mitigate", *FIT, *SMALL, "--out", tmp_path / "new", "--predict-refit", "9" * 5000)
    assert "must be a number of rows" in error(received(*asked, code=2))
