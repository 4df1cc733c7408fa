"""scikit-learn's gradient boosting, in its histogram and its older form.

The first predictions, and the learning rate of the older form, are not part of the trees and stay.
With early stopping all trees predict. The rows that it kept out of training get weight 0. They are
known if ``random_state`` is a number.
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
from fairij.errors import InvalidInputError
from fairij.models.base import Held
from fairij.models.sklearn.estimators import class_weighted, split_off, usual_loss
from fairij.models.trees.ensemble import MONOTONE, TreeEditable, Trees, numbered

STRUCTURE = (
    *("feature_idx", "num_threshold", "missing_go_to_left", "left", "right"),
    *("is_leaf", "is_categorical", "bitset_idx"),
)


class Boosting(TreeEditable):
    """What both forms share."""

    def __init__(self, model: Any, trees: Trees, **options: Any) -> None:
        super().__init__(trees, **options)
        self._model = model
        self.classes = getattr(model, "classes_", None)
        expected = "squared_error" if self.classes is None else "log_loss"
        if model.loss != expected:
            raise InvalidInputError(
                f"The `loss` of a {type(model).__name__} must be {expected!r}, got {model.loss!r}, "
                f"which fairij does not support: train it with {expected!r}."
            )
        self.loss_name = usual_loss(self.classes, trees.n_outputs)

    def native(self, X: Any) -> NDArray[Any]:
        model = self._model
        return np.asarray((model.predict if self.classes is None else model.decision_function)(X))


class HistGradient(Boosting):
    """`HistGradientBoostingClassifier` or `HistGradientBoostingRegressor`, by tables of nodes."""

    def __init__(self, model: Any, **options: Any) -> None:
        check_is_fitted(model)
        n_outputs, predictors = int(model.n_trees_per_iteration_), _predictors(model)
        baseline = np.asarray(model._baseline_prediction).tobytes()
        trees = Trees.of(
            [tree.nodes["value"][tree.nodes["is_leaf"] == 1] for tree in predictors],
            outputs=np.arange(len(predictors)) % n_outputs,
            weights=np.ones(len(predictors)),
            n_outputs=n_outputs,
            structure=b"".join(_structure(tree) for tree in predictors) + baseline,
        )
        super().__init__(model, trees, **options)
        self.caveats = (MONOTONE,) if model.monotonic_cst is not None else ()

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """Predict with each leaf's number instead of its value, as the library has no `apply`."""
        rows = self._model._preprocess_X(X, reset=False)
        bitsets, places = self._model._bin_mapper.make_known_categories_bitsets()
        table = np.empty((len(self.trees.sizes), len(rows)), np.int32)
        for column, tree in zip(table, _predictors(self._model), strict=True):
            counting = copy.copy(tree)
            counting.nodes = _with_values(tree.nodes, np.arange((tree.nodes["is_leaf"] == 1).sum()))
            column[:] = counting.predict(rows, bitsets, places, n_threads=torch.get_num_threads())
        return table.T

    def base(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self._model._baseline_prediction, np.float64).reshape(-1)

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        given = getattr(self._model, "class_weight", None)
        return class_weighted(given, self.classes, y, weight, balance_weights=False)

    def held_back(self, y: NDArray[Any]) -> Held:
        model = self._model
        if not model.do_early_stopping_:
            return None
        rows = int(model._predictors[0][0].nodes["count"][0])
        return split_off(model, y, lambda n: n == rows, model._random_seed)

    def replaced(self, values: NDArray[np.float64]) -> Any:
        clone = copy.deepcopy(self._model)
        for tree, own in zip(_predictors(clone), self.trees.split(values), strict=True):
            tree.nodes = _with_values(tree.nodes, own)
        return clone


def _predictors(model: Any) -> list[Any]:
    return [tree for trees in model._predictors for tree in trees]


def _with_values(nodes: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    nodes = nodes.copy()
    nodes["value"][nodes["is_leaf"] == 1] = values
    return nodes


def _structure(tree: Any) -> bytes:
    parts = [np.ascontiguousarray(tree.nodes[name]) for name in STRUCTURE]
    return b"".join(part.tobytes() for part in [*parts, tree.raw_left_cat_bitsets])


class GradientBoosting(Boosting):
    """`GradientBoostingClassifier` or `GradientBoostingRegressor`, read from its trees."""

    def __init__(self, model: Any, **options: Any) -> None:
        check_is_fitted(model)
        n_outputs, rate = int(model.estimators_.shape[1]), float(model.learning_rate)
        trees = [stage.tree_ for stage in model.estimators_.ravel()]
        self._leaf_nodes = [np.flatnonzero(tree.children_left == -1) for tree in trees]
        kept = [(t.children_left, t.children_right, t.feature, t.threshold) for t in trees]
        found = Trees.of(
            [tree.value[at, 0, 0] for tree, at in zip(trees, self._leaf_nodes, strict=True)],
            outputs=np.arange(len(trees)) % n_outputs,
            weights=np.full(len(trees), rate),
            n_outputs=n_outputs,
            structure=state_fingerprint(kept, rate, model.init_).encode(),
        )
        super().__init__(model, found, **options)

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        nodes = self._model.apply(_unnamed(X)).reshape(len(self.base(X)), -1)
        return numbered(nodes, self._leaf_nodes)

    def base(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self._model._raw_predict_init(_unnamed(X)), np.float64)

    def held_back(self, y: NDArray[Any]) -> Held:
        model = self._model
        if model.n_iter_no_change is None:
            return None
        drawn, share = int(model.estimators_[0, 0].tree_.n_node_samples[0]), model.subsample
        return split_off(model, y, lambda n: max(1, int(share * n)) == drawn, model.random_state)

    def replaced(self, values: NDArray[np.float64]) -> Any:
        clone = copy.deepcopy(self._model)
        stages, parts = clone.estimators_.ravel(), self.trees.split(values)
        for stage, nodes, own in zip(stages, self._leaf_nodes, parts, strict=True):
            stage.tree_.value[nodes, 0, 0] = own
        return clone


def _unnamed(X: Any) -> Any:
    """Rows without column names: the inner trees have none and would warn."""
    return X.to_numpy() if hasattr(X, "to_numpy") else X
