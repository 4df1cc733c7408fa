"""Check an XGBoost file before XGBoost reads it.

XGBoost trusts the lengths and indices in a file, and wrong ones crash the process.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.storage.reading import require

# markers of Universal Binary JSON: numbers (big-endian), and values without content
NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
CONSTANTS = {"Z": None, "T": True, "F": False}
BRANCHES = ("left_children", "right_children", "parents")
# the lines of a tree that have one entry per node
BY_NODE = (*BRANCHES, "split_indices", "split_conditions", "default_left", "base_weights")
BY_NODE_IF_THERE = ("split_type", "loss_changes", "sum_hessian")
BY_CATEGORICAL_NODE = ("categories_nodes", "categories_segments", "categories_sizes")
BAD_CATEGORIES = "its categories do not fit together"


def check_xgboost(path: Path) -> None:
    """Raise unless the file is whole and its parts fit together."""
    content = path.read_bytes()
    model = json.loads(content) if path.suffix.lower() == ".json" else Ubj(content).whole()
    try:
        _check_learner(model["learner"])
    except KeyError as error:
        raise ValueError(f"it has no {error}") from None
    except (TypeError, AttributeError, IndexError, OverflowError):
        raise ValueError("its parts are not of the kinds that XGBoost writes") from None


class Ubj:
    """A reader of Universal Binary JSON that never reads past the end of the content."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def whole(self) -> Any:
        value, rest = self._value(), len(self._content) - self._at
        require(rest == 0, f"it has {rest} bytes after its end")
        return value

    def _value(self) -> Any:
        marker = self._marker()
        if marker == "{":
            return self._table()
        if marker == "[":
            return self._list()
        if marker in NUMBERS:
            return self._numbers(marker, 1)[0].item()
        if marker in CONSTANTS:
            return CONSTANTS[marker]
        require(marker in ("S", "C"), f"byte {self._at - 1} is no marker of a value")
        return self._text() if marker == "S" else self._bytes(1).decode()

    def _table(self) -> dict[str, Any]:
        table: dict[str, Any] = {}
        while not self._skips("}"):
            name = self._text()
            table[name] = self._value()
        return table

    def _list(self) -> Any:
        if self._skips("$"):
            marker = self._marker()
            require(marker in NUMBERS, f"byte {self._at - 1} is no marker of a kind of number")
            require(self._skips("#"), f"byte {self._at} must begin the length of a list")
            return self._numbers(marker, self._length())
        if self._skips("#"):
            return [self._value() for _ in range(self._length())]
        values = []
        while not self._skips("]"):
            values.append(self._value())
        return values

    def _text(self) -> str:
        return self._bytes(self._length()).decode("utf-8")

    def _length(self) -> int:
        """A length. XGBoost writes it in eight bytes."""
        require(self._skips("L"), f"byte {self._at} must begin a length")
        return int.from_bytes(self._bytes(8), "big", signed=True)

    def _numbers(self, marker: str, count: int) -> NDArray[Any]:
        kind = np.dtype(NUMBERS[marker])
        return np.frombuffer(self._bytes(count * kind.itemsize), kind)

    def _marker(self) -> str:
        return self._bytes(1).decode("latin-1")

    def _skips(self, marker: str) -> bool:
        """Whether this marker is next; if so, skip it."""
        found = self._content[self._at : self._at + 1] == marker.encode()
        self._at += found
        return found

    def _bytes(self, count: int) -> bytes:
        if not 0 <= count <= len(self._content) - self._at:
            raise ValueError("it was cut short or changed: a part is longer than what is there")
        self._at += count
        return self._content[self._at - count : self._at]


