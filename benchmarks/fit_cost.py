"""What a whole `fit` costs compared with training the model, on Adult."""

from __future__ import annotations

from time import process_time
from typing import Any

import torch

from fairij import FairIJ
from fairij.datasets import adult_splits
from fairij.models.torch.training import train_mlp


def run(seed: int = 0, repeats: int = 3) -> dict[str, Any]:
    """Train for 100 epochs, then fit with 40 values of k by 7 scales; one thread for both."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train, validation, _ = adult_splits(seed)
        start = process_time()
        model = train_mlp(train.X, train.y, validation.X, validation.y, seed=seed)
        training = process_time() - start
        times = []
        for _ in range(repeats):
            start = process_time()
            fair = FairIJ(model, search="grid", selection="lowest_gap", verbose=False).fit(
                train.X,
                train.y,
                X_val=validation.X,
                y_val=validation.y,
                sensitive_features_val=validation.s,
            )
            times.append(process_time() - start)
    finally:
        torch.set_num_threads(threads)
    return {
        "data": "UCI Adult",
        "rows": {"train": len(train), "validation": len(validation)},
        "seed": seed,
        "train_seconds": training,
        "fit_seconds": min(times),
        "fit_over_train": min(times) / training,
        "candidates": len(fair.candidates_) - 1,
        "curvature_products": fair.diagnostics_["curvature_products"],
        "phases": fair.diagnostics_["seconds"],
    }


if __name__ == "__main__":
    print(run())
