"""`make bench`: floors, fairij and its peers on one problem; the cost of a fit; growth with N.

Everything runs in one go on one thread. Machines differ and are noisy, so read the ratios.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from fairij_studies.provenance import code_hash

from benchmarks import fit_cost, floors, growth, peer_runs
from benchmarks.peer_runs import run_method
from benchmarks.peers.fairij import METHODS
from benchmarks.problem import make, reference
from fairij import __version__

RESULTS = Path(__file__).parent / "results" / "engine.json"
YARDSTICK, OURS = "curvlinops GGN CG", "fairij GGN CG"


def run() -> dict[str, Any]:
    problem = make()
    reference(problem)
    rows = floors.run(problem)
    for method in METHODS:
        rows.append(run_method(sys.executable, "fairij", method, problem))
    rows += peer_runs.run_all(problem)
    # the machine may have been busier at one end of the run: time both sides once more, together
    for name, python in (("fairij", sys.executable), ("curvlinops", None)):
        again = python or peer_runs.environments.interpreter(name)
        row = run_method(again, name, "GGN CG", problem)
        old = next(r for r in rows if r["name"] == row["name"])
        old["seconds"] = min(old["seconds"], row["seconds"])
    seconds = {row["name"]: row["seconds"] for row in rows}
    return {
        "version": __version__,
        "code": code_hash(),
        "machine": f"{platform.machine()}, one thread, torch {torch.__version__}",
        "problem": {"train": len(problem.X), "validation": len(problem.X_validation)},
        "rows": rows,
        "times_faster_than_curvlinops": seconds[YARDSTICK] / seconds[OURS],
        "fit": fit_cost.run(),
        "growth": growth.run(),
    }


def main() -> None:
    result = run()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(peer_runs.table(result["rows"]))
    print(f"\n{OURS} is {result['times_faster_than_curvlinops']:.1f} times as fast as {YARDSTICK}")
    fit, grown = result["fit"], result["growth"]
    print(
        f"fit {fit['fit_seconds']:.2f} s, training {fit['train_seconds']:.2f} s: "
        f"{fit['fit_over_train']:.2f} of it, {fit['candidates']} candidates"
    )
    for way in growth.LIMITS:
        for size in grown[way]["sizes"]:
            print(
                "{rows:>9} rows {seconds:8.2f} s, {peak_mb:6.0f} MB beyond {data_mb:.0f} MB".format(
                    **size
                )
            )
        print(f"{way}, time grows as N^{grown[way]['exponent']:.2f}")


if __name__ == "__main__":
    main()
