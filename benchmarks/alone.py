"""Candidates fitted alone: how far their gaps are from those of the table, on Adult's network.

`python -m benchmarks.alone` fits the grid of 273 candidates for two seeds, then each number of
dropped rows by itself, and once all of them by tight solves. It prints how far gaps differ.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from fairij import ConjugateGradient, FairIJ, Grid
from fairij.datasets import adult_splits
from fairij.models.torch.training import train_mlp

SEEDS = (0, 1)
NEAR = 0.002
TIGHT = ConjugateGradient(tolerance=1e-4)


def run(seed: int) -> str:
    train, validation, _ = adult_splits(seed)
    model = train_mlp(train.X, train.y, validation.X, validation.y, seed=seed)

    def fit(search: Grid, solver: ConjugateGradient | str = "cg") -> FairIJ:
        fair = FairIJ(model, search=search, solver=solver, selection="lowest_gap", verbose=False)
        return fair.fit(
            train.X,
            train.y,
            X_val=validation.X,
            y_val=validation.y,
            sensitive_features_val=validation.s,
        )

    together = fit(Grid())
    table = edits(together)
    alone = pd.concat([edits(fit(Grid(k=(int(k),)))) for k in table["k"].unique()])
    tight = edits(fit(Grid(), TIGHT))
    off = gaps_off(table, alone)
    return (
        f"seed {seed}: {together.diagnostics_['curvature_products']} products for {len(table)} "
        f"candidates; fitted alone {(off > NEAR).sum()} are more than {NEAR} off (at most "
        f"{off.max():.4f}, scales {sorted(set(table['scale'][off > NEAR]))}), on the frontier "
        f"{(off[table['pareto']] > NEAR).sum()} of {table['pareto'].sum()}; from tight solves the "
        f"table is at most {gaps_off(table, tight).max():.4f} off"
    )


def edits(fair: FairIJ) -> pd.DataFrame:
    found = fair.candidates_
    return found[found["k"] > 0].reset_index(drop=True)


def gaps_off(left: pd.DataFrame, right: pd.DataFrame) -> NDArray[np.float64]:
    assert (left[["k", "scale"]].to_numpy() == right[["k", "scale"]].to_numpy()).all()
    return np.abs(left["gap"].to_numpy() - right["gap"].to_numpy())


def main() -> None:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in SEEDS:
            print(run(seed), flush=True)


if __name__ == "__main__":
    main()
