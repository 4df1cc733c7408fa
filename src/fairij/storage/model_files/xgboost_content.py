"""Check an XGBoost file before XGBoost reads it.

XGBoost trusts the lengths and indices in a file. Wrong ones make it read outside its memory and
crash the process. So every length and index is checked here first.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

# markers of Universal Binary JSON: numbers (big-endian), and values without content
NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
CONSTANTS = {"Z": None, "T": True, "F": False}
# the lines of a tree that have one entry per node
BY_NODE = (
    "left_children",
    "right_children",
    "parents",
    "split_indices",
    "split_conditions",
    "default_left",
    "base_weights",
)
BY_NODE_IF_THERE = ("split_type", "loss_changes", "sum_hessian")
BY_CATEGORICAL_NODE = ("categories_segments", "categories_sizes")


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
        value = self._value(self._marker())
        if self._at != len(self._content):
            raise ValueError(f"it has {len(self._content) - self._at} bytes after its end")
        return value

    def _value(self, marker: str) -> Any:
        if marker == "{":
            return self._table()
        if marker == "[":
            return self._list()
        if marker in NUMBERS:
            return self._numbers(marker, 1)[0].item()
        if marker in CONSTANTS:
            return CONSTANTS[marker]
        if marker in "SC":
            return self._text() if marker == "S" else self._bytes(1).decode()
        raise ValueError(f"byte {self._at - 1} is no marker of a value")

    def _table(self) -> dict[str, Any]:
        table: dict[str, Any] = {}
        while not self._ends("}"):
            name = self._text()
            table[name] = self._value(self._marker())
        return table

    def _list(self) -> Any:
        if self._ends("$"):
            marker = self._marker()
            if marker not in NUMBERS:
                raise ValueError(f"byte {self._at - 1} is no marker of a kind of number")
            return self._numbers(marker, self._count())
        if self._peek() == "#":
            return [self._value(self._marker()) for _ in range(self._count())]
        values = []
        while not self._ends("]"):
            values.append(self._value(self._marker()))
        return values

    def _count(self) -> int:
        if not self._ends("#"):
            raise ValueError(f"byte {self._at} must begin the length of a list")
        return self._length()

    def _text(self) -> str:
        return self._bytes(self._length()).decode("utf-8")

    def _length(self) -> int:
        """A length. XGBoost writes it in eight bytes."""
        if not self._ends("L"):
            raise ValueError(f"byte {self._at} must begin a length")
        (length,) = struct.unpack(">q", self._bytes(8))
        return int(length)

    def _numbers(self, marker: str, count: int) -> Any:
        kind = np.dtype(NUMBERS[marker])
        return np.frombuffer(self._bytes(count * kind.itemsize), kind)

    def _marker(self) -> str:
        return self._bytes(1).decode("latin-1")

    def _peek(self) -> str:
        return self._content[self._at : self._at + 1].decode("latin-1")

    def _ends(self, marker: str) -> bool:
        """Whether this marker is next; if so, skip it."""
        found = self._peek() == marker
        self._at += found
        return found

    def _bytes(self, count: int) -> bytes:
        if not 0 <= count <= len(self._content) - self._at:
            raise ValueError("it was cut short or changed: a part is longer than what is there")
        self._at += count
        return self._content[self._at - count : self._at]


def _check_learner(learner: Any) -> None:
    features = int(learner["learner_model_param"]["num_feature"])
    outer = learner["gradient_booster"]
    model = outer.get("gbtree", outer)["model"]
    trees = model.get("trees")
    if trees is None:  # a linear model
        return
    number = int(model["gbtree_model_param"]["num_trees"])
    if len(trees) != number or len(model["tree_info"]) != number:
        raise ValueError(f"it says that it has {number} trees, but holds {len(trees)}")
    if "weight_drop" in outer and len(outer["weight_drop"]) != number:
        raise ValueError("not every tree has its weight")
    _check_rounds(model, number, _outputs(learner["learner_model_param"]))
    _check_encoded(model.get("cats", {}), features)
    for place, tree in enumerate(trees):
        if tree.get("id", place) != place:
            raise ValueError(f"tree {place} is not in its place")
        _check_tree(place, tree, features)


def _outputs(parameters: Any) -> int:
    return max(int(parameters.get(name, 1)) for name in ("num_class", "num_target")) or 1


def _check_rounds(model: Any, trees: int, outputs: int) -> None:
    """Check that each tree adds to an existing output, and that the rounds divide the trees."""
    info = _whole(model["tree_info"])
    if ((info < 0) | (info >= max(outputs, 1))).any():
        raise ValueError("a tree adds to an output that the model does not have")
    if "iteration_indptr" in model:
        rounds = _whole(model["iteration_indptr"])
        if rounds[0] != 0 or rounds[-1] != trees or (np.diff(rounds) < 0).any():
            raise ValueError("its rounds do not divide its trees")


def _check_encoded(cats: Any, features: int) -> None:
    """Check the lists of category names."""
    lists = cats.get("enc", [])
    for names in lists:
        if "offsets" in names:
            _check_ends(_whole(names["offsets"]), len(names["values"]))
    if lists:
        segments, order = _whole(cats["feature_segments"]), _whole(cats["sorted_idx"])
        _check_ends(segments, len(order))
        if len(lists) != features or len(segments) != features + 1:
            raise ValueError("its categories are of another number of features")
        if len(order) and not 0 <= order.min() <= order.max() < len(order):
            raise ValueError("its categories do not fit together")


def _check_ends(ends: Any, length: int) -> None:
    if len(ends) and (ends[0] != 0 or ends[-1] != length or (np.diff(ends) < 0).any()):
        raise ValueError("its categories do not fit together")


def _check_tree(number: int, tree: Any, features: int) -> None:
    if int(tree["tree_param"].get("size_leaf_vector", 1)) > 1:
        raise ValueError(
            "its trees have several values per leaf; train it with multi_strategy="
            "'one_output_per_tree'"
        )
    nodes = int(tree["tree_param"]["num_nodes"])
    for name in (*BY_NODE, *(name for name in BY_NODE_IF_THERE if name in tree)):
        if len(tree[name]) != nodes:
            raise ValueError(
                f"tree {number} has {nodes} nodes, but {len(tree[name])} numbers as its {name}"
            )
    inner = _whole(tree["left_children"]) != -1
    splits = _whole(tree["split_indices"])[inner]
    missing = ((splits < 0) | (splits >= features)).any()
    if missing or not _is_tree(tree, nodes, inner):
        raise ValueError(f"the branches of tree {number} do not make a tree")
    _check_split_categories(number, tree, nodes, inner)


def _is_tree(tree: Any, nodes: int, inner: Any) -> bool:
    """Whether branches lead to existing nodes, and back. Predicting does not check this."""
    left, right, parents = (_whole(tree[name]) for name in BY_NODE[:3])
    children = np.concatenate([left[inner], right[inner]])
    if nodes < 1 or ((right != -1) != inner).any():
        return False
    if ((children < 1) | (children >= nodes)).any():
        return False
    return bool((parents[children] == np.tile(np.flatnonzero(inner), 2)).all())


def _check_split_categories(number: int, tree: Any, nodes: int, inner: Any) -> None:
    marked = np.zeros(nodes, bool)
    if "split_type" in tree:
        marked = (_whole(tree["split_type"]) != 0) & inner
    if "categories_nodes" not in tree:
        fits = not marked.any()
    else:
        at, segments, sizes = (
            _whole(tree[name]) for name in ("categories_nodes", *BY_CATEGORICAL_NODE)
        )
        fits = (
            len(at) == len(segments) == len(sizes)
            and bool((np.diff(at, prepend=-1) > 0).all() and (at < nodes).all())
            and bool(np.isin(np.flatnonzero(marked), at).all())
            and bool((segments >= 0).all() and (sizes >= 0).all())
            and bool((segments + sizes <= len(tree["categories"])).all())
        )
    if not fits:
        raise ValueError(f"the categories of tree {number} do not fit together")


def _whole(values: Any) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found = np.asarray(values)
    if len(found) == 0:
        return np.zeros(0, np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iub":
        raise ValueError("a line that must hold whole numbers holds something else")
    return found.astype(np.int64)
