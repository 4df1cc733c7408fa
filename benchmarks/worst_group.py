"""The error and the loss of the worst group, with edits chosen on rows seen or not seen.

``python -m benchmarks.worst_group`` asks for ``worst_group_error`` and ``worst_group_loss`` on
credit card, of a logistic regression and of LightGBM with defaults otherwise, and compares
``validation_use="reuse"`` with the default, which is "split" for these two. One seed. Measured are
the rows that choose, and test rows that play no part.
"""

from __future__ import annotations

import json
import platform
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from fairij_studies.provenance import code_hash
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from fairij import FairIJ, __version__
from fairij.datasets import fetch_credit_card

RESULTS = Path(__file__).parent / "results" / "worst_group.json"
SIZES = (15_000, 22_000)  # where validation and test rows begin
MODELS: dict[str, Any] = {
    "logistic regression": LogisticRegression(max_iter=1000),
    "LightGBM": LGBMClassifier(n_estimators=100, learning_rate=0.05, n_jobs=1, verbosity=-1),
}


def worst(name: str, model: Any, X: Any, y: Any, groups: Any) -> float:
    """The largest error rate, or mean log loss, of a group."""
    p = model.predict_proba(X)[:, 1]
    each = (p > 0.5) != y if name == "worst_group_error" else -np.log(np.where(y == 1, p, 1 - p))
    return float(max(each[groups == group].mean() for group in np.unique(groups)))


def main() -> None:
    bunch = fetch_credit_card()
    table = bunch.data.select_dtypes("number")
    X = ((table - table.mean()) / table.std()).to_numpy()
    y, groups = np.asarray(bunch.target).astype(int), np.asarray(bunch.sensitive_features)
    train, validation, test = np.split(np.random.default_rng(0).permutation(len(X)), SIZES)
    found: dict[str, Any] = {"version": __version__, "code": code_hash()}
    found["machine"] = platform.machine()
    for kind, model in MODELS.items():
        model.fit(X[train], y[train])
        for name in ("worst_group_error", "worst_group_loss"):
            for use in ("reuse", "auto"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    fair = FairIJ(model, constraints=name, validation_use=use, verbose=False).fit(
                        X[train],
                        y[train],
                        X_val=X[validation],
                        y_val=y[validation],
                        sensitive_features_val=groups[validation],
                    )
                gaps, rows = fair.candidates_["gap"], (X[test], y[test], groups[test])
                line = {
                    "choosing": [float(gaps[0]), float(gaps[fair.chosen_])],
                    "test": [worst(name, one, *rows) for one in (model, fair.estimator_)],
                    "is edited": bool(fair.chosen_ > 0),
                }
                found[f"{kind}, {name}, {use}"] = line
                print(kind, name, use, line, flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
