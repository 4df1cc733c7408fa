"""The constrained search on Adult and Coverage, with the paper's network, over fresh seeds.

``python -m benchmarks.constrained --data FOLDER --seeds 60-69 --workers 16 --out record.json``

``FOLDER`` holds ``adult.data``, ``adult.test`` and the parquet file of California 2018; or splits
that ``--pack FOLDER`` wrote on a machine that has the files, one for each table and seed. Without
it the loaders of the project find the files. Every form is chosen on validation rows, at the lowest
gap within 0.02 of their accuracy, and measured on test rows. ``--settings`` tries further settings
of the search, such as ``damping=1e-3,newton=1``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import log_loss, roc_auc_score
from torch import nn

from fairij import AccuracyBudget, Constrained, FairIJ, __version__
from fairij.datasets import (
    Split,
    Splits,
    adult_splits,
    fetch_acs_public_coverage,
    make_splits,
)
from fairij.fairness.rates import GAPS, balanced_accuracy, confusion_counts
from fairij.models.torch.training import train_mlp

TABLES = ("adult", "coverage")
CONSTRAINTS = ("demographic_parity", "equalized_odds", "equal_opportunity")
BUDGET = 0.02
SHOWN = ("accuracy", "gap", "auc", "brier", "seconds")
PARTS = ("train", "validation", "test")


def load_splits(table: str, seed: int, folder: str | None) -> Splits:
    packed = None if folder is None else Path(folder) / f"{table}-{seed}.npz"
    if packed is not None and packed.exists():
        with np.load(packed) as arrays:
            parts = [Split(*(arrays[f"{part}_{name}"] for name in "Xys")) for part in PARTS]
        return Splits(*parts, (), ("0", "1"), table, False, seed)
    if table == "adult":
        has_files = folder is not None and (Path(folder) / "adult.data").exists()
        return adult_splits(seed, path=folder if has_files else None)
    files = [] if folder is None else sorted(Path(folder).glob("*CA2018*.parquet"))
    bunch = fetch_acs_public_coverage(include_sensitive=False, path=files[0] if files else None)
    return make_splits(bunch, seed, validation=0.2, test=0.3)


def pack(tables: list[str], seeds: list[int], folder: str | None, into: str) -> None:
    """Write the splits as arrays, for a machine that has neither the files nor a network."""
    Path(into).mkdir(parents=True, exist_ok=True)
    for table, seed in product(tables, seeds):
        splits = load_splits(table, seed, folder)
        arrays: dict[str, Any] = {
            f"{part}_{name}": getattr(getattr(splits, part), name)
            for part in PARTS
            for name in "Xys"
        }
        np.savez_compressed(Path(into) / f"{table}-{seed}.npz", **arrays)


@lru_cache(maxsize=1)
def trained(table: str, seed: int, folder: str | None) -> tuple[Splits, nn.Module, float]:
    splits, start = load_splits(table, seed, folder), time.perf_counter()
    rows, held = splits.train, splits.validation
    module = train_mlp(rows.X, rows.y, held.X, held.y, epochs=100, seed=seed)
    return splits, module.eval(), time.perf_counter() - start


def measure(module: nn.Module, part: Split, constraint: str) -> dict[str, float]:
    with torch.no_grad():
        z = module(torch.from_numpy(part.X))[:, 0].double()
    p, y = torch.sigmoid(z).numpy(), part.y.astype(int)
    counts = confusion_counts(y, (z > 0).numpy().astype(int), part.s, n_groups=2, n_classes=2)
    return {
        "accuracy": float(((p > 0.5) == y).mean()),
        "gap": float(GAPS[constraint].metric(counts)),
        "auc": float(roc_auc_score(y, p)),
        "brier": float(((p - y) ** 2).mean()),
        "log_loss": float(log_loss(y, p)),
        "balanced_accuracy": float(balanced_accuracy(counts)),
    }


def forms_of(settings: list[str]) -> dict[str, tuple[Any, bool]]:
    """Each form's search, and whether groups of training rows are given as well."""
    forms: dict[str, tuple[Any, bool]] = {
        "grid, val": ("grid", False),
        "path, val": ("path", False),
        "constrained, val": ("constrained", False),
        "constrained, both": ("constrained", True),
    }
    for text in settings:
        pairs = (pair.split("=") for pair in text.split(","))
        search = Constrained(**{name: json.loads(value) for name, value in pairs})
        forms[f"{text}, val"], forms[f"{text}, both"] = (search, False), (search, True)
    return forms


