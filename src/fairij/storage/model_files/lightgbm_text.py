"""Check a LightGBM text file before LightGBM reads it.

LightGBM trusts the sizes and indices in a file, and wrong ones crash the process.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.storage.reading import require

NEEDED = ("leaf_value", "split_feature", "threshold", "decision_type", "left_child", "right_child")
BY_LEAF = ("leaf_value", "leaf_weight", "leaf_count")  # the others have one number per split
BY_SPLIT = (*NEEDED[1:], "split_gain", "internal_value", "internal_weight", "internal_count")
WORD = re.compile(r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|inf|nan)")  # a number as LightGBM writes it
CUT = "it was cut short or changed"


def check_lightgbm_text(path: Path) -> None:
    """Raise unless the file is whole and its trees fit together."""
    content = path.read_bytes()
    try:
        starts = content.lstrip().startswith(b"tree")
        require(starts, "such a file starts with the word 'tree'")
        # LightGBM would never stop reading
        require("\0" not in content.decode("utf-8"), "it holds bytes that are no text")
        head, *blocks = _blocks(content)
        features = int(_fields(head)["max_feature_idx"]) + 1
        for number, block in enumerate(blocks):
            _check_tree(number, _fields(block), features)
    except (KeyError, ValueError, OverflowError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise InvalidInputError(
            f"{path} cannot be read as a LightGBM text model: {reason}. Write it with "
            "`booster.save_model('model.txt')`."
        ) from None


def _blocks(content: bytes) -> list[str]:
    """The header, and one text per tree, cut at the sizes in the header."""
    found = re.search(rb"^tree_sizes=([\d ]*)\r?$", content, re.MULTILINE)
    start = content.find(b"\nTree=") + 1
    if found is None or start == 0:
        raise ValueError("it has no trees, or does not say how long they are")
    blocks = [content[:start].decode("utf-8")]
    for number, size in enumerate(map(int, found.group(1).split())):
        block = content[start : start + size]
        in_place = block.startswith(b"Tree=%d" % number) and len(block) == size
        require(in_place, f"{CUT}: tree {number} is not in its place")
        blocks.append(block.decode("utf-8"))
        start += size
    rest = content[start:]
    ends = rest.lstrip().startswith(b"end of trees")
    require(ends, f"{CUT}: the end of the trees is missing")
    _check_parameters(rest.decode("utf-8"))
    return blocks


def _check_parameters(rest: str) -> None:
    """Check the parameters of the training, ``[name: value]`` on each line, if there are any."""
    _, begun, after = rest.partition("\nparameters:")
    lines, ended, _ = after.partition("\nend of parameters")
    require(bool(ended or not begun), f"{CUT}: the end of the parameters is missing")
    for line in filter(None, map(str.strip, lines.splitlines())):
        named = re.fullmatch(r"\[\w+: .*\]", line) is not None
        require(named, f"the parameter {line[:40]!r} is not written as [name: value]")


def _check_tree(number: int, fields: dict[str, str], features: int) -> None:
    for name, value in fields.items():
        for word in value.split():
            if not WORD.fullmatch(word):  # LightGBM would crash
                raise ValueError(f"the {name} of tree {number} holds {word[:20]!r}, not a number")
    leaves, categories = int(fields["num_leaves"]), int(fields.get("num_cat", "0"))
    for name in BY_LEAF + BY_SPLIT if leaves != 1 else ("leaf_value",):
        if name in fields or name in NEEDED:
            count = len(fields[name].split())
            problem = f"tree {number} has {leaves} leaves, but {count} numbers as its {name}"
            require(count == leaves - (name in BY_SPLIT), problem)
    if leaves == 1:
        return
    splits = _whole(fields["split_feature"])
    children = np.concatenate([_whole(fields["left_child"]), _whole(fields["right_child"])])
    exists = leaves > 1 and splits.min() >= 0 and splits.max() < features
    require(exists, f"tree {number} splits on a feature that the model does not have")
    # every node except the first, and every leaf (as -1 - leaf), is the child of one node
    is_tree = sorted(children.tolist()) == [*range(-leaves, 0), *range(1, leaves - 1)]
    require(is_tree, f"the branches of tree {number} do not make a tree")
    fits = not categories or _categories_fit(fields, categories)
    require(fits, f"the categories of tree {number} do not fit together")


def _categories_fit(fields: dict[str, str], categories: int) -> bool:
    bounds, bits = _whole(fields["cat_boundaries"]), _whole(fields["cat_threshold"])
    categorical = _whole(fields["decision_type"]) & 1 == 1
    used = np.array(fields["threshold"].split(), np.float64)[categorical]
    return bool(
        len(bounds) == categories + 1
        and bounds[0] == 0
        and (np.diff(bounds) >= 0).all()
        and bounds[-1] == len(bits)
        and ((used >= 0) & (used < categories)).all()
    )


def _whole(text: str) -> NDArray[np.int64]:
    return np.array([int(word) for word in text.split()], np.int64)


def _fields(block: str) -> dict[str, str]:
    lines = (line.partition("=") for line in block.splitlines())
    return {key: value for key, equals, value in lines if equals}
