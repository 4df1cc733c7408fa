"""interpret's `ExplainableBoostingClassifier` and `ExplainableBoostingRegressor`.

An EBM is a sum of terms, ``z(x) = intercept + sum_t score_t[bin_t(x)]``. A term is a table of bins
of one feature or of a pair. So a term is read as a tree, its bins as leaves, and the intercept as a
tree of one leaf. A term of C outputs is read as C trees of the same leaves.

The scores are means over outer bags, which the model keeps. All bags of a bin move alike, so that
their mean stays the score, and their spread what it was.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairij.data.hashing import state_fingerprint
from fairij.errors import InvalidInputError
from fairij.models.trees.ensemble import MONOTONE, TreeEditable, Trees, unknown_objective

LOSSES = {"log_loss": "binary_cross_entropy", "rmse": "squared_error"}


class EBM(TreeEditable):
    """A fitted EBM, seen through its intercept and the scores of its bins."""

    dtype = torch.float64

    def __init__(self, model: Any, **options: Any) -> None:
        _check(model)
        self._model = model
        self.classes = getattr(model, "classes_", None)
        self._shapes = [np.asarray(scores).shape for scores in _tables(model)]
        n_outputs = len(np.atleast_1d(model.intercept_))
        self.loss_name = LOSSES[_objective(model)]
        if n_outputs > 1:
            self.loss_name = "softmax_cross_entropy"
        columns = [
            column for scores in _tables(model) for column in scores.reshape(-1, n_outputs).T
        ]
        parts = (model.term_features_, model.bins_, model.feature_types_in_, self.classes)
        trees = Trees.of(
            columns,
            outputs=np.tile(np.arange(n_outputs), len(self._shapes)),
            weights=np.ones(len(columns)),
            n_outputs=n_outputs,
            structure=state_fingerprint(self._shapes, *parts).encode(),
        )
        super().__init__(trees, **options)
        self.caveats = (MONOTONE,) if any(model.monotone_constraints or ()) else ()

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """Evaluate the terms with each bin's number in place of its score."""
        counting, n_outputs = copy.copy(self._model), self.trees.n_outputs
        bins = [shape if n_outputs == 1 else shape[:-1] for shape in self._shapes[1:]]
        counting.intercept_ = np.zeros(1)
        counting.term_scores_ = [np.arange(float(np.prod(own))).reshape(own) for own in bins]
        found = np.asarray(counting.eval_terms(X)).astype(np.int64)
        of_intercept = np.zeros((len(found), 1), np.int64)
        return np.repeat(np.hstack([of_intercept, found]), n_outputs, axis=1)

    def base(self, X: Any) -> NDArray[np.float64]:
        return np.zeros(1)

    def native(self, X: Any) -> NDArray[Any]:
        model = self._model
        return np.asarray((model.predict if self.classes is None else model.decision_function)(X))

    def replaced(self, values: NDArray[np.float64]) -> Any:
        clone, step = copy.deepcopy(self._model), self.trees.n_outputs
        columns, before = self.trees.split(values), _tables(self._model)
        tables = [
            np.stack(columns[place * step : (place + 1) * step], 1).reshape(shape)
            for place, shape in enumerate(self._shapes)
        ]
        moved = [new - old for new, old in zip(tables, before, strict=True)]
        is_number = np.ndim(clone.intercept_) == 0
        clone.intercept_ = float(tables[0][0]) if is_number else tables[0]
        clone.term_scores_ = tables[1:]
        bags = zip([clone.bagged_intercept_, *clone.bagged_scores_], moved, strict=True)
        clone.bagged_intercept_, *clone.bagged_scores_ = [
            scores + by.reshape(scores.shape[1:]) for scores, by in bags
        ]
        return clone


def _tables(model: Any) -> list[NDArray[np.float64]]:
    """The intercept, and the scores of each term."""
    return [np.atleast_1d(np.asarray(model.intercept_, np.float64)), *model.term_scores_]


def _objective(model: Any) -> str:
    return str(model.objective).split(":")[0]


def _check(model: Any) -> None:
    name = type(model).__name__
    if not getattr(model, "has_fitted_", False):
        raise InvalidInputError(f"The model must be fitted, but this {name} is not: call its fit.")
    if _objective(model) not in LOSSES:
        raise unknown_objective("EBM", LOSSES, f"got {model.objective!r}")
    if getattr(model, "link_", None) not in ("logit", "mlogit", "vlogit", "identity"):
        raise InvalidInputError(
            f"The link of an EBM must be that of log odds or of plain numbers, got {model.link_!r}."
        )
