"""Change the structure of model files: fields, lengths, names and parts, with the sizes repaired.

A changed byte is mostly found by the first check. Here the file stays one that a careless check
would let pass: lists keep their lengths, sizes are written anew.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from damage import damaged

Rng = np.random.Generator
WORDS = (
    *("0", "-1", "1", "2", "7", "3", "-2", "100", "65536", "2147483647", "-2147483648"),
    *("4294967295", "1000000000", "9" * 30, "1e9", "1e308", "1e999", "nan", "-inf", "", "0x10"),
    *("1.5", "+1", "-0", "1_0", "\u0663", "true", "[]", "a b", "1\x0b2", "\x1c", "=", "Tree=0"),
)
VALUES = (
    *(0, -1, 1, 2, 7, -2, 100, 65536, 2**31 - 1, -(2**31), 2**32, 10**9, 10**30, 1.5, 1e308),
    *(True, None, "", "-1", "0", "7", "1000000000", "gblinear", "dart", [], {}, [0], [[0]]),
    *({"gbtree": {}}, {"model": {}}, float("nan"), float("inf"), "\0", "1e9"),
)
BREAKS = ("\n", "\n\n", "\r", "\r\n", "\x0b", "\x1c", "\x85", "\u2028", "\0", " ", "\t")


def pick(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def of_lightgbm(content: bytes, rng: Rng) -> bytes:
    """A LightGBM text file with one to three changes, mostly with its tree sizes repaired."""
    if rng.random() < 0.1:
        return damaged(content, rng)
    text = content.decode()
    for _ in range(int(rng.integers(1, 4))):
        text = pick(rng, LIGHTGBM)(text, rng)
    if rng.random() < 0.85:
        text = with_tree_sizes(text)
    return text.encode(errors="replace")


def with_tree_sizes(text: str) -> str:
    """The header's sizes as LightGBM would write them."""
    blocks = re.findall(r"^Tree=.*?(?=^Tree=|^end of trees|\Z)", text, re.MULTILINE | re.DOTALL)
    sizes = " ".join(str(len(block.encode(errors="replace"))) for block in blocks)
    return re.sub(r"^tree_sizes=.*$", f"tree_sizes={sizes}", text, count=1, flags=re.MULTILINE)


def _lines(text: str, rng: Rng) -> tuple[list[str], int]:
    """All lines, and the number of one of them; mostly not of the parameters."""
    lines = text.split("\n")
    last = lines.index("parameters:") if "parameters:" in lines and rng.random() < 0.9 else None
    return lines, int(rng.integers(len(lines[:last])))


def _word(text: str, rng: Rng) -> str:
    """Another word somewhere, or one more, or one less."""
    lines, at = _lines(text, rng)
    name, equals, value = lines[at].partition("=")
    words = value.split(" ")
    place, how = int(rng.integers(len(words))), rng.random()
    if how < 0.7:
        words[place] = pick(rng, WORDS)
    elif how < 0.85:
        words.insert(place, pick(rng, WORDS))
    else:
        del words[place]
    lines[at] = name + equals + " ".join(words)
    return "\n".join(lines)


def _number(text: str, rng: Rng) -> str:
    """A whole number that is one more, one less, or another of its line."""
    lines, at = _lines(text, rng)
    found = list(re.finditer(r"-?\d+", lines[at]))
    if found:
        one = pick(rng, found)
        other = pick(rng, (int(one[0]) + 1, int(one[0]) - 1, pick(rng, found)[0]))
        lines[at] = f"{lines[at][: one.start()]}{other}{lines[at][one.end() :]}"
    return "\n".join(lines)


def _exchanged(text: str, rng: Rng) -> str:
    """The values of two lines of the same name, as of two trees, are exchanged."""
    lines, at = _lines(text, rng)
    name = lines[at].partition("=")[0]
    other = pick(rng, [n for n, line in enumerate(lines) if line.partition("=")[0] == name])
    lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines)


