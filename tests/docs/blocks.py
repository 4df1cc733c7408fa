"""The fenced blocks of a page, in order, and two ways to run them.

`run` starts a process for each block, as a reader would. `run_here` runs the same words in this
process, which saves importing torch again for each command.

``python tests/docs/blocks.py quickstart.md`` runs a page and writes what each block prints into the
block of output that follows it.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parents[2]
HERE = Path(sys.executable).parent  # the programs of this environment
FENCE = re.compile(r"^```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^```\n", re.DOTALL | re.MULTILINE)
COLUMNS = "100"
TELLS_CODE = ' || echo "exit code $?"'  # of a command that is to fail


@dataclass(frozen=True)
class Block:
    """A block of commands or Python, and the output that the page shows after it."""

    kind: str
    text: str
    output: str | None = None

    def run(self, folder: Path, bin_folder: Path) -> str:
        """Run it as a reader would: a script by python, commands by bash. Returns its output."""
        command = [str(bin_folder / "python"), "-c", self.text]
        if self.kind == "bash":
            command = ["bash", "-euo", "pipefail", "-c", self.text]
        path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": COLUMNS},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{self.text}\n{done.stdout}"
        return done.stdout

    def run_here(self, folder: Path) -> str:
        """Run it in this process, on one thread. Of bash, it knows `fairij` commands only."""
        with chdir(folder), threadpool_limits(1):
            if self.kind == "python":
                return _python(self.text)
            return "".join(_fairij(line) for line in commands(self.text))


def _python(text: str) -> str:
    printed = io.StringIO()
    scope: dict[str, Any] = {"__name__": "page"}
    with redirect_stdout(printed), redirect_stderr(printed):
        exec(compile(text, "page", "exec", dont_inherit=True), scope)
    return printed.getvalue()


def _fairij(line: str) -> str:
    from typer.testing import CliRunner

    from fairij.cli import app

    line, tells_code, _ = line.partition(TELLS_CODE)
    program, *words = shlex.split(line)
    assert program == "fairij", line
    result = CliRunner(env={"COLUMNS": COLUMNS}).invoke(app, words)
    if tells_code:
        assert result.exit_code != 0, line
        return f"{result.output}exit code {result.exit_code}\n"
    assert result.exit_code == 0, f"{line}\n{result.output}"
    return result.output


def commands(text: str) -> list[str]:
    """The commands of a bash block, one per line of the result."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if shlex.split(line, comments=True)]


def blocks(page: str) -> list[Block]:
    """The blocks of a page under docs that are bash or python, with their output."""
    return blocks_of((ROOT / "docs" / page).read_text(encoding="utf-8"))


def blocks_of(text: str) -> list[Block]:
    """The same for the text of a page."""
    found: list[Block] = []
    end = -1  # of the last block of code
    for match in FENCE.finditer(text):
        between = text[end : match.start()] if end >= 0 else "words"
        if match["kind"] in ("bash", "python"):
            found.append(Block(match["kind"], match["text"]))
            end = match.end()
        elif match["kind"] == "text" and not between.strip():
            found[-1] = Block(found[-1].kind, found[-1].text, match["text"])
    return found


NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def check_output(block: Block, printed: str) -> None:
    """Every word is as the page shows it; numbers may differ a little on another machine."""
    if block.output is None:
        assert printed == "", block.text
        return
    printed = tidy(printed)
    assert NUMBER.sub("0", printed) == NUMBER.sub("0", block.output)
    found, shown = (
        np.array([float(number.replace(",", "")) for number in NUMBER.findall(text)])
        for text in (printed, block.output)
    )
    np.testing.assert_allclose(found, shown, rtol=0.05, atol=0.02)


def refresh(page: Path) -> None:
    """Write what each block of a page prints into the block of output that follows it."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for block in blocks_of(text):
            if "pip install" in block.text:
                continue
            printed = block.run(Path(folder), HERE)
            if block.output is not None:
                code = f"{block.text}```\n"
                old = f"{code}\n```text\n{block.output}```\n"
                assert old in text, block.text
                text = text.replace(old, f"{code}\n```text\n{tidy(printed)}```\n")
    page.write_text(text, encoding="utf-8")


def tidy(printed: str) -> str:
    """Output without blank lines at its ends and spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in printed.strip("\n").splitlines()) + "\n"


if __name__ == "__main__":
    refresh(ROOT / "docs" / sys.argv[1])