def _check_learner(learner: Any) -> None:
    parameters = learner["learner_model_param"]
    features = int(parameters["num_feature"])
    outputs = max(1, *(int(parameters.get(name, 1)) for name in ("num_class", "num_target")))
    outer = learner["gradient_booster"]
    model = outer.get("gbtree", outer)["model"]
    trees = model.get("trees")
    if trees is None:  # a linear model
        return
    number, info = int(model["gbtree_model_param"]["num_trees"]), _whole(model["tree_info"])
    problem = f"it says that it has {number} trees, but holds {len(trees)}"
    require(len(trees) == len(info) == number, problem)
    require(len(outer.get("weight_drop", trees)) == number, "not every tree has its weight")
    exists = (info >= 0) & (info < outputs)
    require(bool(exists.all()), "a tree adds to an output that the model does not have")
    if "iteration_indptr" in model:
        divided = _are_ends(_whole(model["iteration_indptr"]), number)
        require(divided, "its rounds do not divide its trees")
    _check_encoded(model.get("cats", {}), features)
    for place, tree in enumerate(trees):
        require(tree.get("id", place) == place, f"tree {place} is not in its place")
        _check_tree(place, tree, features)


def _check_encoded(cats: Any, features: int) -> None:
    """Check the lists of category names."""
    lists = cats.get("enc", [])
    for names in lists:
        if "offsets" in names:
            offsets = _whole(names["offsets"])
            require(not len(offsets) or _are_ends(offsets, len(names["values"])), BAD_CATEGORIES)
    if lists:
        segments, order = _whole(cats["feature_segments"]), _whole(cats["sorted_idx"])
        require(not len(segments) or _are_ends(segments, len(order)), BAD_CATEGORIES)
        known = len(lists) == features and len(segments) == features + 1
        require(known, "its categories are of another number of features")
        exists = (order >= 0) & (order < len(order))
        require(bool(exists.all()), BAD_CATEGORIES)


def _are_ends(ends: NDArray[np.int64], length: int) -> bool:
    """Whether these numbers divide a list of this length into parts."""
    return bool(ends[0] == 0 and ends[-1] == length and (np.diff(ends) >= 0).all())


def _check_tree(number: int, tree: Any, features: int) -> None:
    several = "its trees have several values per leaf; train it with multi_strategy="
    one = int(tree["tree_param"].get("size_leaf_vector", 1)) <= 1
    require(one, f"{several}'one_output_per_tree'")
    nodes = int(tree["tree_param"]["num_nodes"])
    for name in (*BY_NODE, *(name for name in BY_NODE_IF_THERE if name in tree)):
        count = len(tree[name])
        problem = f"tree {number} has {nodes} nodes, but {count} numbers as its {name}"
        require(count == nodes, problem)
    inner = _whole(tree["left_children"]) != -1
    splits = _whole(tree["split_indices"])[inner]
    exists = bool(((splits >= 0) & (splits < features)).all())
    is_tree = exists and _is_tree(tree, nodes, inner)
    require(is_tree, f"the branches of tree {number} do not make a tree")
    fits = _categories_fit(tree, nodes, inner)
    require(fits, f"the categories of tree {number} do not fit together")


def _is_tree(tree: Any, nodes: int, inner: NDArray[np.bool_]) -> bool:
    """Whether branches lead to existing nodes, and back. Predicting does not check this."""
    left, right, parents = (_whole(tree[name]) for name in BRANCHES)
    children = np.concatenate([left[inner], right[inner]])
    leads_out = ((children < 1) | (children >= nodes)).any()
    if nodes < 1 or leads_out or ((right != -1) != inner).any():
        return False
    return bool((parents[children] == np.tile(np.flatnonzero(inner), 2)).all())


def _categories_fit(tree: Any, nodes: int, inner: NDArray[np.bool_]) -> bool:
    marked = np.flatnonzero(inner & (_whole(tree.get("split_type", [0] * nodes)) != 0))
    if "categories_nodes" not in tree:
        return len(marked) == 0
    at, segments, sizes = (_whole(tree[name]) for name in BY_CATEGORICAL_NODE)
    if not len(at) == len(segments) == len(sizes):
        return False
    rising = (np.diff(at, prepend=-1) > 0).all() and (at < nodes).all()
    inside = (segments >= 0) & (sizes >= 0) & (segments + sizes <= len(tree["categories"]))
    return bool(rising and np.isin(marked, at).all() and inside.all())


def _whole(values: Any) -> NDArray[np.int64]:
    found = np.asarray(values)
    numbers = len(found) == 0 or (found.ndim == 1 and found.dtype.kind in "iub")
    require(numbers, "a line that must hold whole numbers holds something else")
    return found.astype(np.int64)