def _line(text: str, rng: Rng) -> str:
    """A line is left out, is there twice, is blank, or stands elsewhere."""
    lines, at = _lines(text, rng)
    _, other = _lines(text, rng)
    how = int(rng.integers(5))
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(other, lines[at])
    elif how == 2:
        lines.insert(at, "")
    elif how == 3:
        lines.insert(at, pick(rng, ("tree_sizes=1 2 3", "num_class=0", "x=1", "is_linear=1", "=")))
    else:
        lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines)


def _break(text: str, rng: Rng) -> str:
    """Another sign between two lines or two words."""
    at = pick(rng, [m.start() for m in re.finditer(r"[ \n=]", text[: text.find("end of trees")])])
    return text[:at] + pick(rng, BREAKS) + text[at + int(rng.integers(2)) :]


def _setting(text: str, rng: Rng) -> str:
    """A number of the header, or one of a tree that decides on its lists."""
    names = "num_class|num_tree_per_iteration|max_feature_idx|label_index|num_leaves|num_cat"
    found = list(re.finditer(rf"^({names}|is_linear|Tree)=(.*)$", text, re.MULTILINE))
    one = pick(rng, found)
    return f"{text[: one.start(2)]}{pick(rng, WORDS)}{text[one.end(2) :]}"


def _children(text: str, rng: Rng) -> str:
    """Branches of one tree in another order: circles, lost leaves, doubled ones."""
    found = list(re.finditer(r"^(?:left|right)_child=(.*)$", text, re.MULTILINE))
    one = pick(rng, found)
    words = np.array(one[1].split(" "))
    words = (
        words[rng.permutation(len(words))] if rng.random() < 0.5 else rng.choice(words, len(words))
    )
    return f"{text[: one.start(1)]}{' '.join(words)}{text[one.end(1) :]}"


LIGHTGBM: tuple[Callable[[str, Rng], str], ...] = (
    *(_word, _word, _number, _number, _exchanged, _line, _break, _setting, _children),
)


class Twice(dict[str, Any]):
    """A table with one name that is there twice."""

    def __init__(self, table: dict[str, Any], name: str, value: Any, *, escaped: bool) -> None:
        super().__init__(table)
        self.name, self.value, self.escaped = name, value, escaped


def of_json(model: Any, rng: Rng) -> bytes:
    """A changed XGBoost model as JSON."""
    return as_json(changed_model(model, rng)).encode(errors="replace")


def changed_model(model: Any, rng: Rng) -> Any:
    """A copy with one to three changes."""
    model = copy.deepcopy(model)
    for _ in range(int(rng.integers(1, 4))):
        pick(rng, XGBOOST)(model, rng)
    return model


def as_json(value: Any) -> str:
    if isinstance(value, dict):
        pairs = [f"{json.dumps(name)}:{as_json(one)}" for name, one in value.items()]
        if isinstance(value, Twice):
            name = json.dumps(value.name)
            if value.escaped:
                name = '"' + "".join(f"\\u{ord(sign):04x}" for sign in value.name) + '"'
            pairs.append(f"{name}:{as_json(value.value)}")
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, (list, np.ndarray)):
        return "[" + ",".join(map(as_json, list(value))) + "]"
    return json.dumps(value.item() if isinstance(value, np.generic) else value)


def _inside(value: Any, rng: Rng) -> tuple[Any, Any]:
    """A table or list somewhere inside, and one of its keys."""
    while True:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        filled = [key for key in keys if isinstance(value[key], (dict, list)) and value[key]]
        if not filled or rng.random() < 0.15:
            return value, pick(rng, list(keys))
        value = value[pick(rng, filled)]


def _tree(model: Any, rng: Rng) -> dict[str, Any]:
    booster = model["learner"]["gradient_booster"]
    trees = booster.get("gbtree", booster)["model"]["trees"]
    found = pick(rng, trees)
    return found if isinstance(found, dict) else {}


