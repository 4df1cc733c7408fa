"""scikit-learn's `GradientBoostingClassifier` and `GradientBoostingRegressor`.

The learning rate and the first estimator, ``init``, are not part of the trees and stay. Rows that
early stopping kept out of training get weight 0. They are known if ``random_state`` is a number.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fairij.data.hashing import state_fingerprint
from fairij.models.base import Held
from fairij.models.sklearn.estimators import split_off
from fairij.models.trees.ensemble import LibraryDefaults, TreeEditable, Trees
from fairij.models.trees.hist_gradient_boosting import known_loss


def editable(model: Any, **options: Any) -> TreeEditable:
    return TreeEditable(GradientBoosting(model), **options)


class GradientBoosting(LibraryDefaults):
    """A fitted gradient boosting model, read from its trees."""

    dtype = torch.float64

    def __init__(self, model: Any) -> None:
        check_is_fitted(model)
        self._model = model
        self.classes: NDArray[Any] | None = getattr(model, "classes_", None)
        n_outputs = int(model.estimators_.shape[1])
        self.loss_name = known_loss(model, n_outputs)
        trees = [stage.tree_ for stage in model.estimators_.ravel()]
        self._leaf_nodes = [np.flatnonzero(tree.children_left == -1) for tree in trees]
        values = [
            tree.value[nodes, 0, 0] for tree, nodes in zip(trees, self._leaf_nodes, strict=True)
        ]
        kept = [(t.children_left, t.children_right, t.feature, t.threshold) for t in trees]
        self.trees = Trees(
            values=np.concatenate(values).astype(np.float64),
            sizes=np.array([len(v) for v in values]),
            outputs=np.arange(len(trees)) % n_outputs,
            weights=np.full(len(trees), float(model.learning_rate)),
            n_outputs=n_outputs,
            structure=state_fingerprint(kept, float(model.learning_rate), model.init_).encode(),
        )

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        nodes = self._model.apply(_unnamed(X)).reshape(len(self.base(X)), -1).astype(np.int32)
        for tree, leaf_nodes in enumerate(self._leaf_nodes):
            nodes[:, tree] = np.searchsorted(leaf_nodes, nodes[:, tree])
        return nodes

    def base(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self._model._raw_predict_init(_unnamed(X)), np.float64)

    def native(self, X: Any) -> NDArray[Any]:
        if self.classes is None:
            return np.asarray(self._model.predict(X))
        return np.asarray(self._model.decision_function(X))

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        return weight

    def held_back(self, y: NDArray[Any]) -> Held:
        model = self._model
        if model.n_iter_no_change is None:
            return None
        drawn, share = int(model.estimators_[0, 0].tree_.n_node_samples[0]), model.subsample
        return split_off(
            y,
            lambda n: max(1, int(share * n)) == drawn,
            fraction=model.validation_fraction,
            seed=model.random_state,
            stratify=self.classes is not None,
        )

    def replaced(self, values: NDArray[np.float64]) -> Any:
        clone = copy.deepcopy(self._model)
        start = 0
        for stage, nodes in zip(clone.estimators_.ravel(), self._leaf_nodes, strict=True):
            stage.tree_.value[nodes, 0, 0] = values[start : start + len(nodes)]
            start += len(nodes)
        return clone


def _unnamed(X: Any) -> Any:
    """Rows without column names: the inner trees have none and would warn."""
    return X.to_numpy() if hasattr(X, "to_numpy") else X
