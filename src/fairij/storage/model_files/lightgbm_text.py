"""Read a LightGBM text file strictly, and write it again from what was checked.

LightGBM trusts the sizes and indices in a file, and wrong ones crash the process. It also takes
lines apart in its own way. So it is never given the file: it gets a text of known lines, made of
checked values.
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Any

from fairij.storage.model_files.lightgbm_trees import CUT, Fields, check_trees, whole
from fairij.storage.reading import plain_lists, require, strict_json

HEADER = (
    *("version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx"),
    *("objective", "average_output", "feature_names", "monotone_constraints", "feature_infos"),
    "tree_sizes",
)
OPTIONAL = {"objective", "average_output", "monotone_constraints"}
TREE = (
    *("num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type"),
    *("left_child", "right_child", "leaf_value", "leaf_weight", "leaf_count", "internal_value"),
    *("internal_weight", "internal_count", "cat_boundaries", "cat_threshold", "is_linear"),
    "shrinkage",
)
OF_LINEAR_TREES = {"leaf_const", "num_features", "leaf_features", "leaf_coeff"}
CATEGORIES = "pandas_categorical:"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f]")  # every control character but the end of a line
OBJECTIVE = re.compile(r"\w+(?: \w+(?::[\w.+-]+)?)*", re.ASCII)
INFO = re.compile(r"none|\[[^\s\[\]:]+:[^\s\[\]:]+\]|-?\d+(?::-?\d+)*", re.ASCII)
PARAMETER = re.compile(r"\[(\w+): (.*)\]")
MOST_FEATURES = 2**24


def canonical_lightgbm(content: bytes) -> str:
    """The text that LightGBM is given. Raises ValueError or KeyError if the file is not whole."""
    require(content.lstrip().startswith(b"tree"), "such a file starts with the word 'tree'")
    text = content.lstrip().decode("utf-8")
    odd = CONTROL.search(text)
    require(odd is None, f"it holds the byte {ord(odd[0]) if odd else 0}, which is no text")
    head, *blocks = re.split("^(?=Tree=)", text, flags=re.MULTILINE)
    require(bool(blocks), "it has no trees")
    last, ended, rest = blocks[-1].partition("end of trees\n")
    require(bool(ended), f"{CUT}: the end of the trees is missing")
    blocks[-1] = last.rstrip("\n") + "\n\n\n"  # a blank line more follows the last tree
    header = _header(head)
    check_sizes(header["tree_sizes"], blocks)
    trees = [_tree(number, block) for number, block in enumerate(blocks)]
    features = _check_header(header, len(trees))
    check_trees(trees, features)
    return _written(header, trees, *_after_trees(rest))


def check_sizes(sizes: str, blocks: list[str]) -> None:
    """Raise unless each tree is as long as the header says."""
    given = whole([sizes], "tree_sizes").tolist()
    require(len(given) == len(blocks), f"it says that it has {len(given)} trees, not {len(blocks)}")
    for number, (size, block) in enumerate(zip(given, blocks, strict=True)):
        require(size == len(block.encode()), f"{CUT}: tree {number} is not in its place")


def _header(head: str) -> dict[str, str]:
    first, *lines = head.rstrip("\n").split("\n")
    require(first == "tree", "such a file starts with a line 'tree'")
    fields = _fields(lines, HEADER, "its header")
    for name in HEADER:
        require(name in fields or name in OPTIONAL, f"it has no {name!r}")
    return fields


def _tree(number: int, block: str) -> Fields:
    first, *lines = block.rstrip("\n").split("\n")
    require(first == f"Tree={number}", f"{CUT}: tree {number} is not in its place")
    return _fields(lines, TREE, f"tree {number}")


def _fields(lines: list[str], known: tuple[str, ...], where: str) -> Fields:
    """The lines ``name=value``, each name once."""
    fields: Fields = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if name not in known or name in fields or (not equals and name != "average_output"):
            raise ValueError(_why(name, line, where, again=name in fields))
        fields[name] = value
    return fields


def _why(name: str, line: str, where: str, *, again: bool) -> str:
    if name in OF_LINEAR_TREES:
        return "its leaves are linear models: train it with linear_tree=False"
    if not line:
        return f"{where} has a blank line inside"
    return f"{where} has {name[:30]!r} twice" if again else f"{where} has the line {line[:30]!r}"


def _check_header(header: dict[str, str], trees: int) -> int:
    """Raise unless the parts of the header fit each other; the number of features."""
    names = ("num_class", "num_tree_per_iteration", "label_index", "max_feature_idx")
    classes, per_round, label, last = (_one(header[name], name) for name in names)
    require(re.fullmatch(r"v\d", header["version"]) is not None, "its version is not v2, v3 or v4")
    together = classes == per_round and 1 <= per_round <= trees and trees % per_round == 0
    require(
        together,
        f"num_class={classes} and num_tree_per_iteration={per_round} do not fit its {trees} trees",
    )
    require(label >= 0, "its label_index is negative")
    require(0 <= last < MOST_FEATURES, f"max_feature_idx={last} is not possible")
    for name in ("feature_names", "feature_infos"):
        count = len(header[name].split(" "))
        require(count == last + 1, f"it has {last + 1} features, but {count} words in {name}")
        require("" not in header[name].split(" "), f"a word in {name} is empty")
    known = all(map(INFO.fullmatch, header["feature_infos"].split(" ")))
    require(known, "its feature_infos are not ranges or lists of codes")
    if "monotone_constraints" in header:
        signs = whole([header["monotone_constraints"]], "monotone_constraints")
        fits = len(signs) == last + 1 and bool((abs(signs) <= 1).all())
        require(fits, "its monotone_constraints do not fit its features")
    _check_objective(header.get("objective"), classes)
    return last + 1


def _one(value: str, name: str) -> int:
    found = whole([value], name)
    require(len(found) == 1, f"its {name} must be one number")
    return int(found[0])


def _check_objective(objective: str | None, classes: int) -> None:
    if objective is None:  # a function of the user's
        return
    require(OBJECTIVE.fullmatch(objective) is not None, f"its objective is {objective[:40]!r}")
    options = dict(word.partition(":")[::2] for word in objective.split(" ")[1:])
    fits = int(options.get("num_class", classes)) == classes
    require(fits, f"its objective has num_class:{options.get('num_class')}, not {classes}")


def _after_trees(rest: str) -> tuple[list[str], Any]:
    """The parameters of the training, and pandas' categories; what else there is says nothing."""
    lines = rest.rstrip("\n").split("\n")
    categories = None
    if lines[-1].startswith(CATEGORIES):
        categories = strict_json(lines.pop()[len(CATEGORIES) :])
        nested = categories is None or plain_lists(categories)
        require(nested, "its pandas_categorical must be lists of plain values")
    if "parameters:" not in lines:
        return [], categories
    begin = lines.index("parameters:") + 1
    ends = "end of parameters" in lines[begin:]
    require(ends, f"{CUT}: the end of the parameters is missing")
    parameters = [line for line in lines[begin : lines.index("end of parameters")] if line]
    for line in parameters:
        named = PARAMETER.fullmatch(line) is not None
        require(named, f"the parameter {line[:40]!r} is not written as [name: value]")
    names = sorted(line.partition(":")[0] for line in parameters)
    twice = [name for name, same in groupby(names) if len(list(same)) > 1]
    require(not twice, f"the parameter {twice[:1]} is there twice")
    return parameters, categories


def _written(
    header: dict[str, str], trees: list[Fields], parameters: list[str], categories: Any
) -> str:
    """The text as LightGBM itself writes it, without what it does not read."""
    blocks = [
        "\n".join([f"Tree={n}", *(f"{name}={tree[name]}" for name in TREE if name in tree), "\n\n"])
        for n, tree in enumerate(trees)
    ]
    header = header | {"tree_sizes": " ".join(str(len(block)) for block in blocks)}
    lines = ["tree"]
    for name in HEADER:
        if name in header:
            lines.append(name if name == "average_output" else f"{name}={header[name]}")
    after = ["end of trees", ""]
    if parameters:
        after += ["parameters:", *parameters, "", "end of parameters", ""]
    after += [CATEGORIES + json.dumps(categories), ""]
    return "\n".join([*lines, "", "".join(blocks)]) + "\n".join(after)
