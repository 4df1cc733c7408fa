"""Rows made on the fly, more than would fit in memory: time and peak memory; two processes and one.

`python -m benchmarks.scale` runs 1 and 10 million rows and writes `benchmarks/results/scale.json`;
`--rows 100000 1000000 --out FILE` runs other sizes. Each size runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from benchmarks.measure import _peak_mb, _start_peak
from fairij import ConjugateGradient, FairIJ, Grid
from fairij.distributed import Shard, start
from fairij.models.sources import Source
from fairij.models.streamed import Chunks
from fairij.training import mlp

FEATURES, BLOCK, VALIDATION = 100, 2**16, 20_000
RESULTS = Path(__file__).parent / "results" / "scale.json"


class Generated(Source):
    """Rows that are a function of their number: a fixed block, moved anew each time it returns."""

    def __init__(self, rows: int, first: int = 0) -> None:
        self.shape, self._first = (rows, FEATURES), first
        rng = np.random.default_rng(0)
        self._base = rng.standard_normal((BLOCK, FEATURES), np.float32)
        self._weights = rng.standard_normal(FEATURES) / math.sqrt(FEATURES)

    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        stop, place = len(self) if stop is None else stop, start
        while place < stop:
            number, inside = divmod(self._first + place, BLOCK)
            last = min(place + size, stop, place + BLOCK - inside)
            rows = self._base[inside : inside + last - place]
            # each row is met again after a block: shifted columns, so that no two rows are alike
            yield np.roll(rows, number % FEATURES, 1) + np.float32(1e-3 * math.sin(number))
            place = last

    def labels(self) -> np.ndarray:
        """Labels (N,) and, of the first validation rows, a group that sways them."""
        found = np.empty(len(self), np.int8)
        place = 0
        for table in self.chunks(BLOCK):
            noise = np.random.default_rng([1, self._first + place]).logistic(size=len(table))
            group = table[:, 0] > 0
            found[place : place + len(table)] = table @ self._weights * 3 + group + noise > 0.5
            place += len(table)
        return found


def model_of(kind: str) -> Any:
    """A model that knows something of the labels; rows to be scored need not be its own."""
    source = Generated(50_000, first=10**9)
    X, y = np.concatenate(list(source.chunks(BLOCK))), source.labels()
    if kind == "linear":
        return LogisticRegression().fit(X, y)
    torch.manual_seed(0)
    module = mlp(FEATURES, 32) if kind == "mlp" else nn.Linear(FEATURES, 1)
    optimiser = torch.optim.Adam(module.parameters(), 2e-3)
    rows, labels = torch.from_numpy(X), torch.from_numpy(y).float()
    for _ in range(3):
        for batch in torch.randperm(len(rows)).split(256):
            optimiser.zero_grad()
            z = module(rows[batch])[:, 0]
            nn.functional.binary_cross_entropy_with_logits(z, labels[batch]).backward()
            optimiser.step()
    return module


def one(kind: str, rows: int, threads: int) -> dict[str, Any]:
    """A whole fit on streamed rows: seconds, and the peak above that of reading alone."""
    torch.set_num_threads(threads)
    model, source = model_of(kind), Generated(rows)
    held = Generated(VALIDATION, first=2 * 10**9)
    X_val = np.concatenate(list(held.chunks(BLOCK)))
    validation = {
        "X_val": X_val,
        "y_val": held.labels(),
        "sensitive_features_val": (X_val[:, 0] > 0).astype(int),
    }

    def fair() -> FairIJ:
        search = Grid(points=5, scales=(1.0, 3.0), max_k=2000)
        return FairIJ(model, search=search, solver=ConjugateGradient(), verbose=False)

    small = Generated(20_000)
    fair().fit(small, small.labels(), **validation)  # warm: what is loaded once is not counted
    before = _start_peak()
    labels = source.labels()
    for _ in source.chunks(Chunks(source).size):
        pass
    reader = _peak_mb() - before
    before, began, used = _start_peak(), time.perf_counter(), time.process_time()
    fitted = fair().fit(source, labels, **validation)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    return {
        "model": kind,
        "rows": rows,
        "threads": threads,
        "seconds": seconds,
        "cpu_seconds": used,
        "passes": fitted.diagnostics_["curvature_products"],
        "reader_mb": reader,
        "peak_mb": _peak_mb() - before,
        "peak_bytes_per_row": 1e6 * (_peak_mb() - before) / rows,
        "gap": [float(fitted.candidates_["gap"][0]), fitted.honest_gap_.gap],
        "load": os.getloadavg()[0],
    }


def scoring(rows: int) -> dict[str, Any]:
    """Scores of all rows by an MLP in this process (or these): one thread each."""
    torch.set_num_threads(1)
    rank = start()
    size = torch.distributed.get_world_size()
    model, source = model_of("mlp"), Generated(rows)
    shard = Shard(Generated(rows // size, first=rank * (rows // size)))
    held = Generated(VALIDATION, first=2 * 10**9)
    X_val = np.concatenate(list(held.chunks(BLOCK)))
    labels = shard.local.labels()
    fair = FairIJ(model, search=Grid(k=(100,), scales=(1.0,)), verbose=False)
    groups = (X_val[:, 0] > 0).astype(int)
    given = {"X_val": X_val, "y_val": held.labels(), "sensitive_features_val": groups}
    fair.fit(shard, labels, **given)
    return {
        "processes": size,
        "rows": len(source),
        "seconds": fair.diagnostics_["seconds"]["influence"],
        "load": os.getloadavg()[0],
    }


def launched(*arguments: object, processes: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scale", *map(str, arguments)]
    if processes:
        run = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
        command = [sys.executable, "-m", *run, "benchmarks.scale", *map(str, arguments)]
    environment = os.environ | ({"OMP_NUM_THREADS": "1"} if processes else {})
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--scoring-rows", type=int, default=500_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "ROWS"))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--scoring", type=int, metavar="ROWS")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(asked.one[0], int(asked.one[1]), asked.threads)))
        return
    if asked.scoring:
        found = scoring(asked.scoring)
        if torch.distributed.get_rank() == 0:
            print(json.dumps(found))
        return
    fits = [
        launched("--one", kind, n, "--threads", asked.threads)
        for kind in ("linear", "mlp")
        for n in asked.rows
    ]
    pair = [launched("--scoring", asked.scoring_rows, processes=p) for p in (1, 2)]
    result = {
        "machine": f"{os.cpu_count()} cores, torch {torch.__version__}",
        "features": FEATURES,
        "fits": fits,
        "scoring": pair,
        "speed_of_two_processes": pair[0]["seconds"] / pair[1]["seconds"],
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
