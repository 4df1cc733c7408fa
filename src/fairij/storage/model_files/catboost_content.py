"""Read a CatBoost JSON file strictly, and write it again from what was checked.

CatBoost takes a split by its number among all borders of all features, and does not look whether
that number, or the size of a tree, fits. So it is never given the file: it gets JSON of known
parts, made of checked values.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairij.storage.model_files.catboost_trees import (
    Split,
    checked_oblivious,
    checked_tree,
    finite,
    integer,
    only,
    with_values,
)
from fairij.storage.reading import require, strict_json

FILE = {"features_info", "model_info", "scale_and_bias"}
FILE_OPTIONAL = {"ctr_data", "oblivious_trees", "trees"}
FLOAT = {"borders", "feature_index", "flat_feature_index"}
FLOAT_OPTIONAL = {"feature_id", "feature_name", "has_nans", "nan_value_treatment"}
CATEGORY = {"feature_index", "flat_feature_index"}
CATEGORY_OPTIONAL = {"feature_id", "feature_name", "values"}
STATISTIC = {
    *("borders", "ctr_type", "elements", "identifier", "prior_numerator", "prior_denomerator"),
    *("scale", "shift", "target_border_idx"),
}
MISSING = ("AsIs", "AsFalse", "AsTrue")
COUNTS = ("Counter", "FeatureFreq")  # statistics with one number per category
BY_CLASS = ("Borders", "Buckets")  # with one number per class and category
LOST = "BinarizedTargetMeanValue"  # CatBoost itself reads other values than it wrote
LABELS = ("Integer", "Float", "String", "Boolean")
MOST_FEATURES = 2**20
MOST_CLASSES = 2**16


@dataclass(frozen=True)
class CheckedCatBoost:
    """A file whose parts fit together."""

    model: dict[str, Any]  # with all that the file says of its training
    info: dict[str, Any]  # what CatBoost is told of the training
    values: np.ndarray[Any, np.dtype[np.float64]]  # all leaf values, as CatBoost orders them
    loss: str
    names: tuple[str, ...]
    outputs: int

    def content(self) -> bytes:
        """The JSON that CatBoost is given."""
        return json.dumps(self.model | {"model_info": self.info}).encode()

    def edited(self, values: np.ndarray[Any, np.dtype[np.float64]]) -> bytes:
        """The file with other leaf values."""
        return json.dumps(with_values(self.model, values, self.outputs)).encode()


def canonical_catboost(content: bytes) -> CheckedCatBoost:
    """Raises ValueError unless the file is whole and its parts fit together."""
    model = strict_json(content)
    try:
        return _checked(model)
    except KeyError as error:
        raise ValueError(f"it has no {error}") from None
    except (TypeError, AttributeError, IndexError, OverflowError):
        raise ValueError("its parts are not of the kinds that CatBoost writes") from None


def _checked(model: Any) -> CheckedCatBoost:
    only(model, FILE, FILE_OPTIONAL, "the file")
    scale, bias = _scale(model["scale_and_bias"])
    features, splits, names, tables = _features(model["features_info"])
    loss, info = _info(model["model_info"], len(bias))
    kind = "trees" if "trees" in model else "oblivious_trees"
    require(not {"trees", "oblivious_trees"} <= set(model), "it has trees of two kinds")
    given = model.get(kind)
    require(isinstance(given, list) and len(given) > 0, "it has no trees")
    check = checked_tree if kind == "trees" else checked_oblivious
    trees, values = [], []
    for number, tree in enumerate(given):
        one, own = check(tree, number, splits, len(bias))
        trees.append(one)
        values.append(own)
    whole = {
        "features_info": features,
        "model_info": model["model_info"],
        kind: trees,
        "scale_and_bias": [scale, bias],
    }
    if tables:
        whole["ctr_data"] = _tables(model["ctr_data"], tables)
    return CheckedCatBoost(whole, info, np.concatenate(values), loss, names, len(bias))


def _scale(given: Any) -> tuple[float, list[float]]:
    require(isinstance(given, list) and len(given) == 2, "its scale_and_bias are not two parts")
    bias = given[1] if isinstance(given[1], list) else [given[1]]
    require(0 < len(bias) <= MOST_CLASSES, "its bias has no numbers")
    scale = finite([given[0]], "scale")[0]
    return scale, finite(bias, "bias")


def _info(given: Any, outputs: int) -> tuple[str, dict[str, Any]]:
    """The training loss, and what CatBoost needs to know of the training.

    CatBoost makes room for as many classes as are named here, so no other part reaches it.
    """
    params, known = given["params"], max(outputs, 2)
    loss = params["loss_function"]["type"]
    plain = isinstance(loss, str) and re.fullmatch(r"\w{1,60}", loss, re.ASCII) is not None
    require(plain, "its loss_function has no name")
    require(outputs == 1 or loss.startswith("Multi"), f"its loss {loss} has one output")
    classes = given.get("class_params")
    info: dict[str, Any] = {"params": {"loss_function": {"type": loss, "params": {}}}}
    if classes is not None:
        optional = {"class_label_type", "class_names", "class_to_label", "classes_count"}
        only(classes, set(), optional, "class_params")
        kind = classes.get("class_label_type", "Integer")
        require(kind in LABELS, f"its class_label_type is {str(kind)[:30]!r}")
        require(classes.get("classes_count", 0) in (0, known), "its classes_count does not fit")
        places = classes.get("class_to_label", list(range(known)))
        require(len(places) == known, f"its class_to_label does not fit its {outputs} outputs")
        finite(places, "class_to_label")
        names = classes.get("class_names") or []
        fits = len(names) in (0, known) and all(isinstance(n, (str, int, float)) for n in names)
        require(fits, f"its class_names do not fit its {outputs} outputs")
        info["class_params"] = classes
    processing, boosting = params["data_processing_options"], params["boosting_options"]
    weights = finite(processing.get("class_weights") or [], "class_weights")
    require(len(weights) in (0, known), f"its class_weights do not fit its {outputs} outputs")
    info["params"]["data_processing_options"] = {
        "class_weights": weights,
        "eval_fraction": finite([processing.get("eval_fraction", 0)], "eval_fraction")[0],
    }
    require(boosting.get("boosting_type") in ("Plain", "Ordered"), "its boosting_type is unknown")
    info["params"]["boosting_options"] = {"boosting_type": boosting["boosting_type"]}
    monotone = params.get("tree_learner_options", {}).get("monotone_constraints") or {}
    signs = monotone.values() if isinstance(monotone, dict) else monotone
    require(all(sign in (-1, 0, 1) for sign in signs), "its monotone_constraints are no signs")
    info["params"]["tree_learner_options"] = {"monotone_constraints": monotone}
    return loss, info


def _features(
    given: Any,
) -> tuple[dict[str, Any], list[Split], tuple[str, ...], dict[str, dict[str, Any]]]:
    """The features, all splits by number, the names, and the statistics by identifier."""
    for name in ("text_features", "embedding_features"):
        require(not given.get(name), f"it has {name}: train the model without them")
    known = {"float_features", "categorical_features", "ctrs", "cat_features_hash"}
    only(given, set(), {*known, "text_features", "embedding_features"}, "features_info")
    floats, categories = (
        given.get(name) or [] for name in ("float_features", "categorical_features")
    )
    require(len(floats) + len(categories) <= MOST_FEATURES, "it has too many features")
    splits: list[Split] = []
    for place, one in enumerate(floats):
        only(one, FLOAT, FLOAT_OPTIONAL, "a feature")
        require(one["feature_index"] == place, "a feature is not in its place")
        require(one.get("nan_value_treatment", "AsIs") in MISSING, "a nan_value_treatment is odd")
        require(one.get("has_nans", False) in (True, False), "has_nans must be true or false")
        splits += [Split("FloatFeature", place, b) for b in _rising(one["borders"])]
    for place, one in enumerate(categories):
        only(one, CATEGORY, CATEGORY_OPTIONAL, "a feature")
        require(one["feature_index"] == place, "a feature is not in its place")
        for value in one.get("values") or []:
            splits.append(Split("OneHotFeature", place, integer(value, -(2**31), 2**31, "value")))
    names = _names([*floats, *categories])
    tables = {}
    for one in given.get("ctrs") or []:
        only(one, STATISTIC, set(), "a statistic")
        _check_statistic(one, len(floats), len(categories))
        tables[one["identifier"]] = one
        splits += [Split("OnlineCtr", one["target_border_idx"], b) for b in _rising(one["borders"])]
    return {name: one for name, one in given.items() if one}, splits, names, tables


def _names(features: list[Any]) -> tuple[str, ...]:
    places = [integer(one["flat_feature_index"], 0, len(features), "index") for one in features]
    require(sorted(places) == list(range(len(features))), "two features have the same index")
    found = [""] * len(features)
    for place, one in zip(places, features, strict=True):
        name = one.get("feature_name", one.get("feature_id", str(place)))
        plain = isinstance(name, str) and "\0" not in name and one.get("feature_id", name) == name
        require(plain, "the name of a feature is no text")
        found[place] = name
    return tuple(found)


def _rising(borders: Any) -> list[float]:
    found = finite(borders, "borders")
    rises = bool((np.diff(np.array(found, np.float32)) > 0).all())
    require(rises and len(found) < 2**16, "the borders of a feature do not rise")
    return found


def _check_statistic(one: dict[str, Any], floats: int, categories: int) -> None:
    kind = one["ctr_type"]
    require(kind != LOST, f"CatBoost's JSON does not keep statistics of the kind {LOST}: use .cbm")
    known = (*COUNTS, *BY_CLASS)
    require(kind in known, f"it has statistics of the kind {str(kind)[:30]!r}; known are {known}")
    finite([one[name] for name in ("prior_numerator", "prior_denomerator", "scale", "shift")], "")
    integer(one["target_border_idx"], 0, MOST_CLASSES, "target_border_idx")
    elements = one["elements"]
    require(isinstance(elements, list) and 0 < len(elements) < 64, "a statistic is of no feature")
    for element in elements:
        what = element["combination_element"]
        if what == "float_feature":
            only(element, {"combination_element", "float_feature_index", "border"}, set(), "it")
            integer(element["float_feature_index"], 0, floats, "float_feature_index")
            finite([element["border"]], "border")
            continue
        exact = what == "cat_feature_exact_value"
        require(exact or what == "cat_feature_value", "a statistic is of an unknown part")
        names = {"combination_element", "cat_feature_index", *({"value"} if exact else set())}
        only(element, names, set(), "a part of a statistic")
        integer(element["cat_feature_index"], 0, categories, "cat_feature_index")
        integer(element.get("value", 0), -(2**31), 2**31, "value")
    require(_same(strict_json(one["identifier"]), one), "the name of a statistic is another one")


def _same(identifier: Any, one: dict[str, Any]) -> bool:
    """Whether the name of a statistic says what it is made of."""

    def rounded(parts: Any) -> list[list[Any]]:
        return sorted(
            [name, float(np.float32(value)) if name == "border" else value]
            for part in parts
            for name, value in part.items()
        )

    return bool(
        identifier.keys() == {"identifier", "type"}
        and identifier["type"] == one["ctr_type"]
        and rounded(identifier["identifier"]) == rounded(one["elements"])
    )


def _tables(given: Any, wanted: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The tables of the statistics, each with whole rows."""
    only(given, set(wanted), set(), "ctr_data")
    for name, table in given.items():
        only(table, {"hash_map", "hash_stride", "counter_denominator"}, set(), "a table")
        stride = integer(table["hash_stride"], 2, MOST_CLASSES, "hash_stride")
        integer(table["counter_denominator"], 0, 2**31, "counter_denominator")
        values = table["hash_map"]
        whole = isinstance(values, list) and len(values) % stride == 0
        require(whole and len(values) > 0, "a table of statistics has rows of unlike lengths")
        _check_rows(values, stride, wanted[name])
    return dict(given)


def _check_rows(values: list[Any], stride: int, one: dict[str, Any]) -> None:
    kind, place = one["ctr_type"], one["target_border_idx"]
    fits = stride == 2 if kind in COUNTS else place < stride - 1
    require(fits, f"a table of statistics of the kind {kind} has rows of {stride} numbers")
    keys = values[::stride]
    hashed = all(isinstance(key, str) and re.fullmatch(r"\d{1,20}", key, re.ASCII) for key in keys)
    require(hashed and max(map(int, keys)) < 2**64, "a category of a statistic has no hash")
    require(len(set(keys)) == len(keys), "a category of a statistic is there twice")
    for number, value in enumerate(values):
        if number % stride:
            integer(value, 0, 2**31, "a count of a statistic")
