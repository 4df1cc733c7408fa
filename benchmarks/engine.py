"""`make bench`: floors, fairij and its peers on one problem; the cost of a fit; growth with N.

Everything runs on one thread, in rounds, and the best time of each method counts. Seconds are those
of the processor, so other processes disturb them little. Machines differ, so read the ratios.

`python -m benchmarks.engine curvlinops` runs floors, fairij and the peers that are named, and keeps
the other rows of the record. Each row says which code, and which run, it is of.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from datetime import date
from pathlib import Path
from typing import Any

import torch
from fairij_studies.provenance import code_hash

from benchmarks import environments, fit_cost, floors, growth, peer_runs
from benchmarks.peer_runs import PEERS, Row, run_method
from benchmarks.peers.fairij import METHODS
from benchmarks.problem import Problem, make, reference
from fairij import __version__

RESULTS = Path(__file__).parent / "results" / "engine.json"
ROUNDS = 3
# ours, and the peer's at the same agreement or less
RATIOS = {
    "top500 >= 0.97": ("fairij GGN CG", "curvlinops GGN CG"),
    "top500 >= 0.97, with KFAC": ("fairij GGN CG", "curvlinops GGN CG + KFAC"),
    "top500 >= 0.996, with KFAC": ("fairij GGN CG default", "curvlinops GGN CG + KFAC close"),
    "defaults": ("fairij GGN CG default", "curvlinops GGN CG defaults"),
}


def in_turns(problem: Problem, peers: list[str], rounds: int) -> list[Row]:
    """Return the rows of floors, fairij and these peers: the best of some rounds of all."""
    best: dict[str, Row] = {}
    methods = [("fairij", method) for method in METHODS]
    methods += [(name, method) for name in peers for method in PEERS[name]]
    for _ in range(rounds):
        rows = floors.run(problem)
        for name, method in methods:
            python = sys.executable if name == "fairij" else environments.interpreter(name)
            rows.append(run_method(python, name, method, problem))
        for row in rows:
            known = best.get(row["name"], row)
            is_better = row["seconds"] is None or row["seconds"] <= known["seconds"]
            best[row["name"]] = row if is_better else known
    return list(best.values())


def marked(rows: list[Row], code: str, when: str) -> list[Row]:
    """Return rows that say which code, and which day, they are of."""
    return [{"code": code, "date": when} | row for row in rows]


def run(peers: list[str], rounds: int) -> dict[str, Any]:
    """Measure, and keep what the record has of other peers."""
    problem = make()
    reference(problem)
    earlier = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": []}
    rows = marked(in_turns(problem, peers, rounds), code_hash(), date.today().isoformat())
    skipped = tuple(f"{name} " for name in PEERS if name not in peers)
    kept = [row for row in earlier["rows"] if row["name"].startswith(skipped)] if skipped else []
    if skipped:
        kept = marked(kept, earlier.get("code", ""), earlier.get("date", "earlier"))
    seconds = {row["name"]: row["seconds"] for row in (*rows, *kept)}
    grown = earlier.get("growth", {})
    grown = (
        {"code": earlier.get("code")} | grown if skipped else {"code": code_hash()} | growth.run()
    )
    return {
        "version": __version__,
        "code": code_hash(),
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, one thread, torch {torch.__version__}",
        "problem": {"train": len(problem.X), "validation": len(problem.X_validation)},
        "rounds": rounds,
        "rows": [*rows, *kept],
        "times_faster": {
            name: round(seconds[theirs] / seconds[ours], 2)
            for name, (ours, theirs) in RATIOS.items()
            if seconds.get(theirs)
        },
        "fit": {"code": code_hash()} | fit_cost.run(),
        "growth": grown,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="peer", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    unknown = [name for name in asked.peers if name not in PEERS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    result = run(asked.peers or list(PEERS), asked.rounds)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(peer_runs.table(result["rows"]))
    for name, ratio in result["times_faster"].items():
        print(f"{name}: {RATIOS[name][0]} is {ratio} times as fast as {RATIOS[name][1]}")
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
