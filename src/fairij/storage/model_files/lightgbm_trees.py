"""The numbers in LightGBM's trees: each is one, each list has its length, each index leads inside.

All trees are checked together, as one look at each line of each tree would take longer than
LightGBM takes to read them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairij.storage.reading import require

Fields = dict[str, str]
Whole = NDArray[np.int64]

NEEDED = ("split_feature", "threshold", "decision_type", "left_child", "right_child")
BY_SPLIT = (*NEEDED, "split_gain", "internal_value", "internal_weight", "internal_count")
BY_LEAF = ("leaf_value", "leaf_weight", "leaf_count")
# a number as LightGBM writes it; one or more of them
NUMBERS = re.compile(
    r"(?:[-+]?(?:\d{1,40}(?:\.\d{0,60})?(?:[eE][-+]?\d{1,4})?|inf|nan)(?: |\Z))*+(?<! )",
    re.ASCII,
)
WHOLE = re.compile(r"(?:-?\d{1,10}(?: |\Z))*+(?<! )", re.ASCII)
CUT = "it was cut short or changed"
LARGEST_KIND = 11  # of a split: 1 categorical, 2 missing values go left, 4 and 8 what is missing
DEEPEST = 10_000  # levels of a tree; LightGBM goes down some of its ways by recursion


def check_trees(trees: list[Fields], features: int) -> None:
    """Raise unless all trees are whole."""
    leaves, categories = (_one_each(trees, name) for name in ("num_leaves", "num_cat"))
    require(bool((leaves >= 1).all()), f"tree {_first(leaves < 1)} has no leaves")
    require(not _one_each(trees, "is_linear").any(), "its leaves are linear models")
    _check_lengths(trees, leaves)
    larger = [(number, tree) for number, tree in enumerate(trees) if leaves[number] > 1]
    if larger:
        of_splits = np.repeat([number for number, _ in larger], leaves[leaves > 1] - 1)
        split, kind, left, right = (
            whole([tree[name] for _, tree in larger], name)
            for name in ("split_feature", "decision_type", "left_child", "right_child")
        )
        _each(
            (split >= 0) & (split < features),
            of_splits,
            "tree {} splits on a feature that the model does not have",
        )
        fits = (kind >= 0) & (kind <= LARGEST_KIND)
        _each(fits, of_splits, "a decision_type of tree {} is not possible")
        _check_branches(left, right, leaves)
        _check_kinds(larger, kind, of_splits)
    for number in np.flatnonzero(categories):
        divided = _categories_fit(trees[number], int(categories[number]))
        require(divided, f"the categories of tree {number} do not fit together")


def whole(values: Sequence[str], name: str) -> Whole:
    """All the whole numbers of some lines."""
    text = " ".join(filter(None, values))
    require(WHOLE.fullmatch(text) is not None, f"its {name} must be whole numbers")
    found = np.array(text.split(), dtype=np.int64)
    inside = len(found) == 0 or (found.min() >= -(2**31) and found.max() < 2**32)
    require(inside, f"a number in its {name} is too large")
    return found


def _one_each(trees: list[Fields], name: str) -> Whole:
    """One whole number per tree."""
    values = [tree.get(name, "0") for tree in trees]
    found = whole(values, name)
    require(len(found) == len(trees) and " " not in "".join(values), f"a tree has no one {name}")
    return found


def _check_lengths(trees: list[Fields], leaves: Whole) -> None:
    """Raise unless every list holds numbers, as many as its tree has leaves or splits."""
    for name in (*BY_LEAF, *BY_SPLIT, "shrinkage", "cat_boundaries", "cat_threshold"):
        values = [tree.get(name, "") for tree in trees]
        if not NUMBERS.fullmatch(" ".join(filter(None, values))):
            number = next(n for n, value in enumerate(values) if not NUMBERS.fullmatch(value))
            word = next(word for word in values[number].split(" ") if not _is_number(word))
            raise ValueError(f"the {name} of tree {number} holds {word[:20]!r}, not a number")
        if name in BY_LEAF or name in BY_SPLIT:
            counts = np.array([value.count(" ") + (value != "") for value in values])
            given = np.array([name in tree for tree in trees])
            must = (leaves > 1) if name in NEEDED else np.full(len(leaves), name == "leaf_value")
            right = counts == leaves - (name in BY_SPLIT)
            wrong = ((given | must) & ~right) & (must | (leaves > 1) | (counts > 0))
            number = _first(wrong)
            if wrong.any():
                raise ValueError(
                    f"tree {number} has {leaves[number]} leaves, but {counts[number]} numbers as "
                    f"its {name}"
                )


def _is_number(word: str) -> bool:
    return word != "" and NUMBERS.fullmatch(word) is not None


def _check_branches(left: Whole, right: Whole, leaves: Whole) -> None:
    """Raise unless every node but the first, and every leaf, is the child of one earlier node."""
    numbers = np.flatnonzero(leaves > 1)
    sizes = leaves[numbers] - 1  # nodes
    first_node, first_leaf = np.cumsum(sizes) - sizes, np.cumsum(sizes + 1) - sizes - 1
    of, node = np.repeat(np.arange(len(sizes)), sizes), np.arange(sizes.sum())
    broken = "the branches of tree {} do not make a tree"
    parents = np.zeros(len(node), np.int64)
    met_nodes, met_leaves = np.zeros(len(node), np.int64), np.zeros(len(node) + len(sizes), int)
    for child in (left, right):
        later = (child > node - first_node[of]) & (child < sizes[of])
        _each(later | ((child < 0) & (~child <= sizes[of])), numbers[of], broken)
        inner, outer = child >= 0, child < 0
        places = first_node[of[inner]] + child[inner]
        parents[places] = node[inner]
        met_nodes += np.bincount(places, minlength=len(met_nodes))
        met_leaves += np.bincount(first_leaf[of[outer]] + ~child[outer], minlength=len(met_leaves))
    met_nodes[first_node] += 1  # the first is nobody's child
    _each(met_nodes == 1, numbers[of], broken)
    _each(met_leaves == 1, np.repeat(numbers, sizes + 1), broken)
    for place in np.flatnonzero(sizes > DEEPEST):
        start, levels = first_node[place], np.zeros(sizes[place], np.int64)
        for one in range(1, sizes[place]):
            levels[one] = levels[parents[start + one] - start] + 1
        require(levels.max() <= DEEPEST, f"tree {numbers[place]} has more than {DEEPEST} levels")


def _check_kinds(larger: list[tuple[int, Fields]], kind: Whole, of: Whole) -> None:
    """Raise unless every categorical split names one of its tree's lists of categories."""
    if not (kind & 1).any():
        return
    words = " ".join(tree["threshold"] for _, tree in larger).split(" ")
    marked = np.flatnonzero(kind & 1)
    used = np.array([words[place] for place in marked], np.float64)
    lists = {number: int(tree.get("num_cat", "0")) for number, tree in larger}
    most = np.array([lists[int(number)] for number in of[marked]])
    fits = (used >= 0) & (used < most) & (used == np.floor(used))
    _each(fits, of[marked], "the categories of tree {} do not fit together")


def _categories_fit(tree: Fields, categories: int) -> bool:
    """Whether the ends of the lists of categories divide the list of bits."""
    bounds = whole([tree["cat_boundaries"]], "cat_boundaries")
    bits = whole([tree["cat_threshold"]], "cat_threshold")
    return bool(
        len(bounds) == categories + 1
        and bounds[0] == 0
        and (np.diff(bounds) > 0).all()
        and bounds[-1] == len(bits)
        and (bits >= 0).all()
    )


def _each(fits: NDArray[np.bool_], number: Whole, problem: str) -> None:
    """Raise unless all fit; the message names the tree."""
    if not fits.all():
        raise ValueError(problem.format(int(number[_first(~fits)])))


def _first(wrong: NDArray[np.bool_]) -> int:
    return int(np.argmax(wrong))
