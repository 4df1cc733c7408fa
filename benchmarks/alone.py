"""Candidates fitted alone: how far their gaps are from those of the table, on Adult's network.

`python -m benchmarks.alone --processes 8` writes `benchmarks/results/alone.json`. For each seed it
fits the grid of 273 candidates, then each number of dropped rows by itself, and once all of them by
tight solves. It says how far gaps differ.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from fairij_studies.provenance import code_hash
from numpy.typing import NDArray

from benchmarks.workers import cpu_seconds, machine, spread
from fairij import ConjugateGradient, FairIJ, Grid, __version__
from fairij.datasets import adult_splits
from fairij.models.torch.training import mlp, train_mlp

RESULTS = Path(__file__).parent / "results" / "alone.json"
SEEDS = tuple(range(10))
NEAR = 0.002
TIGHT = ConjugateGradient(tolerance=1e-4)
Weights = dict[str, NDArray[Any]]
splits_of = cache(adult_splits)


def trained(seed: int) -> Weights:
    """Return the weights of the network of a seed."""
    train, validation, _ = splits_of(seed)
    module = train_mlp(train.X, train.y, validation.X, validation.y, seed=seed)
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


@dataclass(frozen=True)
class Fit:
    """One fit: of the whole grid, of the whole grid by tight solves, or of one number of rows."""

    seed: int
    weights: Weights
    k: tuple[int, ...] | None = None
    tight: bool = False

    def run(self) -> tuple[pd.DataFrame, int]:
        """Return the table of edits and the number of products."""
        train, validation, _ = splits_of(self.seed)
        model = mlp(train.X.shape[1])
        model.load_state_dict({name: torch.from_numpy(of) for name, of in self.weights.items()})
        fair = FairIJ(
            model.eval(),
            search=Grid() if self.k is None else Grid(k=self.k),
            solver=TIGHT if self.tight else "cg",
            selection="lowest_gap",
            verbose=False,
        )
        fair.fit(
            train.X,
            train.y,
            X_val=validation.X,
            y_val=validation.y,
            sensitive_features_val=validation.s,
        )
        table = fair.candidates_
        return table[table["k"] > 0].reset_index(drop=True), fair.diagnostics_["curvature_products"]


def compared(
    seed: int, products: int, table: pd.DataFrame, alone: pd.DataFrame, tight: pd.DataFrame
) -> dict[str, Any]:
    """Return the record of a seed."""
    off = gaps_off(table, alone)
    far, on_front = off > NEAR, table["pareto"].to_numpy()
    return {
        "seed": seed,
        "products": int(products),
        "candidates": len(table),
        "on_frontier": int(on_front.sum()),
        "off_on_frontier": int(far[on_front].sum()),
        "most_on_frontier": round(float(off[on_front].max()), 5),
        "off": int(far.sum()),
        "most": round(float(off.max()), 5),
        "median": round(float(np.median(off)), 6),
        "scales_off": sorted(set(table["scale"][far].astype(float))),
        "most_from_tight": round(float(gaps_off(table, tight).max()), 5),
    }


def gaps_off(left: pd.DataFrame, right: pd.DataFrame) -> NDArray[np.float64]:
    assert (left[["k", "scale"]].to_numpy() == right[["k", "scale"]].to_numpy()).all()
    return np.abs(left["gap"].to_numpy() - right["gap"].to_numpy())


def measured(seeds: tuple[int, ...], processes: int) -> list[dict[str, Any]]:
    """Return one record for each seed."""
    weights = spread(trained, seeds, processes)
    wholes = [Fit(seed, of) for seed, of in zip(seeds, weights, strict=True)]
    tables = list(spread(Fit.run, wholes, processes))
    others = [
        [replace(whole, tight=True), *(replace(whole, k=(int(k),)) for k in table["k"].unique())]
        for whole, (table, _) in zip(wholes, tables, strict=True)
    ]
    found = spread(Fit.run, [fit for some in others for fit in some], processes)
    records = []
    for whole, (table, products), some in zip(wholes, tables, others, strict=True):
        tight, *singles = (next(found)[0] for _ in some)
        records.append(compared(whole.seed, products, table, pd.concat(singles), tight))
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    asked = parser.parse_args()
    adult_splits(0)  # fetches the files once
    code, start = code_hash(), cpu_seconds()
    records = measured(tuple(asked.seeds), asked.processes)
    result = {"version": __version__, "code": code, "machine": machine(), "near": NEAR}
    result |= {"cpu_seconds": round(cpu_seconds() - start)}
    RESULTS.write_text(json.dumps(result | {"records": records}, indent=1) + "\n")
    for record in records:
        print(json.dumps(record))


if __name__ == "__main__":
    main()
