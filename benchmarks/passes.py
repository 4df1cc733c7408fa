"""One pass over rows, by model family: CPU microseconds per row for each product, on one thread.

`python -m benchmarks.passes` writes `benchmarks/results/passes.json`, the measured half of the cost
model in `docs/scaling.md`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import torch

from benchmarks.generated import BLOCK, Generated, model_of
from fairij.models import adapt
from fairij.scale.streaming import StreamedEditable
from fairij.storage.checksummed import write_whole

RESULTS = Path(__file__).parent / "results" / "passes.json"
ROWS, REPEATS, EVERYTHING = 2 * BLOCK, 3, 2**40


def run() -> dict[str, Any]:
    torch.set_num_threads(1)
    source = Generated(ROWS)
    X = np.concatenate(list(source.chunks(BLOCK)))
    linear, network, trees = model_of("linear"), model_of("mlp"), boosted()
    cases: dict[str, tuple[Any, Any, int]] = {
        "logistic regression (float64), in memory": (linear, X, EVERYTHING),
        "logistic regression, read in chunks, nothing kept": (linear, source, 0),
        "MLP 100-32-1 (float32), in memory, factors kept": (network, X, EVERYTHING),
        "MLP, read in chunks, nothing kept": (network, source, 0),
        "LightGBM, 100 trees of 31 leaves, leaves known": (trees, source, EVERYTHING),
        "LightGBM, leaves found again in each pass": (trees, source, 0),
    }
    return {
        "machine": f"one thread, torch {torch.__version__}",
        "rows": ROWS,
        "cases": [{"case": name} | measured(*case) for name, case in cases.items()],
    }


def boosted() -> Any:
    first = Generated(50_000, first=10**9)
    X = np.concatenate(list(first.chunks(BLOCK)))
    settings = {"n_estimators": 100, "num_leaves": 31, "n_jobs": 1, "verbose": -1}
    return lightgbm.LGBMClassifier(**settings).fit(X.astype(np.float64), first.labels())


def measured(model: Any, X: Any, memory_limit: int) -> dict[str, Any]:
    editable = StreamedEditable(adapt(model, memory_limit=memory_limit), memory_limit)
    rows = editable.linearize(X)
    z, direction = rows.outputs, torch.full_like(editable.theta, 1e-3)
    return {
        "parameters": len(direction),
        "product": best(lambda: rows.sandwich(direction, lambda moved, _: moved)),
        "jvp": best(lambda: rows.jvp(direction)),
        "vjp": best(lambda: rows.vjp(z)),
    }


def best(work: Callable[[], Any]) -> float:
    """Return CPU microseconds per row, the best of a few runs."""
    found = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return 1e6 * min(found) / ROWS


def main() -> None:
    result = run()
    write_whole(RESULTS, (json.dumps(result, indent=2) + "\n").encode())
    for one in result["cases"]:
        print("| {case} | {parameters} | {product:.2f} | {jvp:.2f} | {vjp:.2f} |".format(**one))


if __name__ == "__main__":
    main()
