"""LightGBM: `Booster`, `LGBMClassifier`, `LGBMRegressor`.

A forest (``boosting="rf"``) predicts by the mean of its trees, each of which holds log-odds (or
numbers) of its own. What is edited is the loss of that mean, in `blocks` of leaves.

The leaves include the bias of ``boost_from_average``, the learning rate and dart's weights. Only
the trees up to ``best_iteration`` predict, so only those are edited.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from fairij.data.forked import is_forked
from fairij.data.rows import Columns
from fairij.errors import InvalidInputError
from fairij.models.sklearn.estimators import class_weighted, times
from fairij.models.trees.blocks import Blocks, InBlocks, ancestors, joined_blocks
from fairij.models.trees.ensemble import APART, MONOTONE, TreeEditable, Trees, unknown_objective

LOSSES = {
    "binary": "binary_cross_entropy",
    "cross_entropy": "binary_cross_entropy",
    "multiclass": "softmax_cross_entropy",
    "regression": "squared_error",
}
STRUCTURE = (
    *("num_leaves", "num_cat", "split_feature", "threshold", "decision_type"),
    *("left_child", "right_child", "cat_boundaries", "cat_threshold"),
)


SIDES, KINDS = ("left", "right"), ("internal", "leaf")


class LightGBM(TreeEditable):
    """A fitted LightGBM model, read from its text form."""

    def __init__(self, model: Any, **options: Any) -> None:
        self._model, self._booster = model, _booster(model)
        if is_forked():  # before it writes its text, with as many threads as it last ran
            self._booster.predict(np.zeros((1, self._booster.num_feature())), num_threads=1)
        text = self._booster.model_to_string()  # up to best_iteration, as predict does
        text, _, rest = text.partition("\nend of trees")
        head, *blocks = text.split("\nTree=")
        header = _fields(head)
        self._settings = dict(re.findall(r"^\[(\w+): (.*)\]$", rest, re.MULTILINE))
        objective, slope = _objective(header.get("objective", "custom"))
        self.loss_name = LOSSES[objective]
        self.classes = getattr(model, "classes_", None)
        monotone = re.search("[1-9]", self._settings.get("monotone_constraints", ""))
        self._fields = [_fields(block) for block in blocks]
        self.is_forest = "average_output" in header
        self.caveats = (*(APART,) * self.is_forest, *(MONOTONE,) * bool(monotone))
        super().__init__(_trees(self._fields, header, slope), **options)

    def in_blocks(self) -> InBlocks:
        """A forest, with blocks of leaves."""
        of = torch.from_numpy(joined_blocks([_blocks(tree) for tree in self._fields]))
        trees = len(self._fields) / self.trees.n_outputs
        return InBlocks(self, Blocks(of, torch.full((int(of.max()) + 1,), trees).double()))

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        self._check_names(X)
        return np.asarray(self._model.predict(X, pred_leaf=True, **_threads()))

    def _check_names(self, X: Any) -> None:
        """Raise unless named columns are the model's: LightGBM itself only uses their positions."""
        known = tuple(self._booster.feature_name())
        given = tuple(str(name).replace(" ", "_") for name in getattr(X, "columns", ()))
        if given and not all(re.fullmatch(r"Column_\d+", name) for name in known):
            Columns((len(known),), known).check("X", pd.DataFrame(columns=given))

    def base(self, X: Any) -> NDArray[np.float64]:
        return np.zeros(1)

    def native(self, X: Any) -> NDArray[Any]:
        # a sum, even for a forest
        raw = np.asarray(self._model.predict(X, raw_score=True, **_threads()))
        return raw * self.trees.weights[0]

    def row_weights(self, y: Tensor, weight: Tensor | None) -> Tensor | None:
        if self.loss_name == "squared_error":
            return weight
        given = getattr(self._model, "class_weight", None)
        weight = class_weighted(given, self.classes, y, weight, balance_weights=False)
        negative, positive = self._label_weights(y)
        if negative == positive or self.loss_name != "binary_cross_entropy":
            return weight
        return times(weight, torch.where(y.cpu() == 1, positive, negative))

    def _label_weights(self, y: Tensor) -> tuple[float, float]:
        """The factors that `is_unbalance` and `scale_pos_weight` give to labels 0 and 1."""
        ones = int((y == 1).sum())
        ratio = (len(y) - ones) / max(ones, 1)
        negative, positive = 1.0, float(self._settings.get("scale_pos_weight", 1))
        if self._settings.get("is_unbalance", "0") == "1" and ratio > 0:
            negative, positive = max(1.0, 1 / ratio), positive * max(1.0, ratio)
        return negative, positive

    def replaced(self, values: NDArray[np.float64]) -> Any:
        booster = lightgbm.Booster.__new__(lightgbm.Booster)
        # a copy as by pickling: `copy.deepcopy` would forget ``best_iteration``
        booster.__setstate__(self._booster.__getstate__())
        for tree, own in enumerate(self.trees.split(values)):
            for leaf, value in enumerate(own.tolist()):
                booster.set_leaf_output(tree, leaf, value)
        return copy.deepcopy(self._model, {id(self._booster): booster})