def run(unit: tuple[str, int, str], folder: str | None, asked: list[str], only: str) -> list[Any]:
    """All forms of one table, seed and constraint."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    table, seed, constraint = unit
    splits, module, seconds = trained(table, seed, folder)
    key = {"table": table, "seed": seed, "constraint": constraint}
    records = [
        {**key, "form": "as trained", "seconds": seconds} | measure(module, splits.test, constraint)
    ]
    for form, (search, both) in forms_of(asked).items():
        if only and only not in form:
            continue
        start = time.perf_counter()
        fair = FairIJ(
            module,
            constraints=constraint,
            search=search,
            selection=AccuracyBudget(BUDGET),
            verbose=False,
        ).fit(
            splits.train.X,
            splits.train.y,
            X_val=splits.validation.X,
            y_val=splits.validation.y,
            sensitive_features_val=splits.validation.s,
            sensitive_features=splits.train.s if both else None,
        )
        took, chosen = time.perf_counter() - start, fair.candidates_.iloc[fair.chosen_]
        found = {"form": form, "seconds": took, "scale": float(chosen["scale"])}
        found |= {"validation_gap": float(chosen["gap"])}
        records.append({**key, **found} | measure(fair.estimator_, splits.test, constraint))
    return records


def summary(records: list[dict[str, Any]]) -> str:
    """Means over seeds on test rows, with the standard deviation of the gap."""
    lines = []
    for key in dict.fromkeys((r["table"], r["constraint"], r["form"]) for r in records):
        own = [r for r in records if (r["table"], r["constraint"], r["form"]) == key]
        means = [float(np.mean([r[name] for r in own])) for name in SHOWN]
        spread = float(np.std([r["gap"] for r in own]))
        texts = [f"{name} {value:.4f}" for name, value in zip(SHOWN, means, strict=True)]
        lines.append(" ".join([*key, *texts, f"gap_deviation {spread:.4f}", f"seeds {len(own)}"]))
    return "\n".join(lines)


def seeds_of(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("FAIRIJ_BENCHMARK_DATA"))
    parser.add_argument("--seeds", default="60-69", type=seeds_of)
    parser.add_argument("--workers", default=os.cpu_count(), type=int)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--constraints", nargs="+", default=list(CONSTRAINTS))
    parser.add_argument("--settings", nargs="*", default=[])
    parser.add_argument("--only", default="", help="forms that have this in their name")
    parser.add_argument("--out", default="constrained.json")
    parser.add_argument("--pack", help="only write the splits to this folder")
    asked = parser.parse_args()
    if asked.pack:
        pack(asked.tables, asked.seeds, asked.data, asked.pack)
        return
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # of the processes that start from here
        os.environ[name] = "1"
    units = list(product(asked.tables, asked.seeds, asked.constraints))
    context, records = multiprocessing.get_context("spawn"), list[dict[str, Any]]()
    with ProcessPoolExecutor(min(asked.workers, len(units)), mp_context=context) as pool:
        running = [pool.submit(run, u, asked.data, asked.settings, asked.only) for u in units]
        for future in running:
            records += future.result()
    about = {"version": __version__, "torch": torch.__version__, "budget": BUDGET}
    Path(asked.out).write_text(json.dumps({**about, "records": records}, indent=1) + "\n")
    print(summary(records))


if __name__ == "__main__":
    main()
