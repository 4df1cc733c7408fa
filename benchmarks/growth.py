"""How time and memory grow with the training rows, from 20 thousand to 2 million."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

SIZES = (20_000, 200_000, 2_000_000)
LIMITS = {"by default": 2**28, "keeping nothing": 0}  # bytes kept between products
CHILD = """
import json, sys, torch
from benchmarks.measure import measure
from benchmarks.peers.fairij import scores
from benchmarks.problem import make
from dataclasses import replace
torch.set_num_threads(1)
problem, rows, limit = make(), int(sys.argv[1]), int(sys.argv[2])
pick = torch.randint(len(problem.X), (rows,), generator=torch.Generator().manual_seed(0))
noise = torch.Generator().manual_seed(1)
X = problem.X[pick]
X.add_(torch.randn(X.shape, generator=noise), alpha=0.01)  # no two rows are equal
large = replace(problem, X=X, y=problem.y[pick])
scores(problem.head(512), memory_limit=limit, tolerance=1e-3)
work = lambda: scores(large, memory_limit=limit, tolerance=1e-3)
measured = measure(work, repeats=2, enough=10.0)
print(json.dumps({"rows": rows, "seconds": measured.seconds, "peak_mb": measured.peak_mb,
                  "data_mb": X.numel() * 4 / 1e6}))
"""


def run() -> dict[str, Any]:
    """Measure each size in its own process. The exponent compares the first size with the last."""
    series = {name: _grown(limit) for name, limit in LIMITS.items()}
    return {"work": "scores of all rows, tolerance 1e-3", **series}


def _grown(limit: int) -> dict[str, Any]:
    rows = []
    for size in SIZES:
        command = [sys.executable, "-c", CHILD, str(size), str(limit)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    first, last = rows[0], rows[-1]
    exponent = math.log(last["seconds"] / first["seconds"]) / math.log(last["rows"] / first["rows"])
    return {"memory_limit": limit, "sizes": rows, "exponent": exponent}


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
