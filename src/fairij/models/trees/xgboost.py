"""XGBoost: `Booster`, `XGBClassifier`, `XGBRegressor` and their random forests.

A leaf is a float32 in ``split_conditions`` of the model's JSON form. It includes the learning rate
but not dart's ``weight_drop``. The base score is not part of the trees and stays. A `Booster`
predicts with all its trees, an `XGBModel` with those up to ``best_iteration``.

A random forest is one round of parallel trees, whose leaves are divided by their number. What is
edited is the loss of the mean of their log-odds, in `blocks` of leaves.
"""

from __future__ import annotations

import copy
import json
import math
import re
from typing import Any

import numpy as np
import torch
import xgboost
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fairij.errors import InvalidInputError
from fairij.models.sklearn.estimators import times
from fairij.models.trees.blocks import Blocks, InBlocks, ancestors, joined_blocks
from fairij.models.trees.ensemble import (
    APART,
    MONOTONE,
    TreeEditable,
    Trees,
    numbered,
    unknown_objective,
)

LOSSES = {
    "binary:logistic": "binary_cross_entropy",
    "multi:softprob": "softmax_cross_entropy",
    "multi:softmax": "softmax_cross_entropy",
    "reg:squarederror": "squared_error",
}
STRUCTURE = (
    *("left_children", "right_children", "split_indices", "default_left", "split_type"),
    *("categories", "categories_nodes", "categories_segments"),
)


class XGBoost(TreeEditable):
    """A fitted XGBoost model, read from its JSON form."""

    dtype = torch.float32

    def __init__(self, model: Any, **options: Any) -> None:
        self._model, self._booster = model, _booster(model)
        learner = json.loads(bytes(self._booster.save_raw("json")))["learner"]
        objective = learner["objective"]
        if objective["name"] not in LOSSES:
            raise unknown_objective("XGBoost", LOSSES, f"got {objective['name']!r}")
        self.loss_name = LOSSES[objective["name"]]
        self.classes = getattr(model, "classes_", None)
        # a model from a file does not know its constraints
        asked = re.search(r'"monotone_constraints":"([^"]*)"', self._booster.save_config())
        monotone = bool(asked and re.search("[1-9]", asked[1]))
        self._positive = float(objective.get("reg_loss_param", {}).get("scale_pos_weight", 1))
        self._base = _base(learner, self.loss_name)
        ensemble, weights = _ensemble(learner)
        # how many rounds `predict` uses; 0 means all
        self._rounds = 0 if model is self._booster else int(model._get_iteration_range(None)[1])
        trees = ensemble["trees"][: _count(ensemble, self._rounds)]
        # nodes without children, ascending; some may be pruned and unused
        self._leaf_nodes = [np.flatnonzero(np.array(t["left_children"]) == -1) for t in trees]
        kept = [learner["feature_names"], learner["feature_types"], objective["name"]]
        kept += [[tree.get(key) for key in STRUCTURE] + _thresholds(tree) for tree in trees]
        found = Trees.of(
            [
                np.array(tree["split_conditions"], np.float32)[nodes]
                for tree, nodes in zip(trees, self._leaf_nodes, strict=True)
            ],
            outputs=np.array(ensemble["tree_info"][: len(trees)], np.int64),
            weights=np.ones(len(trees)) if weights is None else weights[: len(trees)],
            n_outputs=max(1, int(learner["learner_model_param"]["num_class"])),
            structure=json.dumps(kept).encode() + self._base.tobytes(),
        )
        super().__init__(found, **options)
        self._trees = trees
        rounds = _count(ensemble, 1)
        parallel = int(ensemble["gbtree_model_param"].get("num_parallel_tree", 1))
        self.is_forest = parallel > 1 and rounds == len(trees)
        self.caveats = (*(APART,) * self.is_forest, *(MONOTONE,) * monotone)

    def in_blocks(self) -> InBlocks:
        """A forest, with blocks of leaves."""
        found = []
        for tree, leaves in zip(self._trees, self._leaf_nodes, strict=True):
            left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
            rows = np.array(tree["sum_hessian"], np.float64)
            found.append(ancestors(left, right, rows)[leaves])
        of = torch.from_numpy(joined_blocks(found))
        unit = 2.0 ** round(math.log2(len(self._trees) / self.trees.n_outputs))
        return InBlocks(self, Blocks(of, torch.ones(int(of.max()) + 1), unit))

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        nodes = self._predict(X, pred_leaf=True, strict_shape=True)
        nodes = nodes.reshape(len(nodes), -1)  # by round, class and parallel tree
        return numbered(nodes, self._leaf_nodes)

    def base(self, X: Any) -> NDArray[np.float64]:
        return self._base

    def native(self, X: Any) -> NDArray[Any]:
        return self._predict(X, output_margin=True)

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        if self.loss_name != "binary_cross_entropy" or self._positive == 1:
            return weight
        return times(weight, torch.where(y.cpu() == 1, self._positive, 1.0))

    def replaced(self, values: NDArray[np.float64]) -> Any:
        raw = json.loads(bytes(self._booster.save_raw("json")))
        ensemble, _ = _ensemble(raw["learner"])
        parts = zip(ensemble["trees"], self._leaf_nodes, self.trees.split(values), strict=False)
        for tree, nodes, own in parts:
            for node, value in zip(nodes, own, strict=True):
                # the shortest text that reads back as this float32
                tree["split_conditions"][node] = float(str(np.float32(value)))
        booster = self._booster.copy()
        booster.load_model(bytearray(json.dumps(raw), "utf-8"))
        return copy.deepcopy(self._model, {id(self._booster): booster})

    def _predict(self, X: Any, **options: Any) -> NDArray[Any]:
        booster, model = self._booster, self._model
        named = hasattr(X, "columns")
        if model is booster:
            types = None if named else booster.feature_types
            settings = {"feature_types": types, "enable_categorical": named}
        else:  # as its own `predict` does
            own = ("missing", "feature_types", "enable_categorical")
            settings = {name: getattr(model, name) for name in own} | {"nthread": model.n_jobs}
        if not named:  # columns without names are matched by position
            settings["feature_names"] = booster.feature_names
        data = xgboost.DMatrix(X, **settings)
        return booster.predict(data, iteration_range=(0, self._rounds), **options)


