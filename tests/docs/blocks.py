"""The fenced blocks of a page of documentation, in order, to be run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    kind: str
    text: str

    def run(self, folder: Path, bin_folder: Path) -> str:
        """Run it as a reader would: a script by python, commands by bash; returns its output."""
        python = bin_folder / "python"
        command = [str(python), "-c", self.text]
        if self.kind == "bash":
            command = ["bash", "-euo", "pipefail", "-c", self.text]
        done = subprocess.run(
            command,
            cwd=folder,
            env={
                **os.environ,
                "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
                "OMP_NUM_THREADS": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{self.text}\n{done.stdout}\n{done.stderr}"
        return done.stdout


HERE = Path(sys.executable).parent  # the programs of this environment


def blocks(page: str) -> list[Block]:
    """The blocks of `docs/<page>` that are bash or python."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = [Block(match["kind"], match["text"]) for match in FENCE.finditer(text)]
    return [block for block in found if block.kind in ("bash", "python")]
