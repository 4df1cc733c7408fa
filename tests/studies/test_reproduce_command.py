"""`fairij reproduce` with and without the package of studies."""

from __future__ import annotations

from pathlib import Path

import pytest
from fairij_studies import STUDIES
from typer.testing import CliRunner

from fairij.cli import app

SOURCE = Path(__file__).parents[2] / "src" / "fairij"


def test_studies_are_listed() -> None:
    assert CliRunner().invoke(app, ["reproduce", "list"]).stdout.split() == list(STUDIES)


def test_without_the_package_the_command_to_install_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairij.cli.reproduce.find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["reproduce", "list"])
    assert result.exit_code == 1
    assert "Run `pip install ./studies` there." in " ".join(result.stderr.split())


def test_only_this_command_knows_the_studies() -> None:
    """The wheel of fairij has none of them, so no other module may import them."""
    users = [path for path in SOURCE.rglob("*.py") if "fairij_studies" in path.read_text()]
    assert users == [SOURCE / "cli" / "reproduce.py"]
