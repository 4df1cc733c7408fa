"""`make bench-trees`: what editing a tree ensemble costs, compared with training it.

Train, then edit (influence, 40 values of k by 7 scales, the edited copy), on one thread, several
times in turn. The best time of each is kept, and the ratio is of those two. Adult has 22
thousand training rows. The million rows are **made**: Adult's training rows drawn with
replacement, with noise of a hundredth of a deviation on the numerical columns so that no two are
alike; labels and one-hot columns as drawn.
"""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from fairij_studies.provenance import code_hash
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from fairij import FairIJ, __version__
from fairij.datasets import Split, adult_splits

RESULTS = Path(__file__).parent / "results" / "trees.json"
NUMERICAL = 6  # Adult's first columns
MILLION = 1_000_000
NOISE = 0.01


def lightgbm() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(
        n_estimators=200, learning_rate=0.05, num_leaves=31, n_jobs=1, verbosity=-1
    )


def xgboost() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=200, learning_rate=0.1, max_depth=5, n_jobs=1)


def histogram() -> Any:
    return HistGradientBoostingClassifier(max_iter=100, learning_rate=0.1, early_stopping=False)


MODELS = {"LightGBM": lightgbm, "XGBoost": xgboost, "HistGradientBoosting": histogram}


def enlarged(train: Split, rows: int) -> Split:
    """Draw rows with replacement and add a little noise to the numerical columns."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(train), rows)
    X = train.X[drawn]
    X[:, :NUMERICAL] += NOISE * rng.standard_normal((rows, NUMERICAL), dtype=np.float32)
    return Split(X, train.y[drawn], train.s[drawn])


def edit(model: Any, train: Split, validation: Split, **settings: Any) -> FairIJ:
    return FairIJ(model, search="grid", selection="lowest_gap", verbose=False, **settings).fit(
        train.X,
        train.y,
        X_val=validation.X,
        y_val=validation.y,
        sensitive_features_val=validation.s,
    )


def compare(name: str, train: Split, validation: Split, repeats: int) -> dict[str, Any]:
    trained, edited = [], []
    for _ in range(repeats):
        start = perf_counter(), process_time()
        model = MODELS[name]().fit(train.X, train.y)
        trained.append((perf_counter() - start[0], process_time() - start[1]))
        start = perf_counter(), process_time()
        fair = edit(model, train, validation)
        edited.append((perf_counter() - start[0], process_time() - start[1]))
    (train_wall, train_cpu), (edit_wall, edit_cpu) = (np.min(t, 0) for t in (trained, edited))
    row = {
        "model": name,
        "train_rows": len(train),
        "validation_rows": len(validation),
        "leaves": fair.diagnostics_["n_parameters"],
        "candidates": len(fair.candidates_) - 1,
        "repeats": repeats,
        "train_seconds": train_wall,
        "edit_seconds": edit_wall,
        "edit_over_train": edit_wall / train_wall,
        "train_cpu_seconds": train_cpu,
        "edit_cpu_seconds": edit_cpu,
        "edit_over_train_cpu": edit_cpu / train_cpu,
        "curvature_products": fair.diagnostics_["curvature_products"],
        "phases": fair.diagnostics_["seconds"],
    }
    print(_line(row), flush=True)
    return row


def solvers(train: Split, validation: Split) -> list[dict[str, Any]]:
    """Compare the exact solver with conjugate gradients: seconds, and agreement of the ranks."""
    model, rows, scores = lightgbm().fit(train.X, train.y), [], {}
    for solver in ("cg", "exact"):
        start = perf_counter()
        fair = edit(model, train, validation, solver=solver)
        scores[solver] = fair.influence_
        seconds = perf_counter() - start
        rows.append({"solver": solver, "seconds": seconds, "phases": fair.diagnostics_["seconds"]})
    top = [set(np.argsort(-s)[:500]) for s in scores.values()]
    rows[0]["correlation_with_exact"] = float(np.corrcoef(*scores.values())[0, 1])
    rows[0]["shared_in_top_500"] = len(top[0] & top[1]) / 500
    print(rows, flush=True)
    return rows


def _line(row: dict[str, Any]) -> str:
    return (
        "{model:22}{train_rows:>9} rows  train {train_seconds:7.2f} s  edit {edit_seconds:7.2f} s  "
        "{edit_over_train:.2f} times as long (CPU time: {edit_over_train_cpu:.2f})"
    ).format(**row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="on Adult; a million rows run once")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    train, validation, _ = adult_splits(0)
    with threadpool_limits(1):
        rows = [compare(name, train, validation, given.repeats) for name in given.models]
        exact = solvers(train, validation)
        large = enlarged(train, MILLION)
        rows += [compare(name, large, validation, 1) for name in given.models]
    result = {
        "version": __version__,
        "code": code_hash(),
        "machine": f"{platform.machine()}, one thread, torch {torch.__version__}",
        "data": __doc__.split("\n\n")[1].replace("\n", " "),
        "rows": rows,
        "solvers": exact,
    }
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
