"""scikit-learn's `HistGradientBoostingClassifier` and `HistGradientBoostingRegressor`.

The leaves include the learning rate. The baseline is not part of the trees and stays. With early
stopping all trees predict. The rows that it kept out of training (a tenth; by default above 10,000
rows) get weight 0.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fairij.errors import InvalidInputError
from fairij.models.base import Held
from fairij.models.sklearn.estimators import class_weighted, split_off
from fairij.models.trees.ensemble import MONOTONE, LibraryDefaults, TreeEditable, Trees

STRUCTURE = (
    "feature_idx",
    "num_threshold",
    "missing_go_to_left",
    "left",
    "right",
    "is_leaf",
    "is_categorical",
    "bitset_idx",
)


def editable(model: Any, **options: Any) -> TreeEditable:
    return TreeEditable(HistGradient(model), **options)


class HistGradient(LibraryDefaults):
    """A fitted histogram gradient boosting model, read from its tables of nodes."""

    dtype = torch.float64

    def __init__(self, model: Any) -> None:
        check_is_fitted(model)
        self._model = model
        self.classes: NDArray[Any] | None = getattr(model, "classes_", None)
        n_outputs = int(model.n_trees_per_iteration_)
        self.loss_name = known_loss(model, n_outputs)
        predictors = [tree for trees in model._predictors for tree in trees]
        values = [tree.nodes["value"][tree.nodes["is_leaf"] == 1] for tree in predictors]
        if not predictors:
            raise InvalidInputError(
                "The model must have at least one tree, got none: train it for at least one round."
            )
        self.trees = Trees(
            values=np.concatenate(values).astype(np.float64),
            sizes=np.array([len(v) for v in values]),
            outputs=np.arange(len(values)) % n_outputs,
            weights=np.ones(len(values)),
            n_outputs=n_outputs,
            structure=b"".join(_structure(tree) for tree in predictors)
            + np.asarray(model._baseline_prediction).tobytes(),
        )

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """Predict with each leaf's number instead of its value, as the library has no `apply`."""
        model = self._model
        rows = model._preprocess_X(X, reset=False)
        bitsets, places = model._bin_mapper.make_known_categories_bitsets()
        table = np.empty((len(self.trees.sizes), len(rows)), np.int32)
        flat = (tree for trees in model._predictors for tree in trees)
        for column, tree in zip(table, flat, strict=True):
            numbered = copy.copy(tree)
            numbered.nodes = _with_values(tree.nodes, np.arange((tree.nodes["is_leaf"] == 1).sum()))
            column[:] = numbered.predict(rows, bitsets, places, n_threads=torch.get_num_threads())
        return table.T

    def base(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self._model._baseline_prediction, np.float64).reshape(-1)

    def native(self, X: Any) -> NDArray[Any]:
        if self.classes is None:
            return np.asarray(self._model.predict(X))
        return np.asarray(self._model.decision_function(X))

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        given = getattr(self._model, "class_weight", None)
        return class_weighted(given, self.classes, y, weight, balance_weights=False)

    def held_back(self, y: NDArray[Any]) -> Held:
        model = self._model
        if not model.do_early_stopping_:
            return None
        rows = int(model._predictors[0][0].nodes["count"][0])
        return split_off(
            y,
            lambda n: n == rows,
            fraction=model.validation_fraction,
            seed=model._random_seed,
            stratify=self.classes is not None,
        )

    @property
    def caveats(self) -> tuple[str, ...]:  # type: ignore[override]
        return (MONOTONE,) if self._model.monotonic_cst is not None else ()

    def replaced(self, values: NDArray[np.float64]) -> Any:
        clone = copy.deepcopy(self._model)
        start = 0
        for tree in (tree for trees in clone._predictors for tree in trees):
            stop = start + int((tree.nodes["is_leaf"] == 1).sum())
            tree.nodes = _with_values(tree.nodes, values[start:stop])
            start = stop
        return clone


def known_loss(model: Any, n_outputs: int) -> str:
    """The engine's name for the loss of a scikit-learn model with ``n_outputs`` trees per round."""
    is_classifier = hasattr(model, "classes_")
    expected = "log_loss" if is_classifier else "squared_error"
    if model.loss != expected:
        raise InvalidInputError(
            f"The `loss` of a {type(model).__name__} must be {expected!r}, got {model.loss!r}, "
            f"which fairij does not support: train it with {expected!r}."
        )
    if not is_classifier:
        return "squared_error"
    return "binary_cross_entropy" if n_outputs == 1 else "softmax_cross_entropy"


def _with_values(nodes: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    nodes = nodes.copy()
    nodes["value"][nodes["is_leaf"] == 1] = values
    return nodes


def _structure(tree: Any) -> bytes:
    parts = [np.ascontiguousarray(tree.nodes[name]) for name in STRUCTURE]
    return b"".join(part.tobytes() for part in [*parts, tree.raw_left_cat_bitsets])