def _value(model: Any, rng: Rng) -> None:
    place, key = _inside(model, rng)
    place[key] = copy.deepcopy(pick(rng, VALUES))


def _part(model: Any, rng: Rng) -> None:
    """A part is left out, is there twice, or is one of another place."""
    place, key = _inside(model, rng)
    other, another = _inside(model, rng)
    how = rng.random()
    if how < 0.4:
        del place[key]
    elif how < 0.7 and isinstance(place, list):
        place.insert(int(rng.integers(len(place) + 1)), copy.deepcopy(place[key]))
    elif how < 0.85:
        place[key] = copy.deepcopy(other[another])
    elif isinstance(place, dict):
        place[pick(rng, ("gbtree", "model", "trees", "x", "size_leaf_vector"))] = place[key]


def _twice(model: Any, rng: Rng) -> None:
    """A name is there twice, perhaps written in another way."""
    booster = model["learner"]["gradient_booster"]
    tables = [(model, "learner"), (model["learner"], "gradient_booster"), (booster, "model")]
    tables = [(table, name) for table, name in tables if name in table and type(table) is dict]
    table, name = pick(rng, tables or [(model, "learner")])
    inner = table[name]
    if isinstance(inner, dict) and inner:
        own = pick(rng, list(inner))
        escaped = bool(rng.random() < 0.5)
        table[name] = Twice(inner, own, copy.deepcopy(pick(rng, VALUES)), escaped=escaped)


def _node(model: Any, rng: Rng) -> None:
    """A number in a list of a tree is another one that occurs there, or an odd one."""
    tree = _tree(model, rng)
    lists = [name for name, one in tree.items() if isinstance(one, list) and one]
    if lists:
        one = tree[pick(rng, lists)]
        odd = (0, -1, len(one), len(one) - 1, 2**31 - 1, -(2**31), 2**24, 1e9)
        one[int(rng.integers(len(one)))] = pick(rng, one) if rng.random() < 0.5 else pick(rng, odd)


def _longer(model: Any, rng: Rng) -> None:
    """All lists of a tree are a node longer or shorter, and its size says so."""
    tree = _tree(model, rng)
    parameters = tree.get("tree_param")
    nodes = len(tree.get("left_children") or ())
    step = pick(rng, (-1, 1, nodes))
    for name, one in tree.items():
        if isinstance(one, list) and len(one) == nodes:
            tree[name] = one[:step] if step < 0 else one + one[-step:]
    if isinstance(parameters, dict):
        parameters["num_nodes"] = str(nodes + step)


def _parameter(model: Any, rng: Rng) -> None:
    """A number that decides on sizes."""
    learner = model["learner"]
    booster = learner["gradient_booster"]
    inner = booster.get("gbtree", booster)["model"]
    tables = (learner["learner_model_param"], inner["gbtree_model_param"])
    table = pick(rng, (*tables, _tree(model, rng).get("tree_param", {})))
    if isinstance(table, dict) and table:
        odd = ("0", "-1", "2", "7", "3", "1000000000", "2147483647", "1e9", "", "-2147483648")
        table[pick(rng, list(table))] = pick(rng, odd)


def _careful(change: Callable[[Any, Rng], None]) -> Callable[[Any, Rng], None]:
    """The change, unless an earlier one took away what it needs."""

    def changed(model: Any, rng: Rng) -> None:
        try:
            change(model, rng)
        except (KeyError, TypeError, AttributeError, ValueError):
            return

    return changed


XGBOOST: tuple[Callable[[Any, Rng], None], ...] = tuple(
    map(_careful, (_value, _part, _twice, _node, _node, _node, _longer, _parameter, _parameter))
)


def of_catboost(model: Any, rng: Rng) -> bytes:
    """A changed CatBoost model as JSON; mostly its trees and features are changed."""
    model = copy.deepcopy(model)
    for _ in range(int(rng.integers(1, 4))):
        pick(rng, CATBOOST)(model, rng)
    content = as_json(model).encode(errors="replace")
    return damaged(content, rng) if rng.random() < 0.1 else content


