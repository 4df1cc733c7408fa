"""Small models of a label or a group, for chances. None of them is kept.

`simple` is logistic regression. `close` is the mean of a more cautious one and of a few boosted
trees: the two err in different places, so together they are nearer to the truth than either.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
WIDE = 400  # columns, above which Newton's method, and trees, would be slow
STEPS = 200  # of the solver of logistic regression
COLUMNS = 30  # that boosted trees see
CAUTIOUS = 0.1  # C of the more cautious logistic regression
TREES = {"max_iter": 15, "learning_rate": 0.25, "max_leaf_nodes": 8, "early_stopping": False}


def simple(X: Any, s: Codes, X_new: Any, n: int) -> Array:
    """``P(s | x)`` of new rows by logistic regression, ``(N, n)``."""
    return _fitted(_logistic(X, s, 1.0), X, s, n)(X_new)


def cautious(X: Any, s: Codes, X_new: Any, n: int) -> Array:
    """The same by a more cautious one, in half the time: its numbers have half of the digits."""
    return _fitted(_logistic(X, s, CAUTIOUS), X.astype(np.float32), s, n)(X_new)


def close(X: Any, s: Codes, n: int) -> Callable[[Any], Array]:
    """What gives ``P(s | x)`` of new rows: the mean of `cautious` and, for few columns, trees."""
    models = [_fitted(_logistic(X, s, CAUTIOUS), X.astype(np.float32), s, n)]
    if len(s) and not _is_wide(X):
        told = _telling(X, s)
        trees = _fitted(HistGradientBoostingClassifier(random_state=0, **TREES), X[:, told], s, n)
        models.append(lambda X_new: trees(X_new[:, told]))
    return lambda X_new: np.mean([model(X_new) for model in models], axis=0)


def _telling(X: Array, s: Codes) -> NDArray[np.intp]:
    """The columns that go with the classes most; binning all of them would cost the most."""
    own = np.eye(int(s.max()) + 1)[s]
    return np.sort(np.argsort(-np.abs(X.T @ (own - own.mean(0))).max(1), kind="stable")[:COLUMNS])


def _logistic(X: Any, s: Codes, C: float) -> Any:
    few = len(np.unique(s)) <= 2 and not _is_wide(X)
    solver = "newton-cholesky" if few else "lbfgs"
    return LogisticRegression(solver=solver, max_iter=STEPS, C=C)


def _is_wide(X: Any) -> bool:
    return bool(sp.issparse(X)) or X.shape[1] > WIDE


def _fitted(model: Any, X: Any, s: Codes, n: int) -> Callable[[Any], Array]:
    """The model's chances of all ``n`` classes, also of those that it did not see."""
    known = np.unique(s)
    if len(known) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model that is not quite fitted is good enough
            model.fit(X, s)

    def chances(X_new: Any) -> Array:
        found = np.zeros((X_new.shape[0], n))
        found[:, known] = model.predict_proba(X_new) if len(known) > 1 else 1.0
        return found

    return chances
