"""Raw, unscaled tables: how well the default solver's ranking agrees with the exact one.

`python -m benchmarks.raw_tables` fits plain models on Adult and German credit as people load them:
numbers as they are, categories one-hot coded. It prints a table and writes
`benchmarks/results/raw_tables.json`. Shared is the part of the worst rows (500 of Adult, 25 of
German credit) that the default solver and ``solver="exact"`` agree on. Seconds are CPU time.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from fairij import FairIJ, __version__
from fairij.datasets import fetch_adult, fetch_german_credit

RESULTS = Path(__file__).parent / "results" / "raw_tables.json"
WORST = {"Adult": 500, "German credit": 25}
MODELS: dict[str, Any] = {
    "LogisticRegression, lbfgs": LogisticRegression(),
    "LogisticRegression, liblinear": LogisticRegression(solver="liblinear"),
    "SGDClassifier": SGDClassifier(loss="log_loss", random_state=0),
    # its default steps are so long on raw columns that all probabilities are 0 or 1
    "SGDClassifier, short steps": SGDClassifier(
        loss="log_loss", learning_rate="constant", eta0=1e-10, random_state=0
    ),
    "MLPClassifier": MLPClassifier((50,), max_iter=30, random_state=0),
}


def run() -> dict[str, Any]:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # raw columns: models do not converge, groups are small
        rows = [row for name in WORST for row in of_table(name)]
    return {"version": __version__, "rows": rows}


def of_table(name: str) -> list[dict[str, Any]]:
    given = raw_rows(name)
    return [
        {"table": name, "model": label} | compared(model, given, WORST[name])
        for label, model in MODELS.items()
    ]


def raw_rows(name: str) -> dict[str, Any]:
    """Two thirds of the training rows to train on, a third to validate on."""
    table = fetch_adult() if name == "Adult" else fetch_german_credit()
    X = pd.get_dummies(table.data, dtype=float).to_numpy()
    y, groups = np.asarray(table.target), np.asarray(table.sensitive_features).ravel()
    if name == "Adult":
        kept = np.asarray(table.split) == "train"
        X, y, groups = X[kept], y[kept], groups[kept]
    train, validation = train_test_split(np.arange(len(X)), test_size=0.33, random_state=0)
    return {
        "X": X[train],
        "y": y[train],
        "X_val": X[validation],
        "y_val": y[validation],
        "sensitive_features_val": groups[validation],
    }


def compared(model: Any, given: dict[str, Any], worst: int) -> dict[str, Any]:
    start = time.process_time()
    fitted = model.fit(given["X"], given["y"])
    training = time.process_time() - start
    exact, exact_seconds = edit(fitted, given, "exact")
    ours, seconds = edit(fitted, given, "cg")
    table, found = ours.candidates_, ours.diagnostics_
    return {
        "parameters": found["n_parameters"],
        "accuracy": float(table["accuracy"][0]),
        "gap": float(table["gap"][0]),
        "shared": shared(ours.influence_, exact.influence_, worst),
        "positive_share": float((ours.influence_ > 0).mean()),
        "steps": found["influence_steps"],
        "products": found["curvature_products"],
        "error": found["influence_residual"],
        "edited": {n: float(table[n][ours.chosen_]) for n in ("gap", "accuracy")},
        "edited_exactly": {
            n: float(exact.candidates_[n][exact.chosen_]) for n in ("gap", "accuracy")
        },
        "seconds": seconds,
        "exact_seconds": exact_seconds,
        "train_seconds": training,
    }


def edit(model: Any, given: dict[str, Any], solver: str) -> tuple[FairIJ, float]:
    start = time.process_time()
    fair = FairIJ(model, solver=solver, search="grid", verbose=False).fit(**given)
    return fair, time.process_time() - start


def shared(scores: NDArray[np.float64], exact: NDArray[np.float64], worst: int) -> float:
    found, expected = (np.argsort(-s, kind="stable")[:worst] for s in (scores, exact))
    return len(np.intersect1d(found, expected)) / worst


def shown(rows: list[dict[str, Any]]) -> str:
    head = f"{'':44}{'shared':>8}{'steps':>7}{'products':>10}{'error':>9}{'seconds':>9}{'exact':>8}"
    form = "{table:14} {model:29}{shared:8.3f}{steps:7}{products:10}{error:9.1e}{seconds:9.2f}"
    return "\n".join([head, *(form.format(**r) + f"{r['exact_seconds']:8.2f}" for r in rows)])


def main() -> None:
    result = run()
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(shown(result["rows"]))


if __name__ == "__main__":
    main()
