"""Fitted scikit-learn estimators with settings drawn at random, one function a family."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Ridge,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.neural_network import MLPClassifier, MLPRegressor

ROWS, COLUMNS = 80, 5
CLASSES = {2: [(0, 1), (-1, 1), ("no", "yes"), (False, True)], 3: [(0, 1, 2), (1, 2, 3), "abc"]}


@dataclass(frozen=True)
class Case:
    estimator: Any
    X: Any
    y: np.ndarray

    @property
    def tolerance(self) -> float:
        """Of sums in the estimator's own precision."""
        coef = getattr(self.estimator, "coef_", None)
        return 1e-9 if (self.estimator.coefs_[0] if coef is None else coef).dtype == "f8" else 1e-6


def fit(estimator: Any, X: Any, y: Any, **options: Any) -> Any:
    """Fit, converged or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y, **options)


def rows(rng: np.random.Generator) -> Any:
    """Features, dense or sparse in one of several forms, in either precision."""
    X = rng.normal(size=(ROWS, COLUMNS)) * rng.uniform(0.3, 3, COLUMNS)
    X = X.astype(rng.choice(["f4", "f8", "f8"]))
    if rng.random() < 0.4:
        X = X * (rng.random(X.shape) < 0.4)
        return rng.choice([sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array])(X)
    return np.asfortranarray(X) if rng.random() < 0.3 else X


def labels(rng: np.random.Generator, X: Any, n_classes: int) -> np.ndarray:
    latent = np.asarray(X @ rng.normal(size=COLUMNS)) + rng.normal(size=ROWS)
    ranks = np.digitize(latent, np.quantile(latent, np.arange(1, n_classes) / n_classes))
    options = CLASSES[n_classes]
    return np.array(list(options[rng.integers(len(options))]))[ranks]


def class_weight(rng: np.random.Generator, y: np.ndarray) -> Any:
    return [None, "balanced", {np.unique(y).tolist()[0]: 2.5}][rng.integers(3)]


def logistic(seed: int, n_classes: int = 2) -> Case:
    rng = np.random.default_rng(seed)
    X = rows(rng)
    y = labels(rng, X, n_classes)
    solvers = ["lbfgs", "newton-cg", "newton-cholesky", "saga", *["liblinear"] * (n_classes == 2)]
    model = LogisticRegression(
        C=float(10 ** rng.uniform(-2, 2)),
        solver=str(rng.choice(solvers)),
        fit_intercept=bool(rng.random() < 0.7),
        class_weight=class_weight(rng, y),
        random_state=seed,
    )
    return Case(fit(model, X, y), X, y)


def multinomial(seed: int) -> Case:
    return logistic(seed, 3)


def sgd(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    X = rows(rng)
    y = labels(rng, X, 2)
    model = SGDClassifier(
        "log_loss",
        alpha=float(10 ** rng.uniform(-4, -1)),
        penalty=["l2", None][rng.integers(2)],
        average=bool(rng.integers(2)),
        fit_intercept=bool(rng.random() < 0.7),
        class_weight=class_weight(rng, y),
        random_state=seed,
    )
    return Case(fit(model, X, y), X, y)


def regression(seed: int, kind: Callable[..., Any], **settings: Any) -> Case:
    rng = np.random.default_rng(seed)
    X = rows(rng)
    y = np.asarray(X @ rng.normal(size=COLUMNS)) + rng.normal(size=ROWS) + 3
    model = kind(fit_intercept=bool(rng.random() < 0.7), **settings)
    return Case(fit(model, X, y), X, y)


def ridge(seed: int) -> Case:
    return regression(seed, Ridge, alpha=float(10 ** np.random.default_rng(seed).uniform(-2, 2)))


def least_squares(seed: int) -> Case:
    return regression(seed, LinearRegression)


def sgd_regressor(seed: int) -> Case:
    return regression(seed, SGDRegressor, random_state=seed, eta0=0.001)


def network(seed: int, kind: Any, y_of: Callable[..., np.ndarray]) -> Case:
    rng = np.random.default_rng(seed)
    X = rows(rng)
    y = y_of(rng, X)
    model = kind(
        hidden_layer_sizes=[(), (4,), (5, 3)][rng.integers(3)],
        activation=str(rng.choice(["identity", "logistic", "tanh", "relu"])),
        solver=str(rng.choice(["lbfgs", "adam", "sgd"])),
        alpha=float(10 ** rng.uniform(-4, 0)),
        max_iter=15,
        random_state=seed,
    )
    return Case(fit(model, X, y), X, y)


def mlp_classifier(seed: int) -> Case:
    n_classes = 2 + seed % 2
    return network(seed, MLPClassifier, lambda rng, X: labels(rng, X, n_classes))


def mlp_regressor(seed: int) -> Case:
    return network(seed, MLPRegressor, lambda rng, X: np.asarray(X @ rng.normal(size=COLUMNS)))


FAMILIES: dict[str, Callable[[int], Case]] = {
    case.__name__: case
    for case in (
        logistic,
        multinomial,
        sgd,
        ridge,
        least_squares,
        sgd_regressor,
        mlp_classifier,
        mlp_regressor,
    )
}
