"""XGBoost's trees: lists of one length per tree, and branches that lead down to every node.

All trees are checked together and written again, list by list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.storage.model_files.ubj import MARKERS, array_bytes, to_ubj
from fairij.storage.reading import require

Whole = NDArray[np.int64]
# the lists with one entry per node, and how they are stored
NODES: dict[str, str] = {
    **dict.fromkeys(("left_children", "right_children", "parents", "split_indices"), ">i4"),
    **dict.fromkeys(("split_conditions", "base_weights", "loss_changes", "sum_hessian"), ">f4"),
    **dict.fromkeys(("default_left", "split_type"), ">u1"),
}
# the lists about splits by category
CATEGORIES: dict[str, str] = {
    **dict.fromkeys(("categories", "categories_nodes"), ">i4"),
    **dict.fromkeys(("categories_segments", "categories_sizes"), ">i8"),
}
SINCE_CATEGORIES = {"split_type", *CATEGORIES}  # earlier versions do not write them
PARAMETERS = ("num_deleted", "num_feature", "num_nodes", "size_leaf_vector")
NOBODY = 2**31 - 1  # the parent of the first node
DEEPEST = 10_000  # levels of a tree; XGBoost goes down some of its ways by recursion
LARGEST_CATEGORY = 2**24  # as XGBoost has it
LEAST_BITS = 2**26  # bytes that sets of categories may take, however small the file is
SEVERAL = (
    "its trees have several values per leaf; train it with multi_strategy='one_output_per_tree'"
)


@dataclass(frozen=True)
class Sets:
    """The sets of categories of a tree."""

    taken: int = 0  # bytes in memory
    lists: tuple[bytes, ...] = (b"", b"", b"", b"")  # as stored


def checked_trees(trees: Any, features: int, size: int) -> list[bytes]:
    """The trees of a file of ``size`` bytes as UBJ. Raises ValueError or KeyError."""
    for number, tree in enumerate(trees):
        _check_names(number, tree)
    nodes = _parameter(trees, "num_nodes", 1, 2**31)
    leaf_size = [tree["tree_param"].get("size_leaf_vector", "1") for tree in trees]
    require(set(leaf_size) <= {"0", "1"}, SEVERAL)
    deleted = _parameter(trees, "num_deleted", 0, 2**31)
    known = _parameter(trees, "num_feature", 0, 2**31)
    require(bool(np.isin(known, (0, features)).all()), "its trees are of other features")
    columns = {name: _column(trees, name, kind, nodes) for name, kind in NODES.items()}
    _check_nodes(columns, nodes, features)
    sets = _all_categories(trees, columns, nodes)
    taken = sum(one.taken for one in sets)
    most = max(LEAST_BITS, 64 * size)
    require(taken <= most, f"its sets of categories take {taken} bytes, more than {most}")
    parameters = [
        dict(zip(PARAMETERS, (str(d), str(features), str(n), "1"), strict=True))
        for d, n in zip(deleted, nodes, strict=True)
    ]
    return _written(columns, nodes, sets, parameters)


def whole(values: Any) -> Whole:
    """A list or array of whole numbers."""
    found = np.asarray(values) if isinstance(values, (list, np.ndarray)) else np.zeros((1, 1))
    numbers = found.ndim == 1 and (len(found) == 0 or found.dtype.kind in "iub")
    require(numbers, "a line that must hold whole numbers holds something else")
    return found.astype(np.int64)


def number_in(text: Any, least: int, most: int, name: str) -> int:
    """A whole number that is written as text."""
    plain = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 12
    found = int(text) if plain else -1
    require(least <= found < most, f"its {name} must be from {least} to {most - 1}, got {text!r}")
    return found


def _check_names(number: int, tree: Any) -> None:
    require(isinstance(tree, dict), f"tree {number} is no table")
    known = {*NODES, *CATEGORIES, "id", "tree_param"}
    for name in tree.keys() - known:
        raise ValueError(f"tree {number} has the unknown part {name[:30]!r}")
    for name in sorted(known - tree.keys() - SINCE_CATEGORIES - {"id"}):
        raise KeyError(name)
    require(tree.get("id", number) == number, f"tree {number} is not in its place")
    require(set(tree["tree_param"]) <= set(PARAMETERS), f"tree {number} has unknown parameters")


def _parameter(trees: Any, name: str, least: int, most: int) -> Whole:
    found = [number_in(tree["tree_param"].get(name, "0"), least, most, name) for tree in trees]
    return np.array(found, np.int64)


def _column(trees: Any, name: str, kind: str, nodes: Whole) -> NDArray[Any]:
    """A list of all trees, one after the other. Raises unless each has an entry per node."""
    absent: list[int] | None = [] if name in SINCE_CATEGORIES else None
    lists = [tree.get(name, absent) for tree in trees]
    if absent is not None and not any(map(len, lists)):
        return np.zeros(nodes.sum(), kind)
    counts = np.array([len(one) for one in lists])
    if (counts != nodes).any():
        number = int(np.argmax(counts != nodes))
        raise ValueError(
            f"tree {number} has {nodes[number]} nodes, but {counts[number]} numbers as its {name}"
        )
    return _joined(lists, kind, name)


def _joined(lists: Sequence[Any], kind: str, name: str) -> NDArray[Any]:
    """Lists as one array of this kind. Raises if a number does not fit it."""
    if all(isinstance(one, list) for one in lists):
        found = np.array(list(chain.from_iterable(lists)))
    else:
        found = np.concatenate([np.asarray(one) for one in lists])
    target = np.dtype(kind)
    numbers = found.ndim == 1 and found.dtype.kind in ("iufb" if target.kind == "f" else "iub")
    require(numbers or len(found) == 0, f"{name} must hold numbers, but holds something else")
    if target.kind in "iu" and len(found):
        ends = np.iinfo(target)
        inside = int(found.min()) >= ends.min and int(found.max()) <= ends.max
        require(inside, f"a number in {name} is too large")
    with np.errstate(over="ignore"):  # what is too large for XGBoost is infinite there too
        return found.astype(target)


def _check_nodes(columns: dict[str, NDArray[Any]], nodes: Whole, features: int) -> None:
    """Raise unless branches lead from the first node to all others that are not leaves."""
    tree = np.repeat(np.arange(len(nodes)), nodes)
    start = np.cumsum(nodes) - nodes
    names = ("left_children", "right_children", "parents", "split_indices")
    left, right, parents, split = (columns[name].astype(np.int64) for name in names)
    inner = left != -1
    fits = (~inner & (right == -1)) | (inner & (split >= 0) & (split < features))
    size = nodes[tree]
    for child in (left, right):
        fits &= ~inner | ((child >= 1) & (child < size) & (child != NOBODY))
    for name in ("default_left", "split_type"):
        fits &= columns[name] <= 1
    _each(fits, tree)
    places = np.flatnonzero(inner)
    own = places - start[tree[places]]  # its number in its tree
    for child in (left, right):
        _each(parents[start[tree[places]] + child[places]] == own, tree[places])
    _each((left != right)[inner], tree[inner])
    _each(np.isin(parents[start], (-1, NOBODY)), np.arange(len(nodes)))
    columns["parents"][start] = NOBODY
    met, level, depth = np.zeros(len(tree), bool), start, 0
    while len(level):
        require(depth <= DEEPEST, f"a tree has more than {DEEPEST} levels")
        met[level], level, depth = True, level[inner[level]], depth + 1
        level = np.concatenate([start[tree[level]] + side[level] for side in (left, right)])
    _each(met | ~inner, tree)  # a circle is met by nobody


def _each(fits: NDArray[np.bool_], tree: Whole) -> None:
    if not fits.all():
        number = int(tree[np.argmax(~fits)])
        raise ValueError(f"the branches of tree {number} do not make a tree")


def _all_categories(trees: Any, columns: dict[str, NDArray[Any]], nodes: Whole) -> list[Sets]:
    """The lists of categories of each tree."""
    marked = columns["split_type"].astype(bool) & (columns["left_children"] != -1)
    found, start = [], 0
    for number, (tree, end) in enumerate(zip(trees, np.cumsum(nodes).tolist(), strict=True)):
        lists = [tree.get(name, ()) for name in CATEGORIES]
        own = marked[start:end]
        if any(map(len, lists)):
            found.append(_categories(number, lists, own))
        else:
            require(not own.any(), _unfit(number))
            found.append(Sets())
        start = end
    return found


def _categories(number: int, lists: list[Any], marked: NDArray[np.bool_]) -> Sets:
    values, at, segments, sizes = map(whole, lists)
    require(len(at) == len(segments) == len(sizes) > 0, _unfit(number))
    ends = np.cumsum(sizes)
    fits = (
        bool((np.diff(at, prepend=-1) > 0).all() and at[-1] < len(marked))
        and bool((sizes > 0).all() and (segments == ends - sizes).all() and ends[-1] == len(values))
        and bool((values >= 0).all() and (values < LARGEST_CATEGORY).all())
        and bool(np.isin(np.flatnonzero(marked), at).all())
    )
    require(fits, _unfit(number))
    largest = np.maximum.reduceat(values, segments)
    kinds = zip((values, at, segments, sizes), CATEGORIES.values(), strict=True)
    return Sets(int((largest // 8 + 8).sum()), tuple(v.astype(k).tobytes() for v, k in kinds))


def _unfit(number: int) -> str:
    return f"the categories of tree {number} do not fit together"


def _written(
    columns: dict[str, NDArray[Any]],
    nodes: Whole,
    sets: list[Sets],
    parameters: list[dict[str, str]],
) -> list[bytes]:
    """Each tree as a table in UBJ."""
    ends = np.cumsum(nodes).tolist()
    stored = {
        name: (values.tobytes(), values.dtype, values.dtype.itemsize)
        for name, values in columns.items()
    }
    kinds = {name: np.dtype(kind) for name, kind in CATEGORIES.items()}
    names = {
        name: to_ubj({name: b""})[1:-1] for name in (*columns, *CATEGORIES, "id", "tree_param")
    }
    trees, start = [], 0
    for number, end in enumerate(ends):
        parts = [b"{"]
        for name, (values, kind, width) in stored.items():
            parts += names[name], array_bytes(values[start * width : end * width], kind)
        for (name, kind), values in zip(kinds.items(), sets[number].lists, strict=True):
            parts += names[name], array_bytes(values, kind)
        parts += names["id"], to_ubj(number)
        parts += names["tree_param"], to_ubj(parameters[number]), b"}"
        trees.append(b"".join(parts))
        start = end
    return trees


assert all(np.dtype(kind) in MARKERS for kind in (*NODES.values(), *CATEGORIES.values()))