def editable(model: Any, **options: Any) -> XGBoost | InBlocks:
    """Boosted trees as they are, a forest in blocks of leaves."""
    found = XGBoost(model, **options)
    return found.in_blocks() if found.is_forest else found


def _booster(model: Any) -> xgboost.Booster:
    if isinstance(model, xgboost.Booster):
        return model
    check_is_fitted(model)
    if callable(model.objective):
        raise unknown_objective("XGBoost", LOSSES, "this model was trained with a custom function")
    return model.get_booster()


def _ensemble(learner: dict[str, Any]) -> tuple[dict[str, Any], NDArray[np.float64] | None]:
    """The part with the trees, and dart's weights for them."""
    part = learner["gradient_booster"]
    if part["name"] not in ("gbtree", "dart"):
        raise InvalidInputError(
            f"XGBoost's `booster` must be 'gbtree' or 'dart', got {part['name']!r}, which has no "
            "trees: train a LogisticRegression instead of a linear booster."
        )
    weights = None
    if part["name"] == "dart":
        weights, part = np.array(part["weight_drop"], np.float64), part["gbtree"]
    trees = part["model"]["trees"]
    if any(int(tree["tree_param"].get("size_leaf_vector", 1)) > 1 for tree in trees) or (
        int(learner["learner_model_param"].get("num_target", 1)) > 1
    ):
        raise InvalidInputError(
            "Each leaf must hold one number and the model must have one target, but this model has "
            "vectors: train it with multi_strategy='one_output_per_tree', one model per target."
        )
    return part["model"], weights


def _count(ensemble: dict[str, Any], rounds: int) -> int:
    """How many trees the first ``rounds`` rounds have; 0 means all."""
    if rounds == 0:
        return len(ensemble["trees"])
    places = ensemble.get("iteration_indptr")
    if places:
        return int(places[rounds])
    parallel = int(ensemble["gbtree_model_param"]["num_parallel_tree"])
    return rounds * parallel * (max(ensemble["tree_info"]) + 1)


def _base(learner: dict[str, Any], loss_name: str) -> NDArray[np.float64]:
    """The base score as an output; newer versions store a list, older ones a number."""
    score = np.atleast_1d(np.array(json.loads(learner["learner_model_param"]["base_score"])))
    score = score.astype(np.float32).astype(np.float64)
    return np.log(score / (1 - score)) if loss_name == "binary_cross_entropy" else score


def _thresholds(tree: dict[str, Any]) -> list[float]:
    inner = np.array(tree["left_children"]) != -1
    return np.array(tree["split_conditions"])[inner].tolist()