def _catboost_node(model: Any, rng: Rng) -> dict[str, Any]:
    """A tree, or a branch somewhere inside."""
    node = pick(rng, model.get("oblivious_trees") or model["trees"])
    while "split" in node and rng.random() < 0.7:
        node = node[pick(rng, ("left", "right"))]
    return node


def _catboost_split(model: Any, rng: Rng) -> None:
    """A split of another number or feature, on one side or on both."""
    node = _catboost_node(model, rng)
    split = pick(rng, node["splits"]) if "splits" in node else node["split"]
    name = pick(rng, list(split))
    odd = (0, 1, -1, 3, 40, 10**6, 2**31 - 1, 0.5, "OnlineCtr", "FloatFeature", "OneHotFeature")
    split[name] = pick(rng, odd)


def _catboost_leaves(model: Any, rng: Rng) -> None:
    """Values of a tree are fewer or more, or there is one level more or less."""
    node = _catboost_node(model, rng)
    name = pick(rng, [name for name, one in node.items() if isinstance(one, list) and one])
    one = node[name]
    node[name] = pick(rng, (one[:-1], one + one[:1], one * 2, [], one[: len(one) // 2]))


def _catboost_size(model: Any, rng: Rng) -> None:
    """A number of the features, statistics, tables or outputs is an odd one."""
    features = model["features_info"]
    places = [model["scale_and_bias"], *model.get("ctr_data", {}).values()]
    for one in features.values():
        places += one if isinstance(one, list) else []
    place = pick(rng, [place for place in places if place])
    key = pick(rng, list(place) if isinstance(place, dict) else range(len(place)))
    inner = place[key]
    if isinstance(inner, list) and inner and rng.random() < 0.7:
        place, key = inner, int(rng.integers(len(inner)))
    place[key] = copy.deepcopy(pick(rng, VALUES))


def of_ubj(model: Any, rng: Rng) -> bytes:
    """A changed XGBoost model as Universal Binary JSON."""
    content = as_ubj(changed_model(model, rng))
    return damaged(content, rng) if rng.random() < 0.1 else content


CATBOOST: tuple[Callable[[Any, Rng], None], ...] = tuple(
    map(
        _careful,
        (
            *(_value, _part, _catboost_split, _catboost_split, _catboost_leaves),
            *(_catboost_size, _catboost_size, _catboost_size),
        ),
    )
)


def as_ubj(value: Any) -> bytes:
    if isinstance(value, dict):
        pairs = list(value.items())
        pairs += [(value.name, value.value)] if isinstance(value, Twice) else []
        return b"{" + b"".join(_sized(name) + as_ubj(one) for name, one in pairs) + b"}"
    if isinstance(value, list):
        return _list(value)
    if isinstance(value, str):
        return b"S" + _sized(value)
    if isinstance(value, bool) or value is None:
        return b"Z" if value is None else b"FT"[value : value + 1]
    if isinstance(value, int) and abs(value) < 2**63:
        return _length(value)
    with np.errstate(over="ignore"):
        return b"d" + np.array(value, ">f4").tobytes()


def _list(values: list[Any]) -> bytes:
    kinds = {type(value) for value in values}
    if kinds == {int} and all(abs(value) < 2**31 for value in values):
        return b"[$l#" + _length(len(values)) + np.array(values, ">i4").tobytes()
    if kinds and kinds <= {int, float}:
        with np.errstate(over="ignore"):
            array = np.array([float(value) for value in values]).astype(">f4")
        return b"[$d#" + _length(len(values)) + array.tobytes()
    return b"[#" + _length(len(values)) + b"".join(map(as_ubj, values))


def _sized(text: str) -> bytes:
    encoded = text.encode(errors="replace")
    return _length(len(encoded)) + encoded


def _length(number: int) -> bytes:
    return b"L" + number.to_bytes(8, "big", signed=True)
