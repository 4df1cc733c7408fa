"""The base models of the study, and the small search that fixed their settings.

`python -m fairij_studies.trees.tune` repeats the search. It uses the mean log loss on validation
rows over `TUNING_SEEDS`, which are not reported. The group is not a feature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from fairij_studies.trees.data import (
    ADMISSIONS,
    ADULT,
    COMPAS,
    COVERAGE,
    COVERAGE_SAMPLE,
    CREDIT_CARD,
    GERMAN,
    Places,
    load_splits,
)

LIGHTGBM, XGBOOST = "LightGBM", "XGBoost"
HISTOGRAM, LOGISTIC = "HistGradientBoosting", "logistic regression"
TUNING_SEEDS = (40, 41)
Settings = dict[str, Any]


def _lightgbm(**settings: Any) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_jobs=1, verbosity=-1, deterministic=True, random_state=0, **settings)


def _xgboost(**settings: Any) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_jobs=1, random_state=0, **settings)


def _histogram(**settings: Any) -> Any:
    return HistGradientBoostingClassifier(early_stopping=False, random_state=0, **settings)


def _logistic(**settings: Any) -> Any:
    return LogisticRegression(max_iter=2000, **settings)


MODELS: dict[str, Callable[..., Any]] = {
    LIGHTGBM: _lightgbm,
    XGBOOST: _xgboost,
    HISTOGRAM: _histogram,
    LOGISTIC: _logistic,
}


def _leaves(trees: int, leaves: int, *, columns: float, rows: int, rate: float = 0.05) -> Settings:
    """Return LightGBM's settings. ``columns`` is a share, ``rows`` the fewest rows of a leaf."""
    return {
        "n_estimators": trees,
        "learning_rate": rate,
        "num_leaves": leaves,
        "colsample_bytree": columns,
        "min_child_samples": rows,
    }


ROUNDS = ((50, 0.05), (100, 0.05), (200, 0.05), (300, 0.05))  # trees and learning rate
GRIDS: dict[str, list[Settings]] = {
    LIGHTGBM: [
        _leaves(n, leaves, rate=rate, columns=columns, rows=rows)
        for n, rate in ROUNDS
        for leaves in (7, 15, 31)
        for columns in (1.0, 0.5, 0.3)
        for rows in (5, 20)
    ],
    XGBOOST: [
        {"n_estimators": n, "learning_rate": rate, "max_depth": depth}
        for n, rate in ROUNDS
        for depth in (3, 5)
    ],
    HISTOGRAM: [
        {"max_iter": n, "learning_rate": rate, "max_leaf_nodes": leaves}
        for n, rate in ((50, 0.1), (100, 0.1))
        for leaves in (7, 31)
    ],
    LOGISTIC: [{"C": C} for C in (0.01, 0.1, 1.0, 10.0)],
}

CHOSEN: dict[str, dict[str, Settings]] = {
    ADULT: {
        LIGHTGBM: _leaves(300, 31, columns=0.3, rows=5),
        XGBOOST: {"n_estimators": 300, "learning_rate": 0.05, "max_depth": 5},
        HISTOGRAM: {"max_iter": 100, "learning_rate": 0.1, "max_leaf_nodes": 31},
        LOGISTIC: {"C": 0.1},
    },
    COMPAS: {
        LIGHTGBM: _leaves(100, 7, columns=0.5, rows=5),
        XGBOOST: {"n_estimators": 100, "learning_rate": 0.05, "max_depth": 3},
        HISTOGRAM: {"max_iter": 50, "learning_rate": 0.1, "max_leaf_nodes": 7},
        LOGISTIC: {"C": 0.1},
    },
    GERMAN: {
        LIGHTGBM: _leaves(100, 7, columns=0.5, rows=20),
        XGBOOST: {"n_estimators": 100, "learning_rate": 0.05, "max_depth": 3},
        HISTOGRAM: {"max_iter": 50, "learning_rate": 0.1, "max_leaf_nodes": 7},
        LOGISTIC: {"C": 0.1},
    },
    COVERAGE_SAMPLE: {
        LIGHTGBM: _leaves(200, 31, columns=0.5, rows=20),
        XGBOOST: {"n_estimators": 200, "learning_rate": 0.05, "max_depth": 5},
        HISTOGRAM: {"max_iter": 100, "learning_rate": 0.1, "max_leaf_nodes": 31},
        LOGISTIC: {"C": 10.0},
    },
    CREDIT_CARD: {
        LIGHTGBM: _leaves(200, 15, columns=0.5, rows=5),
        LOGISTIC: {"C": 1.0},
    },
    ADMISSIONS: {
        LIGHTGBM: _leaves(100, 7, columns=0.5, rows=20),
        LOGISTIC: {"C": 0.01},
    },
}
CHOSEN[COVERAGE] = CHOSEN[COVERAGE_SAMPLE]  # not searched on the whole survey


def make_model(name: str, title: str) -> Any:
    """Return a model with the settings of a table, not yet fitted."""
    return MODELS[name](**CHOSEN[title][name])


def search(title: str, name: str, places: Places) -> list[tuple[float, Settings]]:
    """Return the mean validation log loss of each setting, best first."""
    found = []
    for settings in GRIDS[name]:
        losses = []
        for seed in TUNING_SEEDS:
            train, validation, _ = load_splits(title, places, False, seed)
            model = MODELS[name](**settings).fit(train.X, train.y)
            losses.append(log_loss(validation.y, model.predict_proba(validation.X)[:, 1]))
        found.append((float(np.mean(losses)), settings))
    return sorted(found, key=lambda pair: pair[0])
