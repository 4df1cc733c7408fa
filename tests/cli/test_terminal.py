"""What data and files hold never steers the terminal, and always can be shown."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from fairij import __main__
from fairij.cli import app
from fairij.errors import FairIJWarning, InvalidInputError, printable

ODD = {
    "m": "m\x1b]0;owned\x07\x1b[2J",  # a title, an empty screen
    "f": "f\x9b31m\u202egnirts\x08\x7f",
}


@pytest.fixture
def table(files: Path) -> Path:
    rows = pd.read_csv(files / "test.csv")
    groups = dict(zip(sorted(rows["sex"].unique()), ODD.values(), strict=True))
    rows["sex"] = rows["sex"].map(groups)
    path = files / "odd.json"
    path.write_text(json.dumps(rows.to_dict(orient="records")))  # with escapes
    return path


def audit(table: Path, *more: str, charset: str = "utf-8") -> Result:
    command = ["audit", "--model", "model.txt", "--table", str(table), "--label", "repaid"]
    runner = CliRunner(charset=charset)
    return runner.invoke(app, [*command, "--sensitive", "sex", *more])


def steering(text: str) -> set[str]:
    return {c for c in text if c != "\n" and printable(c) != c}


def test_names_of_groups(table: Path) -> None:
    result = audit(table)
    assert result.exit_code == 0, result.output
    assert not steering(result.output)
    assert r"m\x1b]0;owned" in result.stdout
    assert r"\x9b31m\u202egnirts" in result.stdout


def test_names_of_groups_in_json(table: Path) -> None:
    result = audit(table, "--json")
    assert result.exit_code == 0, result.output
    assert not steering(result.output)
    assert set(json.loads(result.stdout)["by_group"]) == set(ODD.values())


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_terminal_that_cannot_show_a_name(files: Path, more: tuple[str, ...]) -> None:
    rows = pd.read_csv(files / "test.csv")
    rows["sex"] = rows["sex"].map(dict(zip(sorted(rows["sex"].unique()), "жΩ", strict=True)))
    rows.to_csv(files / "odd.csv", index=False)
    result = audit(files / "odd.csv", *more, charset="ascii")
    assert result.exit_code == 0, result.output
    assert r"\u0436" in result.stdout


def test_messages(table: Path) -> None:
    result = audit(table, "--positive", "\x1b[2Jx")
    assert result.exit_code == 2
    assert not steering(result.output)
    assert r"\x1b[2Jx" in result.stderr


def test_errors_and_warnings_are_safe_by_themselves() -> None:
    """Python shows them on the terminal too, where nobody catches them."""
    assert str(InvalidInputError("`X` holds \x1b[2J\nand more")) == "`X` holds \\x1b[2J\nand more"
    assert InvalidInputError("`X` holds \x1b").parameter == "X"
    assert str(FairIJWarning("\x9b\ud800é🙂")) == "\\x9b\\ud800é🙂"


@pytest.mark.parametrize("when", ["imported", "run"])
def test_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    module = types.ModuleType("fairij.cli")
    if when == "imported":
        module.__getattr__ = interrupted  # type: ignore[method-assign]
    else:
        module.app = interrupted  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fairij.cli", module)
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "error: interrupted; nothing half-written is left.\n"
