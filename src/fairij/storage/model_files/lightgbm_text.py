"""Check a LightGBM text file before LightGBM reads it.

LightGBM trusts the sizes and indices in a file. Wrong ones make it read outside its memory and
crash the process. So every size and index is checked here first.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from fairij.errors import InvalidInputError

# a line of a tree with L leaves must have L minus this many numbers
LENGTHS = {
    "leaf_value": 0,
    "leaf_weight": 0,
    "leaf_count": 0,
    "split_feature": 1,
    "split_gain": 1,
    "threshold": 1,
    "decision_type": 1,
    "left_child": 1,
    "right_child": 1,
    "internal_value": 1,
    "internal_weight": 1,
    "internal_count": 1,
}
WORD = re.compile(r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|inf|nan)")  # a number as LightGBM writes it
NEEDED = ("leaf_value", "split_feature", "threshold", "decision_type", "left_child", "right_child")


def check_lightgbm_text(path: Path) -> None:
    """Raise unless the file is whole and its trees fit together."""
    content = path.read_bytes()
    try:
        if not content.lstrip().startswith(b"tree"):
            raise ValueError("such a file starts with the word 'tree'")
        if "\0" in content.decode("utf-8"):  # LightGBM would never stop reading
            raise ValueError("it holds bytes that are no text")
        head, *blocks = _blocks(content)
        features = int(_fields(head)["max_feature_idx"]) + 1
        for number, block in enumerate(blocks):
            _check_tree(number, _fields(block), features)
    except KeyError as error:
        raise _broken(path, f"it has no {error}") from None
    except (ValueError, OverflowError) as error:
        raise _broken(path, str(error)) from None


def _blocks(content: bytes) -> list[str]:
    """The header, and one text per tree, cut at the sizes in the header."""
    found = re.search(rb"^tree_sizes=([\d ]*)\r?$", content, re.MULTILINE)
    start = content.find(b"\nTree=") + 1
    if found is None or start == 0:
        raise ValueError("it has no trees, or does not say how long they are")
    blocks = [content[:start].decode("utf-8")]
    for number, size in enumerate(map(int, found.group(1).split())):
        block = content[start : start + size]
        if not block.startswith(b"Tree=%d" % number) or len(block) != size:
            raise ValueError(f"it was cut short or changed: tree {number} is not in its place")
        blocks.append(block.decode("utf-8"))
        start += size
    rest = content[start:]
    if not rest.lstrip().startswith(b"end of trees"):
        raise ValueError("it was cut short or changed: the end of the trees is missing")
    _check_parameters(rest.decode("utf-8"))
    return blocks


def _check_parameters(rest: str) -> None:
    """Check the parameters of the training, ``[name: value]`` on each line, if there are any."""
    _, begun, after = rest.partition("\nparameters:")
    lines, ended, _ = after.partition("\nend of parameters")
    if begun and not ended:
        raise ValueError("it was cut short or changed: the end of the parameters is missing")
    for line in filter(None, map(str.strip, lines.splitlines())):
        if not re.fullmatch(r"\[\w+: .*\]", line):
            raise ValueError(f"the parameter {line[:40]!r} is not written as [name: value]")


def _check_tree(number: int, fields: dict[str, str], features: int) -> None:
    for name, value in fields.items():
        for word in value.split():
            if not WORD.fullmatch(word):  # LightGBM would crash
                raise ValueError(f"the {name} of tree {number} holds {word[:20]!r}, not a number")
    leaves, categories = int(fields["num_leaves"]), int(fields.get("num_cat", "0"))
    for name, fewer in LENGTHS.items():
        if name not in fields and (name not in NEEDED or leaves == 1):
            continue
        count = len(fields[name].split())
        if count != leaves - fewer and not (leaves == 1 and name != "leaf_value"):
            raise ValueError(
                f"tree {number} has {leaves} leaves, but {count} numbers as its {name}"
            )
    if leaves == 1:
        return
    splits = _whole(fields["split_feature"])
    children = np.concatenate([_whole(fields["left_child"]), _whole(fields["right_child"])])
    if leaves < 1 or splits.min() < 0 or splits.max() >= features:
        raise ValueError(f"tree {number} splits on a feature that the model does not have")
    # every node except the first, and every leaf (as -1 - leaf), is the child of one node
    if sorted(children.tolist()) != [*range(-leaves, 0), *range(1, leaves - 1)]:
        raise ValueError(f"the branches of tree {number} do not make a tree")
    if categories:
        _check_categories(number, fields, categories)


def _check_categories(number: int, fields: dict[str, str], categories: int) -> None:
    bounds, bits = _whole(fields["cat_boundaries"]), _whole(fields["cat_threshold"])
    categorical = _whole(fields["decision_type"]) & 1 == 1
    used = np.array(fields["threshold"].split(), np.float64)[categorical]
    if (
        len(bounds) != categories + 1
        or bounds[0] != 0
        or (np.diff(bounds) < 0).any()
        or bounds[-1] != len(bits)
        or (len(used) and not (used.min() >= 0 and used.max() < categories))
    ):
        raise ValueError(f"the categories of tree {number} do not fit together")


def _whole(text: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([int(word) for word in text.split()], np.int64)


def _fields(block: str) -> dict[str, str]:
    lines = (line.partition("=") for line in block.splitlines())
    return {key: value for key, equals, value in lines if equals}


def _broken(path: Path, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path} cannot be read as a LightGBM text model: {reason}. Write it with "
        "`booster.save_model('model.txt')`."
    )
