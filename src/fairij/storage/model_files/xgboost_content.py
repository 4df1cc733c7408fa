"""Read an XGBoost file strictly, and write it again from what was checked.

XGBoost trusts the lengths and indices in a file, and wrong ones crash the process. Of names that
are there twice it may take the other one. So it is never given the file: it gets Universal Binary
JSON of known parts, made of checked values. Numbers keep the precision in which XGBoost holds
them, so predictions are the same to the last bit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairij.storage.model_files.ubj import Ubj, to_ubj
from fairij.storage.model_files.xgboost_trees import Whole, checked_trees, number_in, whole
from fairij.storage.reading import require, strict_json

LEARNER = {"gradient_booster", "learner_model_param", "objective"}
LEARNER_OPTIONAL = {"attributes", "feature_names", "feature_types"}
MODEL = {"gbtree_model_param", "tree_info", "trees"}
MODEL_OPTIONAL = {"cats", "iteration_indptr"}
MODEL_PARAMETERS = {"num_trees", "num_parallel_tree", "size_leaf_vector", "num_feature"}
LEARNER_PARAMETERS = ("base_score", "boost_from_average", "num_class", "num_feature", "num_target")
# the kinds of number that names of categories may have, by XGBoost's own codes
CODES = {9: ">i1", 10: ">u1", 11: ">i2", 13: ">i4", 15: ">i8"}
MOST_FEATURES = 2**20  # XGBoost keeps 64 rows of them for each thread
BAD_CATEGORIES = "its categories do not fit together"
NO_TREES = (
    "it must have trees ('gbtree' or 'dart'), but has {!r}: train a LogisticRegression instead of "
    "a linear booster"
)


@dataclass(frozen=True)
class Checked:
    """What XGBoost is given, and what the file says about its origin."""

    content: bytes
    attributes: dict[str, str]


def canonical_xgboost(content: bytes, *, is_json: bool) -> Checked:
    """Raises ValueError unless the file is whole and its parts fit together."""
    model = strict_json(content) if is_json else Ubj(content).whole()
    try:
        _only(model, {"learner", "version"}, set(), "the file")
        learner = _learner(model["learner"], len(content))
        version = whole(model["version"])
        fits = len(version) == 3 and bool(((version >= 0) & (version < 1000)).all())
        require(fits, "its version must be three numbers")
    except KeyError as error:
        raise ValueError(f"it has no {error}") from None
    except (TypeError, AttributeError, IndexError, OverflowError):
        raise ValueError("its parts are not of the kinds that XGBoost writes") from None
    return Checked(to_ubj({"learner": learner, "version": version.tolist()}), learner["attributes"])


def _only(table: Any, needed: set[str], optional: set[str], where: str) -> None:
    """Raise unless a table has the needed names, and no others than the optional ones."""
    require(isinstance(table, dict), f"{where} is no table")
    for name in sorted(needed - table.keys()):
        raise KeyError(name)
    for name in sorted(table.keys() - needed - optional):
        raise ValueError(f"{where} has the unknown part {name[:30]!r}")


def _learner(learner: Any, size: int) -> dict[str, Any]:
    _only(learner, LEARNER, LEARNER_OPTIONAL, "the learner")
    given = learner["learner_model_param"]
    _only(given, {"base_score", "num_feature"}, set(LEARNER_PARAMETERS), "learner_model_param")
    features = number_in(given["num_feature"], 1, MOST_FEATURES + 1, "num_feature")
    classes, targets = (
        number_in(given.get(name, least), 0, 2**31, name)
        for name, least in (("num_class", "0"), ("num_target", "1"))
    )
    outputs = max(1, classes, targets)
    _check_score(given["base_score"], outputs)
    number_in(given.get("boost_from_average", "1"), 0, 2, "boost_from_average")
    names, types = (_words(learner, name, features) for name in ("feature_names", "feature_types"))
    require(len(set(names)) == len(names), "two of its features have the same name")
    return {
        "attributes": _texts(learner.get("attributes", {}), "attributes"),
        "feature_names": names,
        "feature_types": types,
        "gradient_booster": _booster(learner["gradient_booster"], features, outputs, size),
        "learner_model_param": {name: given[name] for name in LEARNER_PARAMETERS if name in given},
        "objective": _objective(learner["objective"], classes),
    }


def _check_score(text: Any, outputs: int) -> None:
    score = np.atleast_1d(np.array(strict_json(text)))
    fits = score.ndim == 1 and score.dtype.kind in "if" and len(score) in (1, outputs)
    require(bool(fits and np.isfinite(score).all()), f"its base_score is {str(text)[:40]!r}")


def _words(learner: dict[str, Any], name: str, features: int) -> list[str]:
    found = learner.get(name, [])
    require(isinstance(found, list), f"its {name} must be a list")
    plain = all(isinstance(word, str) and "\0" not in word for word in found)
    require(plain and len(found) in (0, features), f"its {name} do not fit {features} features")
    return found


def _texts(table: Any, where: str) -> dict[str, str]:
    pairs = table.items()
    plain = all(isinstance(value, str) and "\0" not in name + value for name, value in pairs)
    require(plain, f"its {where} must be text")
    return dict(pairs)


def _objective(objective: Any, classes: int) -> dict[str, Any]:
    name = objective["name"]
    plain = isinstance(name, str) and re.fullmatch(r"[\w:.-]{1,60}", name, re.ASCII) is not None
    require(plain, "its objective has no name")
    parts: dict[str, Any] = {"name": name}
    for part, table in objective.items():
        if part != "name":
            parts[part] = _texts(table, "parameters of the objective")
            own = parts[part].get("num_class", str(classes))
            require(own == str(classes), f"its objective has num_class={own}, not {classes}")
    return parts


def _booster(booster: Any, features: int, outputs: int, size: int) -> dict[str, Any]:
    kind = booster["name"]
    require(kind in ("gbtree", "dart"), NO_TREES.format(kind))
    if kind == "gbtree":
        _only(booster, {"name", "model"}, set(), "the booster")
        return {"name": kind, "model": _model(booster["model"], features, outputs, size)}
    _only(booster, {"name", "gbtree", "weight_drop"}, set(), "the booster")
    inner = _booster(booster["gbtree"], features, outputs, size)
    require(inner["name"] == "gbtree", "the trees of dart must be in 'gbtree'")
    drop = np.asarray(booster["weight_drop"])
    fits = drop.ndim == 1 and drop.dtype.kind in "if" and len(drop) == len(inner["model"]["trees"])
    require(fits, "not every tree has its weight")
    require(bool((np.abs(drop) < 1e30).all()), "a weight of its trees is not finite")
    return {"name": kind, "gbtree": inner, "weight_drop": list(map(float, drop))}


def _model(model: Any, features: int, outputs: int, size: int) -> dict[str, Any]:
    _only(model, MODEL, MODEL_OPTIONAL, "the model")
    given, trees, info = model["gbtree_model_param"], model["trees"], whole(model["tree_info"])
    _only(given, {"num_trees"}, MODEL_PARAMETERS, "gbtree_model_param")
    number = number_in(given["num_trees"], 1, 2**31, "num_trees")
    parallel = number_in(given.get("num_parallel_tree", "1"), 1, number + 1, "num_parallel_tree")
    problem = f"it says that it has {number} trees, but holds {len(trees)}"
    require(isinstance(trees, list) and len(trees) == len(info) == number, problem)
    exists = bool(((info >= 0) & (info < outputs)).all()) and outputs <= number
    require(exists, "a tree adds to an output that the model does not have")
    ends = whole(model.get("iteration_indptr", np.arange(0, number + 1, outputs * parallel)))
    require(_divide(ends, number), "its rounds do not divide its trees")
    return {
        "cats": _encoded(model.get("cats", {}), features),
        "gbtree_model_param": {"num_trees": str(number), "num_parallel_tree": str(parallel)},
        "iteration_indptr": ends.tolist(),
        "tree_info": info.tolist(),
        "trees": checked_trees(trees, features, size),
    }


def _divide(ends: Whole, length: int) -> bool:
    """Whether these numbers divide a list of this length into parts."""
    return bool(len(ends) and ends[0] == 0 and ends[-1] == length and (np.diff(ends) >= 0).all())


def _encoded(cats: Any, features: int) -> dict[str, Any]:
    """The names of the categories of each feature."""
    _only(cats, set(), {"enc", "feature_segments", "sorted_idx"}, "cats")
    lists = cats.get("enc", [])
    segments, order = (whole(cats.get(name, [])) for name in ("feature_segments", "sorted_idx"))
    if not lists:
        require(len(segments) == len(order) == 0, BAD_CATEGORIES)
        return _stored([], segments, order)
    known = isinstance(lists, list) and len(lists) == features and len(segments) == features + 1
    require(known, "its categories are of another number of features")
    require(_divide(segments, len(order)), BAD_CATEGORIES)
    found = []
    for names, start, end in zip(lists, segments[:-1], segments[1:], strict=True):
        count = int(end - start)
        found.append(_names(names, count))
        require(bool((np.sort(order[start:end]) == np.arange(count)).all()), BAD_CATEGORIES)
    return _stored(found, segments, order)


def _stored(lists: list[Any], segments: Whole, order: Whole) -> dict[str, Any]:
    arrays = {"feature_segments": segments.astype(">i4"), "sorted_idx": order.astype(">i4")}
    return {"enc": lists, **arrays}


def _names(names: Any, count: int) -> dict[str, Any]:
    """The categories of one feature: numbers of one kind, or texts one after the other."""
    values = whole(names["values"])
    if "type" in names:
        _only(names, {"type", "values"}, set(), "a list of categories")
        code = names["type"]
        require(code in CODES and len(values) == count, BAD_CATEGORIES)
        ends = np.iinfo(CODES[code])
        inside = bool(((values >= ends.min) & (values <= ends.max)).all())
        require(inside, BAD_CATEGORIES)
        return {"type": int(code), "values": values.astype(CODES[code])}
    _only(names, {"offsets", "values"}, set(), "a list of categories")
    offsets = whole(names["offsets"])
    whole_list = _divide(offsets, len(values)) and len(offsets) == count + 1
    require(whole_list or len(offsets) == len(values) == count == 0, BAD_CATEGORIES)
    require(bool(((values >= -128) & (values < 256)).all()), BAD_CATEGORIES)
    # XGBoost cuts names in other alphabets short, so they need not be whole text
    return {"offsets": offsets.astype(">i4"), "values": values.astype(">i1")}
