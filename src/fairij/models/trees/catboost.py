"""CatBoost: `CatBoostClassifier`, `CatBoostRegressor`, `CatBoost`.

A leaf holds one number per output, which includes the learning rate. So a tree of C outputs is read
as C trees with the same leaves. Scale and bias are no part of the trees and stay. After early
stopping CatBoost itself cuts off the trees that do not predict.

``l2_leaf_reg`` is no part of the objective. It shortens each Newton step of a leaf, and with many
``leaf_estimation_iterations`` a leaf reaches the minimum of the plain loss.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import catboost
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.forked import is_forked
from fairij.errors import InvalidInputError
from fairij.models.base import HELD_BACK
from fairij.models.sklearn.estimators import times
from fairij.models.trees.ensemble import MONOTONE, TreeEditable, Trees, unknown_objective

LOSSES = {
    "Logloss": "binary_cross_entropy",
    "CrossEntropy": "binary_cross_entropy",
    "MultiClass": "softmax_cross_entropy",
    "RMSE": "squared_error",
}
STATISTICS = (
    "The model codes categories by statistics of the label (CTRs). CatBoost trains on statistics "
    "of earlier rows and predicts with those of all rows, so on training rows the trees are used "
    "a little otherwise than they were trained. Dropping a row does not change these statistics."
)
ORDERED = (
    "The model was trained with ordered boosting: each row's gradients came from models that had "
    "not seen it. An edit uses the gradients of the final model."
)
FEATURE = ("flat_feature_index", "borders", "values", "nan_value_treatment")
NOBODY = str(2**64 - 1)  # the hash of an empty place in a table of statistics


class CatBoost(TreeEditable):
    """A fitted CatBoost model, read through its leaf values."""

    def __init__(self, model: Any, **options: Any) -> None:
        _check(model)
        self._model, parts = model, described(model)
        settings = _settings(model)
        self.loss_name = LOSSES[_loss(settings)]
        self.classes = _classes(model) if self.loss_name != "squared_error" else None
        self._class_weights = settings["data_processing_options"].get("class_weights")
        self.caveats = tuple(_caveats(settings, bool(parts["features_info"].get("ctrs"))))
        scale, bias = model.get_scale_and_bias()
        self._bias = np.atleast_1d(np.asarray(bias, np.float64))
        outputs = len(self._bias)
        counts = np.asarray(model.get_tree_leaf_counts(), np.int64)
        values = np.asarray(model.get_leaf_values(), np.float64)
        self._counts = counts
        blocks = np.split(values, np.cumsum(counts * outputs)[:-1]) if len(counts) else []
        trees = Trees.of(
            [column for block in blocks for column in block.reshape(-1, outputs).T],
            outputs=np.tile(np.arange(outputs), len(counts)),
            weights=np.full(len(counts) * outputs, float(scale)),
            n_outputs=outputs,
            structure=_structure(parts),
        )
        super().__init__(trees, **options)

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        found = np.asarray(self._model.calc_leaf_indexes(X, **_threads()))
        return np.repeat(found.reshape(-1, len(self._counts)), len(self._bias), axis=1)

    def base(self, X: Any) -> NDArray[np.float64]:
        return self._bias

    def native(self, X: Any) -> NDArray[Any]:
        predict = self._model.predict
        return np.asarray(predict(X, prediction_type="RawFormulaVal", **_threads()))

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        if not self._class_weights:  # "Balanced" weights stand here as numbers
            return weight
        return times(weight, torch.tensor(self._class_weights).double()[y.long().cpu()])

    def replaced(self, values: NDArray[np.float64]) -> Any:
        columns, outputs = self.trees.split(values), len(self._bias)
        blocks = [
            np.stack(columns[start : start + outputs], 1).reshape(-1)
            for start in range(0, len(columns), outputs)
        ]
        return with_leaf_values(self._model, np.concatenate(blocks))


def with_leaf_values(model: Any, values: NDArray[np.float64]) -> Any:
    """A copy with these leaf values. CatBoost changes them only in models fresh from a file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.cbm"
        model.save_model(str(file))
        fresh = catboost.CatBoost().load_model(str(file))
    fresh.set_leaf_values(values)
    clone = type(model)()
    clone.__setstate__({**model.__getstate__(), "__model": fresh._serialize_model()})
    return clone


