"""Small models of a label or a group, for chances. None of them is kept.

`simple` is logistic regression. `close` is the mean of a more cautious one and of a few boosted
trees: the two err in different places, so together they are nearer to the truth than either.
"""

from __future__ import annotations

import warnings
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
CAUTIOUS = 0.1  # C of the more cautious logistic regression
TREES = {"max_iter": 15, "learning_rate": 0.25, "max_leaf_nodes": 8, "early_stopping": False}


def simple(X: Any, s: Codes, X_new: Any, n: int) -> Array:
    """``P(s | x)`` of new rows by logistic regression, ``(N, n)``."""
    return _chances(_logistic(X, s, 1.0), X, s, X_new, n)


def close(X: Any, s: Codes, X_new: Any, n: int) -> Array:
    """The mean of logistic regression and, if rows are not too wide, boosted trees."""
    found = _chances(_logistic(X, s, CAUTIOUS), X, s, X_new, n)
    if _is_wide(X):
        return found
    trees = HistGradientBoostingClassifier(random_state=0, **TREES)
    return (found + _chances(trees, X, s, X_new, n)) / 2


def _logistic(X: Any, s: Codes, C: float) -> Any:
    few = len(np.unique(s)) <= 2 and not _is_wide(X)
    solver = "newton-cholesky" if few else "lbfgs"
    return LogisticRegression(solver=solver, max_iter=STEPS, C=C)


def _is_wide(X: Any) -> bool:
    return bool(sp.issparse(X)) or X.shape[1] > WIDE


def _chances(model: Any, X: Any, s: Codes, X_new: Any, n: int) -> Array:
    found, known = np.zeros((X_new.shape[0], n)), np.unique(s)
    if len(known) < 2:
        found[:, known] = 1.0
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model that is not quite fitted is good enough
        found[:, known] = model.fit(X, s).predict_proba(X_new)
    return found
