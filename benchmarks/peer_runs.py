"""Run the peers on the problem, each method in a process of its own, and compare their scores.

`python -m benchmarks.peer_runs [peer ...]` prints the rows. Without a name it runs all peers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import environments
from benchmarks.problem import Problem, agreement, make, reference

Row = dict[str, Any]
TIMEOUT = 480.0
PEERS = {
    "curvlinops": (
        "GGN CG",
        "GGN CG defaults",
        "GGN CG tight",
        "GGN CG + KFAC",
        "GGN CG + KFAC close",
        "KFAC",
    ),
    "kronfluence": ("KFAC", "EKFAC"),
    "dattri": ("CG", "CG linearised", "LiSSA", "TRAK"),
    "pydvl": ("CG", "CG linearised", "LiSSA"),
    "captum": ("Arnoldi",),
}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def run_all(problem: Problem | None = None, timeout: float = TIMEOUT) -> list[Row]:
    """Return the rows of all peers, in the order of the table."""
    problem = problem or make()
    return [row for name in PEERS for row in run_peer(name, problem, timeout)]


def run_peer(name: str, problem: Problem, timeout: float = TIMEOUT) -> list[Row]:
    """Return the rows of one peer: name, seconds, spearman, top500, peak_mb, settings, note.

    If a method fails or takes longer than `timeout` seconds, its figures are None and a note says
    so.
    """
    try:
        python = environments.interpreter(name)
    except RuntimeError as error:
        return [_no_figures(f"{name} {method}", str(error)) for method in PEERS[name]]
    return [run_method(python, name, method, problem, timeout) for method in PEERS[name]]


def run_method(
    python: Path | str, name: str, method: str, problem: Problem, timeout: float = TIMEOUT
) -> Row:
    """Run `benchmarks.peers.<name>` on one method with the given Python, and read its row."""
    expected = reference(problem)
    out = problem.path.parent / "peers" / f"{name}-{method.replace(' ', '-')}.json"
    out.parent.mkdir(exist_ok=True)
    command = [str(python), "-m", f"benchmarks.peers.{name}", "--method", method]
    command += ["--problem", str(problem.path), "--out", str(out)]
    try:
        subprocess.run(
            command,
            cwd=environments.ROOT,
            env=os.environ | ONE_THREAD | {"TQDM_DISABLE": "1"},
            timeout=timeout,
            capture_output=True,
            text=True,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return _no_figures(f"{name} {method}", f"stopped after {timeout:.0f} s")
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        return _no_figures(f"{name} {method}", f"failed: {last}")
    return json.loads(out.read_text()) | agreement(np.load(out.with_suffix(".npy")), expected)


def _no_figures(name: str, note: str) -> Row:
    figures = dict.fromkeys(("seconds", "spearman", "top500", "peak_mb"))
    return {"name": name, **figures, "settings": {}, "note": note}


def table(rows: Iterable[Row]) -> str:
    """Return rows as lines of text."""
    lines = [f"{'':28}{'seconds':>9}{'Spearman':>10}{'top 500':>9}{'peak MB':>9}"]
    for row in rows:
        cells = [f"{row['name']:28}"]
        for field, width, form in (
            ("seconds", 9, ".3f"),
            ("spearman", 10, ".4f"),
            ("top500", 9, ".3f"),
            ("peak_mb", 9, ".0f"),
        ):
            value = row.get(field)
            cells.append(f"{'-' if value is None else format(value, form):>{width}}")
        lines.append("".join(cells) + (f"  {row['note']}" if row.get("note") else ""))
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    asked = sys.argv[1:] or list(PEERS)
    print(table(row for name in asked for row in run_peer(name, make())))
