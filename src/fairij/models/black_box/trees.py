"""A few small trees, whose leaves are the functions that a correction multiplies.

The trees only say which rows go together. They are grown to tell groups apart, from rows whose
group is known: a gap closes by moving rows of one group and not of the other, so leaves in which
one group is frequent are what a correction needs. Labels take no part, so the leaves cannot
memorise them, and the value of every leaf is found by the edit itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier

from fairij.errors import InvalidInputError
from fairij.models.black_box.columns import Array, Table, dense

LEAF = -1
TREES, DEPTH, FEWEST = 12, 3, 0.01  # of all trees; of a leaf's rows
MOST_ROWS = 20_000  # that trees are grown from
LARGEST = 10_000  # trees or nodes that a file may hold


@dataclass(frozen=True, eq=False)
class Tree:
    """Splits ``x[feature] <= threshold``; children come after their parent, leaves have none."""

    feature: NDArray[np.int64]  # (nodes,); LEAF for a leaf
    threshold: Array
    left: NDArray[np.int64]
    right: NDArray[np.int64]

    @property
    def leaves(self) -> NDArray[np.int64]:
        """The nodes that are leaves."""
        return np.flatnonzero(self.feature == LEAF)

    def leaf_of(self, encoded: Array) -> NDArray[np.int64]:
        """The number of the leaf that each row falls into, ``(N,)``."""
        place = np.zeros(len(encoded), dtype=np.int64)
        inside = np.flatnonzero(self.feature[place] != LEAF)
        while len(inside):
            at = place[inside]
            lower = encoded[inside, self.feature[at]] <= self.threshold[at]
            place[inside] = np.where(lower, self.left[at], self.right[at])
            inside = inside[self.feature[place[inside]] != LEAF]
        return np.searchsorted(self.leaves, place)

    def described(self) -> dict[str, Any]:
        names = ("feature", "threshold", "left", "right")
        return {name: getattr(self, name).tolist() for name in names}

    @classmethod
    def read(cls, stored: Any, features: int) -> Tree:
        """From what `described` gave; raises ValueError if a row could leave it or circle in it."""
        feature, left, right = (_whole(stored[name]) for name in ("feature", "left", "right"))
        threshold = np.array(stored["threshold"], dtype=np.float64)
        size = len(feature)
        if not 0 < size <= LARGEST or {len(left), len(right), len(threshold)} != {size}:
            raise ValueError("a tree must have one entry per node in each list")
        inner, places = feature != LEAF, np.arange(size)
        if not ((feature[inner] >= 0) & (feature[inner] < features)).all():
            raise ValueError(f"a split must be on one of the {features} features")
        for child in (left, right):
            if not ((child > places) & (child < size))[inner].all():
                raise ValueError("the children of a node must come after it, inside the tree")
        children = np.concatenate([left[inner], right[inner]])
        if len(np.unique(children)) != size - 1 or len(children) != size - 1:
            raise ValueError("each node but the first must be the child of one other")
        if not np.isfinite(threshold).all():
            raise ValueError("thresholds must be finite")
        return cls(feature, threshold, left, right)


def _whole(values: Any) -> NDArray[np.int64]:
    known = isinstance(values, list) and all(type(value) is int for value in values)
    if not known or not all(-LARGEST <= value <= LARGEST for value in values):
        raise ValueError("nodes and features must be whole numbers")
    return np.array(values, dtype=np.int64)


def grown(table: Table, X: Any, groups: NDArray[np.int64], seed: int = 0) -> tuple[Tree, ...]:
    """Trees that tell the groups of these rows apart."""
    found = np.unique(groups)
    if len(found) < 2:
        raise InvalidInputError(
            "A correction by trees needs rows of at least two groups to grow them: use "
            "correction='linear'."
        )
    some = np.arange(len(groups))
    if len(some) > MOST_ROWS:
        some = np.sort(np.random.default_rng(seed).choice(some, MOST_ROWS, replace=False))
    encoded = dense(table.encoded(X))
    each = 1 if len(found) == 2 else len(found)  # trees of a round
    model = GradientBoostingClassifier(
        n_estimators=max(1, TREES // each), max_depth=DEPTH, learning_rate=0.3, random_state=seed,
        min_samples_leaf=max(1, int(FEWEST * len(some))),
    )  # fmt: skip
    model.fit(encoded[some], groups[some])
    return tuple(_plain(tree.tree_) for tree in model.estimators_.ravel())


def _plain(tree: Any) -> Tree:
    inner = tree.children_left >= 0
    return Tree(
        np.where(inner, tree.feature, LEAF).astype(np.int64),
        np.where(inner, tree.threshold, 0.0),
        np.where(inner, tree.children_left, 0).astype(np.int64),
        np.where(inner, tree.children_right, 0).astype(np.int64),
    )
