"""Time and peak memory of fits on rows that are made on the fly, in one and in two processes.

`python -m benchmarks.scale` runs what `benchmarks/results/scale.json` does not hold yet: whole fits
of 1 and 10 million rows by a linear model and an MLP, and the scoring phase of the MLP in several
ways. `--only linear`, `--only mlp`, `--only scoring` and `--rows` run a part, `--again`
repeats it. Each figure is measured in its own process and written at once, so a run may be stopped.
`--table` shows the results as in `docs/scaling.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch

from benchmarks.generated import Generated, model_of, validation
from benchmarks.measure import _peak_mb, _status_mb, held
from benchmarks.scale_record import ALONE, Record, table
from fairij import ConjugateGradient, FairIJ, Grid
from fairij.data.rows import processes, rank
from fairij.scale.sharding import Shard, start
from fairij.scale.streaming import Chunks

RESULTS = Path(__file__).parent / "results" / "scale.json"
REPEATS = 3
# processes that share the rows (0: two independent ones), and threads of each
WAYS = {
    ALONE: (1, 1),
    "two processes, one thread each": (2, 1),
    "one process, two threads": (1, 2),
    "two processes apart, half the rows each": (0, 1),
}


def fit(kind: str, rows: int, threads: int) -> dict[str, Any]:
    """Measure a whole fit on streamed rows: seconds, and the peak above that of reading alone."""
    torch.set_num_threads(threads)
    model, source, given = model_of(kind), Generated(rows), validation()

    def fair() -> FairIJ:
        search = Grid(points=5, scales=(1.0, 3.0), max_k=2000)
        return FairIJ(model, search=search, solver=ConjugateGradient(), verbose=False)

    small = Generated(20_000)
    fair().fit(small, small.labels(), **given)  # warm up: what is loaded once does not count
    labels, before = source.labels(), held()
    for _ in source.chunks(Chunks(source).size):
        pass
    reader = _peak_mb() - before
    before, began, used = held(), time.perf_counter(), time.process_time()
    with sampled("RssAnon") as anonymous:
        fitted = fair().fit(source, labels, **given)
    seconds, used, peak = time.perf_counter() - began, time.process_time() - used, _peak_mb()
    return {
        "model": kind,
        "rows": rows,
        "threads": threads,
        "seconds": seconds,
        "cpu_seconds": used,
        "phases": fitted.diagnostics_["seconds"],
        "products": fitted.diagnostics_["curvature_products"],
        "reader_mb": reader,
        "peak_mb": peak - before,
        "anonymous_peak_mb": max(anonymous) - anonymous[0],
        "gap": [float(fitted.candidates_["gap"][0]), float(fitted.candidates_["gap"].min())],
        "load": os.getloadavg()[0],
    }


@contextmanager
def sampled(field: str, every: float = 0.01) -> Iterator[list[float]]:
    """Sample a figure of this process's memory, in MB, while the work runs."""
    found, done = [_status_mb(field)], Event()

    def read() -> None:
        while not done.wait(every):
            found.append(_status_mb(field))

    reader = Thread(target=read)
    reader.start()
    try:
        yield found
    finally:
        done.set()
        reader.join()


def score(rows: int, threads: int) -> dict[str, Any]:
    """Measure the scoring phase of an MLP, the solve and `J r`, on this process's rows."""
    torch.set_num_threads(threads)
    rank, size = start(), processes()
    own = Generated(rows // size, first=rank * (rows // size))
    labels, given = own.labels(), validation()
    fair = FairIJ(model_of("mlp"), search=Grid(k=(100,), scales=(1.0,)), verbose=False)
    fair.fit(Generated(20_000), Generated(20_000).labels(), **given)  # warm
    if size == 1:
        print("ready", flush=True)
        sys.stdin.readline()
    seconds = []
    for _ in range(REPEATS):
        fair.fit(own if size == 1 else Shard(own), labels, **given)
        seconds.append(fair.diagnostics_["seconds"]["influence"])
    return {
        "rows": rows,
        "threads": threads,
        "seconds": min(seconds),
        "each": seconds,
        "products": fair.diagnostics_["curvature_products"],
        "load": os.getloadavg()[0],
    }


def scored(way: str, rows: int) -> dict[str, Any]:
    """Measure one way of scoring in its own processes. Independent ones start together."""
    shared, threads = WAYS[way]
    if shared > 1:
        return launched("--score", rows, threads, processes=shared) | {"way": way}
    children = [begun("--score", rows if shared else rows // 2, threads) for _ in range(2 - shared)]
    for child in children:
        assert child.stdout is not None
        while "ready" not in child.stdout.readline():
            if child.poll() is not None:
                raise RuntimeError(child.communicate()[1][-3000:])
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    found = [ended(child) for child in children]
    slowest = max(found, key=lambda one: one["seconds"])
    return slowest | {"way": way, "rows": rows}


def begun(*arguments: object, processes: int = 0) -> subprocess.Popen[str]:
    run = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
    launcher = run if processes else []
    return subprocess.Popen(
        [sys.executable, "-m", *launcher, "benchmarks.scale", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | ({"OMP_NUM_THREADS": "1"} if processes else {}),
    )


def ended(child: subprocess.Popen[str]) -> dict[str, Any]:
    out, problem = child.communicate()
    if child.returncode:
        raise RuntimeError(problem[-3000:])
    result: dict[str, Any] = json.loads([li for li in out.splitlines() if li.startswith("{")][-1])
    return result


def launched(*arguments: object, processes: int = 0) -> dict[str, Any]:
    return ended(begun(*arguments, processes=processes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ("linear", "mlp", "scoring")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--scoring-rows", type=int, default=400_000)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--again", action="store_true", help="run what is there already")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--fit", nargs=3, metavar=("MODEL", "ROWS", "THREADS"))
    parser.add_argument("--score", type=int, nargs=2, metavar=("ROWS", "THREADS"))
    asked = parser.parse_args()
    if asked.fit:
        print(json.dumps(fit(asked.fit[0], int(asked.fit[1]), int(asked.fit[2]))))
        return
    if asked.score:
        found = score(*asked.score)
        if rank() == 0:
            print(json.dumps(found))
        return
    record = Record(asked.out)
    if asked.table:
        print(table(record))
        return
    known = {(one["model"], one["rows"], one["threads"]) for one in record.fits}
    for kind in [part for part in asked.only if part != "scoring"]:
        for rows in asked.rows:
            if asked.again or (kind, rows, asked.threads) not in known:
                one = launched("--fit", kind, rows, asked.threads)
                record.add(record.fits, ("model", "rows"), one)
    known = {(one["way"], one["rows"]) for one in record.scoring}
    for way in WAYS if "scoring" in asked.only else ():
        if asked.again or (way, asked.scoring_rows) not in known:
            record.add(record.scoring, ("way",), scored(way, asked.scoring_rows))
    print(json.dumps({k: v for k, v in record.summary().items() if "_over_" in k or "times" in k}))


if __name__ == "__main__":
    main()