def editable(model: Any, **options: Any) -> LightGBM | InBlocks:
    """Boosted trees as they are, a forest in blocks of leaves."""
    found = LightGBM(model, **options)
    return found.in_blocks() if found.is_forest else found


def _blocks(tree: dict[str, str]) -> NDArray[np.int64]:
    """The block of each leaf. In the file a leaf k is the child -k - 1."""
    left, right = (np.array(tree.get(f"{side}_child", "").split(), int) for side in SIDES)
    inner, leaves = len(left), int(tree["num_leaves"])
    counts = [np.array(tree.get(f"{kind}_count", "").split(), float) for kind in KINDS]
    if not inner or len(counts[1]) != leaves:  # the file need not have counts
        return np.zeros(leaves, np.int64)
    ends = np.full(leaves, -1)
    lefts, rights = (
        np.append(np.where(side < 0, inner - side - 1, side), ends) for side in (left, right)
    )
    return ancestors(lefts, rights, np.concatenate(counts))[inner:]


def _threads() -> dict[str, int]:
    """In a forked process one thread, whatever the model asks for."""
    return {"num_threads": 1} if is_forked() else {}


def _booster(model: Any) -> lightgbm.Booster:
    if isinstance(model, lightgbm.Booster):
        return model
    if not isinstance(model, lightgbm.LGBMModel):
        raise InvalidInputError(
            "A LightGBM model must be a Booster, LGBMClassifier or LGBMRegressor, got "
            f"{type(model).__name__}; of a CVBooster pass one of its `boosters`."
        )
    check_is_fitted(model)
    return model.booster_


def _fields(block: str) -> dict[str, str]:
    """The lines ``key=value``; the value may be missing."""
    return {key: value for key, _, value in (line.partition("=") for line in block.split("\n"))}


def _objective(text: str) -> tuple[str, float]:
    """The objective's name, and the factor from raw score to log-odds."""
    name, *options = text.split()
    settings = dict(option.partition(":")[::2] for option in options)
    if name not in LOSSES or "sqrt" in settings:
        raise unknown_objective("LightGBM", LOSSES, f"got {text!r}")
    return name, float(settings.get("sigmoid", 1)) if name == "binary" else 1.0


def _trees(blocks: list[dict[str, str]], header: dict[str, str], slope: float) -> Trees:
    if any(block.get("is_linear", "0") != "0" for block in blocks):
        raise InvalidInputError(
            "Leaves must be constants, but this model was trained with linear_tree=True and has "
            "linear models as leaves: train it with linear_tree=False."
        )
    per_round = int(header["num_tree_per_iteration"])
    kept = [header.get("feature_names", ""), header.get("objective", ""), str(per_round)]
    kept += [f"{key}={block.get(key)}" for block in blocks for key in STRUCTURE]
    averaged = "average_output" in header  # a random forest
    return Trees.of(
        [np.array(block["leaf_value"].split(), np.float64) for block in blocks],
        outputs=np.arange(len(blocks)) % per_round,
        weights=np.full(len(blocks), slope * (per_round / len(blocks) if averaged else 1.0)),
        n_outputs=per_round,
        structure="\n".join(kept).encode(),
    )