def _threads() -> dict[str, int]:
    return {"thread_count": 1} if is_forked() else {}


def _check(model: Any) -> None:
    """Raise for models whose outputs are not the sum of their leaves on plain features."""
    name = type(model).__name__
    if not model.is_fitted():
        raise InvalidInputError(f"The model must be fitted, but this {name} is not: call its fit.")
    if any(kind.__name__ == "CatBoostRanker" for kind in type(model).__mro__):
        raise unknown_objective("CatBoost", LOSSES, "got a CatBoostRanker")
    threshold = model._object._get_binclass_probability_threshold()
    if threshold is not None and abs(threshold - 0.5) > 1e-9:
        raise InvalidInputError(
            f"The model must predict class 1 from a probability of 0.5 on, but this {name} does "
            f"from {threshold:g}: call `set_probability_threshold(0.5)`, edit it, and choose the "
            "threshold of the edited one."
        )
    for kind, places in (
        ("text", model._get_text_feature_indices()),
        ("embedding", model._get_embedding_feature_indices()),
    ):
        if places:
            raise InvalidInputError(
                f"The model must have numeric and categorical features, but this {name} has the "
                f"{kind} feature {model.feature_names_[places[0]]!r}: leave it out, or give what "
                "you need of it as numbers."
            )


def _settings(model: Any) -> dict[str, Any]:
    """The settings of the training, which every CatBoost file has."""
    found: dict[str, Any] = json.loads(model.get_metadata()["params"])
    return found


def _loss(settings: dict[str, Any]) -> str:
    asked = settings["loss_function"]
    options = [
        f"{name}={value}" for name, value in asked.get("params", {}).items() if name[0] != "_"
    ]
    found = ":".join([asked["type"], *options])
    if found not in LOSSES:
        raise unknown_objective("CatBoost", LOSSES, f"got {found!r}")
    return found


def _classes(model: Any) -> NDArray[Any] | None:
    found = np.asarray(model.classes_)
    return found if len(found) else None


def _caveats(settings: dict[str, Any], statistics: bool) -> list[str]:
    monotone = settings.get("tree_learner_options", {}).get("monotone_constraints") or {}
    signs = monotone.values() if isinstance(monotone, dict) else monotone
    facts = {
        MONOTONE: any(signs),
        STATISTICS: statistics,
        ORDERED: settings["boosting_options"].get("boosting_type") == "Ordered",
        HELD_BACK: float(settings["data_processing_options"].get("eval_fraction") or 0) > 0,
    }
    return [text for text, holds in facts.items() if holds]


def described(model: Any) -> dict[str, Any]:
    """The model as its JSON file has it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.json"
        model.save_model(str(file), format="json")
        found: dict[str, Any] = json.loads(file.read_bytes())
        return found


def _structure(parts: dict[str, Any]) -> bytes:
    """What an edit leaves alone, as it is after any way through files."""
    features = parts["features_info"]
    kept = [
        [one.get(name) for name in FEATURE]
        for kind in ("float_features", "categorical_features")
        for one in features.get(kind) or ()
    ]
    tables = [
        [name, table["hash_stride"], table["counter_denominator"], sorted(rows(table))]
        for name, table in sorted((parts.get("ctr_data") or {}).items())
    ]
    splits = [tree["splits"] for tree in parts.get("oblivious_trees", ())]
    splits += [without_leaves(tree) for tree in parts.get("trees", ())]
    whole = [kept, features.get("ctrs") or [], tables, splits, parts["scale_and_bias"]]
    return json.dumps(whole, sort_keys=True).encode()


def rows(table: dict[str, Any]) -> list[list[str]]:
    """The rows of a table of statistics: the hash of a category, and its counts."""
    values, stride = list(map(str, table["hash_map"])), int(table["hash_stride"])
    found = [values[start : start + stride] for start in range(0, len(values), stride)]
    return [row for row in found if row[0] != NOBODY]


def without_leaves(tree: dict[str, Any]) -> Any:
    """The splits of a tree that is no table, from the first on."""
    found, todo = [], [tree]
    while todo:
        node = todo.pop()
        found.append(node.get("split"))
        todo += [node[side] for side in ("left", "right") if side in node]
    return found
