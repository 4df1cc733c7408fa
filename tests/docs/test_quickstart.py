"""The quickstart, followed word for word in an empty folder.

The quick tests run the page's words in this process. The slow one installs the package and starts a
process for each block, as a reader would.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from blocks import ROOT, blocks, check_output

INSTALL, *REST = blocks("quickstart.md")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("reader")
    return folder, [block.run_here(folder) for block in REST]


def assert_as_shown(printed: list[str]) -> None:
    for block, text in zip(REST, printed, strict=True):
        check_output(block, text)


def test_every_block_prints_what_the_page_shows(followed: tuple[Path, list[str]]) -> None:
    assert sum(block.output is not None for block in REST) >= 7
    assert_as_shown(followed[1])


def test_it_ends_with_a_report_and_a_smaller_gap(followed: tuple[Path, list[str]]) -> None:
    folder, printed = followed
    page = (folder / "result" / "report.html").read_text(encoding="utf-8")
    assert "<script src=" not in page  # opens offline
    summary = json.loads((folder / "result" / "summary.json").read_text())
    found = summary["test"]
    gap, level = (
        {when: found[when]["metrics"][name]["value"] for when in ("before", "after")}
        for name in ("demographic_parity_difference", "accuracy")
    )
    assert gap["before"] > 0.15
    assert gap["after"] < 0.5 * gap["before"]
    assert level["after"] > level["before"] - 0.04
    audited = summary["validation"]["before"]["metrics"]["demographic_parity_difference"]["value"]
    for name in ("female", "male", f"{audited:.3f}"):
        assert name in printed[1]  # of the audit


def test_python_and_command_line_make_the_same_model(followed: tuple[Path, list[str]]) -> None:
    folder, _ = followed
    assert filecmp.cmp(folder / "fair.txt", folder / "result" / "model.txt", shallow=False)
    assert filecmp.cmp(folder / "again/model.txt", folder / "result/model.txt", shallow=False)
    assert (folder / "report.html").stat().st_size > 100_000


def test_every_file_named_is_there(followed: tuple[Path, list[str]]) -> None:
    """The table of the page lists what `mitigate` writes, no more and no less."""
    folder, _ = followed
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    table = text[text.index("| `report.html`") : text.index("## Use the edited model")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert named == {path.name for path in (folder / "result").iterdir()}


def test_the_install_names_an_extra_that_exists() -> None:
    extra = re.fullmatch(r"pip install '\.\[(\w+)\]'\n", INSTALL.text)
    assert extra is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extra[1] in project["optional-dependencies"]


@pytest.mark.slow
def test_from_the_install_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an environment of its own, which borrows the packages that fairij needs (no network)."""
    pytest.importorskip("hatchling")
    source, reader = tmp_path / "source", tmp_path / "reader"
    reader.mkdir()
    source.mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    programs = tmp_path / "env" / "bin"
    older = ["pip", "uninstall", "--quiet", "--yes", "setuptools"]  # than torch asks for
    subprocess.run([programs / "python", "-m", *older], check=True)
    ask = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    theirs, ours = (
        subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout
        for python in (programs / "python", sys.executable)
    )
    (Path(theirs.strip()) / "borrowed.pth").write_text(ours)  # .pth files in there are not read
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip's way to say: do not isolate
    assert "Successfully installed fairij" in INSTALL.run(source, programs)
    shutil.rmtree(source)
    assert_as_shown([block.run(reader, programs) for block in REST])
    assert (reader / "result" / "report.html").is_file()
    found = INSTALL.__class__("python", "import fairij; print(fairij.__file__)").run(
        reader, programs
    )
    assert os.path.commonpath([found, tmp_path / "env"]) == str(tmp_path / "env")
