"""Predicted refits against real ones: the paper's network on Adult, over ten seeds.

`python -m benchmarks.refits --processes 8` writes `benchmarks/results/refits.json`. In each seed,
the network is trained, and trained again without the k rows that push the demographic parity gap up
most. `FairIJ.predict_refit` predicts the second training from the first. Trained networks are kept
in `build/benchmarks/refits`, so a run that was stopped continues. It needs the files of Adult, as
`fairij datasets fetch adult` keeps them.

A share is how far the gap on test rows moves, as a part of how far the refit moves it. A refit is
one training from one seed, so single seeds differ by chance.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairij_studies.provenance import code_hash
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from benchmarks.workers import machine, spread
from fairij import FairIJ, Grid, __version__, adapt
from fairij.datasets import Split, Splits, adult_splits
from fairij.method.refit import Refits
from fairij.models.torch.training import mlp, train_mlp

RESULTS = Path(__file__).parent / "results" / "refits.json"
CACHE = Path(__file__).parents[1] / "build" / "benchmarks" / "refits"
SEEDS, COUNTS = tuple(range(20, 30)), (200, 500, 1000, 2000)
FORMS = ("edit", "first step", "prediction")


def trained(splits: Splits, kept: np.ndarray, seed: int, name: str) -> nn.Module:
    """Return the network trained on some rows, from the cache if it is there."""
    path, train, held = CACHE / f"{name}.safetensors", splits.train, splits.validation
    if not path.exists():
        rows, labels = train.X[kept], train.y[kept]
        module = train_mlp(rows, labels, held.X, held.y, seed=seed)
        CACHE.mkdir(parents=True, exist_ok=True)
        save_file(dict(module.state_dict()), path)
    module = mlp(train.X.shape[1])
    module.load_state_dict(load_file(path))
    return module.eval()


def gaps(z: Tensor, part: Split) -> dict[str, float]:
    """Return the gap of predicted labels and of mean scores, and the accuracy."""
    scores, labels = torch.sigmoid(z.double()).numpy(), (z > 0).numpy()

    def gap(values: np.ndarray) -> float:
        return float(values[part.s == 1].mean() - values[part.s == 0].mean())

    return {
        "hard": gap(labels),
        "smooth": gap(scores),
        "accuracy": float((labels == part.y).mean()),
    }


def trial(seed: int) -> list[dict[str, Any]]:
    splits = adult_splits(seed)
    train, held, test = splits.train, splits.validation, splits.test
    everything = np.arange(len(train.y))
    base = trained(splits, everything, seed, f"base{seed}")
    one = Grid(k=(1,), scales=(1.0,))
    fair = FairIJ(base, search=one, verbose=False)
    fair.fit(train.X, train.y, X_val=held.X, y_val=held.y, sensitive_features_val=held.s)
    refits: Refits = fair._refits  # the same as `predict_refit`, with the steps on the way
    editable = adapt(base)
    before = gaps(editable.outputs(test.X), test)
    start = time.process_time()
    found = list(refits.moves(editable, list(COUNTS)))
    seconds = (time.process_time() - start) / len(COUNTS)
    records = []
    for k, (dropped, edit, prediction) in zip(COUNTS, found, strict=True):
        kept = np.setdiff1d(everything, dropped.numpy())
        real = adapt(trained(splits, kept, seed, f"refit{seed}_{k}")).outputs(test.X)
        record: dict[str, Any] = {"seed": seed, "k": k, "further_step": prediction.further_step}
        record |= {"seconds": seconds, "before": before, "refit": gaps(real, test)}
        moves = zip(FORMS, (edit, prediction.first, prediction.move), strict=True)
        for form, move in moves:
            z = editable.outputs(test.X, editable.theta + move)
            far = (torch.sigmoid(z) - torch.sigmoid(real)).square().mean().sqrt()
            record[form] = gaps(z, test) | {"distance": float(far)}
        records.append(record)
    return records


def share(record: dict[str, Any], form: str, kind: str) -> float:
    """Return the movement of a gap as a part of the refit's."""
    start = record["before"][kind]
    return float((record[form][kind] - start) / (record["refit"][kind] - start))


def summary(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each k, the mean movement as a part of the refits', and the single seeds'."""
    rows = []
    for k in COUNTS:
        some = [record for record in records if record["k"] == k]
        row: dict[str, Any] = {"k": k, "seeds": len(some)}
        for kind in ("hard", "smooth"):
            moved = {
                form: np.array([record[form][kind] - record["before"][kind] for record in some])
                for form in (*FORMS, "refit")
            }
            for form in FORMS:
                single = [share(record, form, kind) for record in some]
                row[f"{kind}, {form}"] = {
                    "mean": round(float(moved[form].mean() / moved["refit"].mean()), 3),
                    "lowest": round(min(single), 3),
                    "highest": round(max(single), 3),
                }
        row["not taken"] = sum(not record["further_step"] for record in some)
        row["farther from the refit"] = {
            kind: sum(
                abs(share(r, "prediction", kind) - 1) > abs(share(r, "first step", kind) - 1)
                for r in some
            )
            for kind in ("hard", "smooth")
        } | {"scores": sum(r["prediction"]["distance"] > r["first step"]["distance"] for r in some)}
        row["accuracy"] = {
            form: round(float(np.mean([record[form]["accuracy"] for record in some])), 4)
            for form in ("before", "refit", "prediction")
        }
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    asked = parser.parse_args()
    adult_splits(0)  # fetches the files once
    code = code_hash()  # later changes to the files do not count
    records = [record for found in spread(trial, asked.seeds, asked.processes) for record in found]
    rows = summary(records)
    result = {"version": __version__, "code": code, "machine": machine(), "damping": 1e-2}
    result["summary"] = rows
    RESULTS.write_text(json.dumps(result | {"records": records}, indent=1) + "\n")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
