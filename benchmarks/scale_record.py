"""The results of `benchmarks.scale` so far, and their summary."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from benchmarks import generated
from fairij.storage.checksummed import write_whole

SCHEMA = 2
ALONE = "one process, one thread"


class Record:
    """The results so far, in a file that is rewritten after each of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        held = json.loads(path.read_text()) if path.exists() else {}
        old = held if held.get("schema") == SCHEMA else {}
        self.fits: list[dict[str, Any]] = old.get("fits", [])
        self.scoring: list[dict[str, Any]] = old.get("scoring", [])

    def add(self, into: list[dict[str, Any]], keys: tuple[str, ...], one: dict[str, Any]) -> None:
        into[:] = [old for old in into if any(old[key] != one[key] for key in keys)] + [one]
        into.sort(key=lambda entry: [entry[key] for key in keys])
        write_whole(self._path, (json.dumps(self.summary(), indent=2) + "\n").encode())
        print(json.dumps(one), flush=True)

    def summary(self) -> dict[str, Any]:
        # per product: two independent processes solve two systems, which may take more steps
        seconds = {one["way"]: one["seconds"] / one["products"] for one in self.scoring}
        return {
            "schema": SCHEMA,
            "machine": f"{os.cpu_count()} cores, torch {torch.__version__}",
            "features": generated.FEATURES,
            "fits": self.fits,
            "peak_of_most_rows_over_that_of_fewest": {
                name: growth(self.fits, name) for name in ("linear", "mlp")
            },
            "scoring": self.scoring,
            "times_as_fast_as_one_process_of_one_thread": {
                way: seconds[ALONE] / found
                for way, found in seconds.items()
                if ALONE in seconds and way != ALONE
            },
        }


def growth(fits: list[dict[str, Any]], model: str) -> dict[str, float]:
    """Return how the peak above the reader's, and that of anonymous memory, grow with the rows."""
    some = sorted((f for f in fits if f["model"] == model), key=lambda one: one["rows"])
    if len(some) < 2:
        return {}
    few, many = some[0], some[-1]
    return {
        "rows": many["rows"] / few["rows"],
        "above_reader": (many["peak_mb"] - many["reader_mb"]) / (few["peak_mb"] - few["reader_mb"]),
        "anonymous": many["anonymous_peak_mb"] / few["anonymous_peak_mb"],
    }


def table(record: Record) -> str:
    line = "| {model} | {rows:,} | {threads} | {products} | {seconds:.0f} | {cpu_seconds:.0f} | "
    line += "{reader_mb:.0f} | {peak_mb:.0f} | {anonymous_peak_mb:.0f} | {load:.1f} |"
    ways = "| {way} | {rows:,} | {products} | {seconds:.2f} | {load:.1f} |"
    fits = [line.format(**one) for one in record.fits]
    return "\n".join([*fits, "", *(ways.format(**one) for one in record.scoring)])
