"""CatBoost's trees in its JSON files: tables of 2^depth leaves, or branches inside each other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairij.storage.reading import require

DEEPEST = 16  # levels of a table of leaves, as CatBoost has it
Values = NDArray[np.float64]
Checked = tuple[dict[str, Any], Values]
PLACES = {
    "FloatFeature": ("float_feature_index", "border"),
    "OneHotFeature": ("cat_feature_index", "value"),
    "OnlineCtr": ("ctr_target_border_idx", "border"),
}


class Split(NamedTuple):
    """One of the questions that a model may ask; CatBoost takes it by its number."""

    kind: str
    place: int  # the feature, or the class of a statistic
    border: float


def only(table: Any, needed: set[str], optional: set[str], where: str) -> None:
    """Raise unless a table has the needed names, and no others than the optional ones."""
    require(isinstance(table, dict), f"{where} is no table")
    for name in sorted(needed - table.keys()):
        raise KeyError(name)
    for name in sorted(table.keys() - needed - optional):
        raise ValueError(f"{where} has the unknown part {name[:30]!r}")


def integer(value: Any, least: int, most: int, name: str) -> int:
    plain = isinstance(value, int) and not isinstance(value, bool) and least <= value < most
    require(plain, f"its {name} must be from {least} to {most - 1}, got {str(value)[:30]}")
    return int(value)


def finite(values: Any, name: str) -> list[float]:
    """A list of finite numbers of a size that float32 can hold."""
    require(isinstance(values, list), f"its {name} must be a list of numbers")
    plain = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    require(plain, f"its {name} must hold numbers, but holds something else")
    found = np.array(values, np.float64)
    require(bool((np.abs(found) <= 3e38).all()), f"a number in its {name} is not finite")
    return list(map(float, found))


def checked_oblivious(tree: Any, number: int, splits: list[Split], outputs: int) -> Checked:
    """A tree that asks the same question on each level; its leaves are a table."""
    only(tree, {"splits", "leaf_values"}, {"leaf_weights"}, f"tree {number}")
    asked = tree["splits"] or []
    deep = isinstance(asked, list) and len(asked) <= DEEPEST
    require(deep, f"tree {number} has more than {DEEPEST} levels")
    for split in asked:
        _check_split(split, number, splits)
    leaves = 2 ** len(asked)
    values = finite(tree["leaf_values"], f"leaf_values of tree {number}")
    problem = f"tree {number} has {leaves} leaves of {outputs} outputs, but {len(values)} values"
    require(len(values) == leaves * outputs, problem)
    weights = finite(tree.get("leaf_weights") or [], f"leaf_weights of tree {number}")
    require(len(weights) in (0, leaves), f"tree {number} has {len(weights)} weights of leaves")
    return {"splits": asked, "leaf_values": values, "leaf_weights": weights}, np.array(values)


def checked_tree(tree: Any, number: int, splits: list[Split], outputs: int) -> Checked:
    """A tree of branches. JSON has no circles, so only its nodes are looked at."""
    found: list[float] = []
    todo = [tree]
    while todo:  # left before right, as CatBoost numbers the leaves
        node = todo.pop()
        if "split" in node:
            only(node, {"split", "left", "right"}, set(), f"a branch of tree {number}")
            _check_split(node["split"], number, splits)
            todo += [node["right"], node["left"]]
            continue
        only(node, {"value"}, {"weight"}, f"a leaf of tree {number}")
        values = node["value"] if isinstance(node["value"], list) else [node["value"]]
        finite([node.get("weight", 0)], f"weight of a leaf of tree {number}")
        problem = f"a leaf of tree {number} has {len(values)} values, not {outputs}"
        require(len(values) == outputs, problem)
        found += finite(values, f"values of tree {number}")
    return tree, np.array(found)


def _check_split(split: Any, number: int, splits: list[Split]) -> None:
    kind = split["split_type"]
    require(kind in PLACES, f"tree {number} has a split of the kind {str(kind)[:30]!r}")
    place, border = PLACES[kind]
    only(split, {"split_type", "split_index", place, border}, set(), f"a split of tree {number}")
    at = integer(split["split_index"], 0, len(splits), f"split_index in tree {number}")
    own, (value,) = splits[at], finite([split[border]], f"border in tree {number}")
    same = own.kind == kind and own.place == split[place]
    with np.errstate(over="ignore"):
        same = same and np.float32(own.border) == np.float32(value)
    require(same, f"a split of tree {number} is not the one of its number")


def with_values(model: dict[str, Any], values: Values, outputs: int) -> dict[str, Any]:
    """The model with other leaf values, in the order in which the checks found them."""
    rest = values.tolist()
    if "oblivious_trees" in model:
        trees, start = [], 0
        for tree in model["oblivious_trees"]:
            end = start + len(tree["leaf_values"])
            trees.append(tree | {"leaf_values": rest[start:end]})
            start = end
        return model | {"oblivious_trees": trees}
    numbers = iter(rest)
    return model | {"trees": [_copied(tree, numbers, outputs) for tree in model["trees"]]}


def _copied(tree: dict[str, Any], numbers: Any, outputs: int) -> dict[str, Any]:
    """A copy of a tree of branches with the next leaf values."""
    top: dict[str, Any] = {}
    todo = [(tree, top)]
    while todo:
        node, made = todo.pop()
        if "split" in node:
            made["split"], made["left"], made["right"] = node["split"], {}, {}
            todo += [(node["right"], made["right"]), (node["left"], made["left"])]
            continue
        own = [next(numbers) for _ in range(outputs)]
        made["value"] = own if isinstance(node["value"], list) else own[0]
        if "weight" in node:
            made["weight"] = node["weight"]
    return top
