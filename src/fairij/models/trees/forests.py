"""scikit-learn's trees and forests: decision trees, random forests, extra trees, bagged trees.

Trees are fitted apart, each to its own sample, and their leaves are averaged. In regression a leaf
holds a mean of labels, in classification the share of each class.

The objective of an edit is that of the *averaged* prediction on all training rows, with the leaves
as parameters: squared error for numbers, the Brier score for shares. (Growing by Gini impurity
lowers the Brier score of each tree alone.) A single tree is at its minimum, a forest need not be.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fairij.data.hashing import state_fingerprint
from fairij.errors import InvalidInputError
from fairij.models.sklearn.estimators import class_weighted
from fairij.models.trees.averages import AverageLinearization
from fairij.models.trees.blocks import Blocks, InBlocks, ancestors, joined_blocks
from fairij.models.trees.ensemble import APART, MONOTONE, TreeEditable, Trees, numbered
from fairij.models.trees.leaves import LeafJacobian
from fairij.models.trees.shares import Content, Numbers, Shares

MEANS = ("squared_error", "friedman_mse", "poisson")  # criteria whose leaves hold means


class Forest(TreeEditable):
    """Averaged trees whose leaves hold one number, or the shares of classes."""

    def __init__(self, model: Any, **options: Any) -> None:
        check_is_fitted(model)
        self._model, self._parts = model, _parts(model)
        _check(model, self._parts)
        trees = [part.tree_ for part in self._parts]
        self._leaf_nodes = [np.flatnonzero(tree.children_left == -1) for tree in trees]
        self.classes = getattr(model, "classes_", None)
        values = [tree.value[at, 0, :] for tree, at in zip(trees, self._leaf_nodes, strict=True)]
        kept: list[Any] = [
            (t.children_left, t.children_right, t.feature, t.threshold) for t in trees
        ]
        kept += [getattr(model, "estimators_features_", None), self.classes]
        found = Trees.of(
            [own[:, 0] for own in values],
            outputs=np.zeros(len(trees), np.int64),
            weights=np.ones(len(trees)),
            n_outputs=1,
            structure=state_fingerprint(type(model).__name__, *kept).encode(),
        )
        super().__init__(found, **options)
        several = self.classes is not None and len(self.classes) > 2
        of_classes = "softmax_brier_score" if several else "binary_brier_score"
        self.loss_name = "squared_error" if self.classes is None else of_classes
        monotone = getattr(self._parts[0], "monotonic_cst", None) is not None
        self.caveats = (*(APART,) * (len(trees) > 1), *(MONOTONE,) * monotone)
        self._content: Content = Numbers() if self.classes is None else Shares(len(self.classes))
        self.theta = torch.from_numpy(np.concatenate(values).reshape(-1))

    def in_blocks(self) -> InBlocks:
        """The same with blocks of leaves."""
        trees = [part.tree_ for part in self._parts]
        found, means = [], []
        for tree, leaves in zip(trees, self._leaf_nodes, strict=True):
            rows = tree.weighted_n_node_samples
            own = ancestors(tree.children_left, tree.children_right, rows)[leaves]
            found.append(own)
            means.append(tree.value[np.unique(own), 0, :])
        room = self._content.room(torch.from_numpy(np.concatenate(means)))
        of, columns = torch.from_numpy(joined_blocks(found)), self._content.columns
        places = of[:, None] * columns + torch.arange(columns)
        return InBlocks(self, Blocks(places.reshape(-1), len(trees) * room.reshape(-1)))

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        return numbered(np.asarray(self._nodes(X)), self._leaf_nodes)

    def _nodes(self, X: Any) -> Any:
        model = self._model
        if self._parts[0] is model:
            return model.apply(X)[:, None]
        if not hasattr(model, "estimators_features_"):
            return model.apply(X)
        rows = X.to_numpy() if hasattr(X, "to_numpy") else X
        parts = zip(self._parts, model.estimators_features_, strict=True)
        return np.stack([part.apply(rows[:, features]) for part, features in parts], 1)

    def base(self, X: Any) -> NDArray[np.float64]:
        return np.zeros(1)

    def native(self, X: Any) -> NDArray[Any]:
        model = self._model
        return np.asarray((model.predict if self.classes is None else model.predict_proba)(X))

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        if self.classes is None:
            return weight
        given = getattr(self._model, "class_weight", None)
        if hasattr(self._model, "estimators_features_"):
            given = getattr(self._parts[0], "class_weight", None)
        given = "balanced" if isinstance(given, str) else given  # or of each sample of the rows
        return class_weighted(given, self.classes, y, weight, balance_weights=False)

    def linearize(self, X: Any, *, keep: bool = True) -> Any:
        return self._at(self._read(X)[0], self.theta)

    evaluator = linearize

    def outputs(self, X: Any, theta: Tensor | None = None) -> Tensor:
        at = self.theta if theta is None else theta.to(self.theta)
        return self._at(self._read(X)[0], at).outputs

    def within(self, theta: Tensor) -> Tensor:
        columns = theta.to(self.theta).view(-1, self._content.columns)
        return self._content.nearest(columns).reshape(-1)

    stored = within

    def edited(self, theta: Tensor) -> Any:
        return super().edited(self.stored(theta))

    def replaced(self, values: NDArray[np.float64]) -> Any:
        clone, own = copy.deepcopy(self._model), values.reshape(-1, self._content.columns)
        parts = zip(_parts(clone), self._leaf_nodes, self.trees.split(own), strict=True)
        for part, nodes, leaves in parts:
            part.tree_.value[nodes, 0, :] = leaves
        return clone

    def _summed(self, base: Tensor, jacobian: LeafJacobian) -> Tensor:
        return self._at(jacobian, self.theta).mean

    def _at(self, jacobian: LeafJacobian, theta: Tensor) -> AverageLinearization:
        return AverageLinearization(self._content, jacobian, len(self._parts), theta)


def forest(model: Any, **options: Any) -> InBlocks:
    """A tree or a forest, in blocks of leaves."""
    return Forest(model, **options).in_blocks()


def _parts(model: Any) -> Sequence[Any]:
    """The trees."""
    return model.estimators_ if hasattr(model, "estimators_") else [model]


def _check(model: Any, parts: Sequence[Any]) -> None:
    name, first = type(model).__name__, parts[0]
    reason = None
    if not all(hasattr(part, "tree_") for part in parts):
        reason = (
            f"it is made of {type(first).__name__} models, and only trees that are averaged can be "
            "edited: edit one of them, or bag decision trees"
        )
    elif getattr(first, "n_outputs_", 1) > 1:
        reason = f"it has {first.n_outputs_} targets at once: train one model per target"
    elif not hasattr(model, "classes_") and first.criterion not in MEANS:
        reason = (
            f"its criterion is {first.criterion!r}, and fairij knows the loss of means only: train "
            "it with criterion='squared_error'"
        )
    if reason:
        raise InvalidInputError(f"This {name} cannot be edited: {reason}.")
