"""One virtual environment for each peer, because their requirements do not agree."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".venv-peers"
REQUIREMENTS = Path(__file__).parent / "requirements"


def interpreter(name: str) -> Path:
    """Return the peer's Python. Make its environment if it is missing or its pins have changed.

    torch, if it is among the pins, comes first and by itself: then no other package can ask for
    another build.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    pins = f"{sys.version}\n{requirements.read_text()}"
    folder = ENVIRONMENTS / name
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    stamp = folder / "made-from.txt"
    if not stamp.exists() or stamp.read_text() != pins:
        venv.create(folder, clear=True, with_pip=True)
        for torch in (line for line in pins.splitlines() if line.startswith("torch==")):
            _pip(python, torch)
        _pip(python, "--requirement", str(requirements))
        stamp.write_text(pins)
    return python


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{finished.stderr[-2000:]}")
