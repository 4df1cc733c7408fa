"""What LightGBM and XGBoost are given is as good as the user's own file, and safe."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost

from fairij import adapt
from fairij.errors import InvalidInputError
from fairij.storage.model_files import load_model
from fairij.storage.model_files.lightgbm_text import canonical_lightgbm
from fairij.storage.model_files.ubj import Ubj
from fairij.storage.model_files.xgboost_content import canonical_xgboost
from mutations import Twice, as_json, as_ubj, with_tree_sizes

ROWS = 240
RNG = np.random.default_rng(0)
NUMBERS = pd.DataFrame(RNG.normal(size=(ROWS, 3)), columns=["a", "b", "c"])
NUMBERS.loc[::7, "a"] = np.nan
TABLE = NUMBERS.assign(
    d=pd.Categorical(RNG.integers(0, 40, ROWS) * 3),
    e=pd.Categorical(RNG.choice(["north", "south", "west"], ROWS)),
)
LABELS = {
    "one": (NUMBERS["b"] + 3 * (TABLE["d"].cat.codes % 2) + RNG.normal(size=ROWS) > 1.5)
    .to_numpy()
    .astype(int),
    "three": RNG.integers(0, 3, ROWS),
    "real": NUMBERS["b"].to_numpy() + RNG.normal(size=ROWS),
}
LIGHTGBM: dict[str, tuple[str, dict[str, Any]]] = {
    "binary": ("one", {}),
    "one split": ("one", {"num_leaves": 2}),
    "no split": ("one", {"min_gain_to_split": 1e9}),
    "sets of categories": (
        "one",
        {"max_cat_to_onehot": 1, "min_data_per_group": 1, "cat_smooth": 0, "cat_l2": 0},
    ),
    "zero is missing": ("one", {"zero_as_missing": True}),
    "nothing is missing": ("one", {"use_missing": False}),
    "monotone": ("one", {"monotone_constraints": [1, 0, -1, 0, 0]}),
    "dart": ("one", {"boosting": "dart", "drop_rate": 0.5}),
    "forest": ("real", {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}),
    "three classes": ("three", {"objective": "multiclass", "num_class": 3}),
    "real": ("real", {"objective": "regression"}),
}
XGBOOST: dict[str, tuple[str, dict[str, Any]]] = {
    "binary": ("one", {}),
    "pruned, sets of categories": ("one", {"gamma": 1.0, "max_cat_to_onehot": 1}),
    "one leaf a tree": ("one", {"gamma": 1e9}),
    "dart": ("one", {"booster": "dart", "rate_drop": 0.5}),
    "forest": ("one", {"num_parallel_tree": 3, "subsample": 0.5}),
    "three classes": ("three", {"objective": "multi:softprob", "num_class": 3}),
    "real": ("real", {"objective": "reg:squarederror"}),
    "exact, pruned": ("one", {"tree_method": "exact", "gamma": 2.0}),
}


def lightgbm_model(kind: str, rounds: int = 4) -> Any:
    label, settings = LIGHTGBM[kind]
    given = {"objective": "binary" if label == "one" else "regression", "verbose": -1, **settings}
    given |= {"num_threads": 1, "min_data_in_leaf": 5}
    data = lightgbm.Dataset(TABLE, LABELS[label], params={"verbose": -1})
    return lightgbm.train(given, data, rounds)


def xgboost_model(kind: str, rounds: int = 4) -> tuple[Any, Any]:
    label, settings = XGBOOST[kind]
    table = NUMBERS if settings.get("tree_method") == "exact" else TABLE
    data = xgboost.DMatrix(table, LABELS[label], enable_categorical=True)
    given = {"nthread": 1, "max_depth": 4, **settings}
    given.setdefault("objective", "binary:logistic")
    return xgboost.train(given, data, rounds), data


@pytest.mark.parametrize("kind", LIGHTGBM)
def test_lightgbm_is_given_what_it_wrote(tmp_path: Path, kind: str) -> None:
    """To the last byte, but for the importances, which it does not read."""
    own, path = lightgbm_model(kind), tmp_path / "model.txt"
    own.save_model(path)
    whole = path.read_text()
    known = re.sub(r"feature_importances:\n(.+\n)*\n", "", whole)
    assert canonical_lightgbm(path.read_bytes()) == known
    found = load_model(path).model
    for options in ({"raw_score": True}, {"pred_leaf": True}, {}):
        np.testing.assert_array_equal(
            found.predict(TABLE, **options), own.predict(TABLE, **options)
        )
    found.save_model(tmp_path / "again.txt")
    assert (tmp_path / "again.txt").read_text() == whole


@pytest.mark.parametrize("ending", ["json", "ubj"])
@pytest.mark.parametrize("kind", XGBOOST)
def test_xgboost_is_given_what_it_wrote(tmp_path: Path, kind: str, ending: str) -> None:
    (own, data), path = xgboost_model(kind), tmp_path / f"model.{ending}"
    own.set_attr(best_iteration="2")
    own.save_model(path)
    found = load_model(path).model
    for options in ({"output_margin": True}, {"pred_leaf": True}, {}):
        np.testing.assert_array_equal(found.predict(data, **options), own.predict(data, **options))
    for form in ("json", "ubj"):
        assert bytes(found.save_raw(form)) == bytes(own.save_raw(form))


@pytest.mark.parametrize("ending", ["txt", "json", "ubj"])
def test_an_edited_model_is_written_faithfully(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"model.{ending}"
    own: Any = lightgbm_model("sets of categories") if ending == "txt" else xgboost_model("dart")[0]
    own.save_model(path)
    file = load_model(path)
    editable = adapt(file.model)
    edited = editable.edited(editable.theta * 1.25)
    file.save(edited, tmp_path / f"edited.{ending}")
    again = load_model(tmp_path / f"edited.{ending}")
    assert adapt(again.model).theta.tolist() == adapt(edited).theta.tolist()
    outputs = [adapt(m).outputs(file.prepare(TABLE)).tolist() for m in (edited, again.model)]
    assert outputs[0] == outputs[1]


def changed(pattern: str, new: str, *, times: int = 1) -> Any:
    return lambda text: re.sub(pattern, new, text, count=times, flags=re.MULTILINE)


def longer_chain(text: str) -> str:
    """The first tree becomes one with 12,000 levels."""
    splits = 12_000
    lines = {
        "num_leaves": [splits + 1], "num_cat": [0], "split_feature": [0] * splits,
        "threshold": [0.5] * splits, "decision_type": [2] * splits,
        "left_child": [*range(1, splits), -splits - 1],
        "right_child": list(range(-1, -splits - 1, -1)),
        "leaf_value": [0.5] * (splits + 1), "is_linear": [0], "shrinkage": [1],
    }  # fmt: skip
    block = "".join(f"{name}={' '.join(map(str, one))}\n" for name, one in lines.items())
    return re.sub(r"Tree=0\n.*?\n\n\n", f"Tree=0\n{block}\n\n", text, count=1, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (changed("^(left_child=.*)$", r"\n\1"), "tree 0 has a blank line inside"),
        (changed("^(feature_infos=.*)$", r"\1\ntree_sizes=1 2"), "'tree_sizes' twice"),
        (changed("^(num_cat=.*)\n", "\\1\x0b"), "it holds the byte 11, which is no text"),
        (changed("^(num_cat=.*)\n", "\\1\x1c"), "it holds the byte 28, which is no text"),
        (changed("^(num_cat=.*)\n", "\\1\r\n"), "it holds the byte 13, which is no text"),
        (changed("^(num_cat=.*)\n", "\\1\x85"), "num_cat must be whole numbers"),
        (changed("^num_class=1", "num_class=0"), "num_class=0 and num_tree_per_iteration=1"),
        (changed("^(num_tree_per_iteration)=1", r"\1=0"), "num_tree_per_iteration=0 do not fit"),
        (changed("^(num_tree_per_iteration)=1", r"\1=7"), "num_tree_per_iteration=7 do not fit"),
        (changed("^(max_feature_idx)=4", r"\1=1000000000"), "max_feature_idx=1000000000"),
        (changed("^(max_feature_idx)=4", r"\1=5"), "6 features, but 5 words in feature_names"),
        (changed(r"^(left_child)=\S+", r"\1=0"), "the branches of tree 0 do not make a tree"),
        (changed("^(num_leaves)=.*", r"\1=2"), "tree 0 has 2 leaves, but"),
        (changed("^(objective=binary).*", r"\1 num_class:9"), "num_class:9, not 1"),
        (changed("^(is_linear)=0", r"\1=1"), "its leaves are linear models"),
        (changed(r"^(decision_type)=\d+", r"\1=12"), "a decision_type of tree 0 is not possible"),
        (changed("^(leaf_value)=", r"\1= "), "the leaf_value of tree 0 holds ''"),
        (changed("^(leaf_value)=[^ ]*", r"\1=1_0"), "the leaf_value of tree 0 holds '1_0'"),
        (changed("^(split_feature)=[^ ]*", "\\1=\u0663"), "split_feature of tree 0 holds"),
        (changed("^(cat_boundaries)=0", r"\1=1"), "do not fit together"),
        (changed("^pandas_categorical:.*", 'pandas_categorical:[{"a": 1}]'), "lists of plain"),
        (changed("^Tree=1", "Tree=2"), "tree 1 is not in its place"),
        (changed("^end of trees\n", ""), "the end of the trees is missing"),
        (changed(r"^\[boosting: gbdt\]", "[boosting: gbdt]\n[boosting: rf]"), "is there twice"),
        (longer_chain, "tree 0 has more than 10000 levels"),
    ],
)
def test_lightgbm_files_that_do_not_fit_together(change: Any, told: str) -> None:
    text = with_tree_sizes(change(TEXT))
    assert text != TEXT
    with pytest.raises((ValueError, KeyError), match=re.escape(told)):
        canonical_lightgbm(text.encode())


TEXT = lightgbm_model("sets of categories").model_to_string()
MODEL = json.loads(bytes(xgboost_model("pruned, sets of categories")[0].save_raw("json")))
Tree = dict[str, Any]


def booster_of(model: Any) -> Any:
    return model["learner"]["gradient_booster"]


def tree_of(model: Any) -> Tree:
    return booster_of(model)["model"]["trees"][0]


def second_gbtree(model: Any) -> None:
    booster_of(model)["gbtree"] = dict(booster_of(model))


def twice(escaped: bool) -> Any:
    def change(model: Any) -> None:
        model["learner"] = Twice(model["learner"], "objective", {}, escaped=escaped)

    return change


def put(*place: Any) -> Any:
    """Put the last value at the place that the others name."""

    def change(model: Any) -> None:
        *steps, last, value = place
        for step in steps:
            model = model[step]
        model[last] = value

    return change


def chain(model: Any) -> None:
    """The first tree becomes one with 11,000 levels."""
    levels = 11_000
    nodes = 2 * levels + 1
    inner = np.arange(levels)
    left, right, parents = (np.full(nodes, -1) for _ in range(3))
    left[2 * inner], right[2 * inner] = 2 * inner + 1, 2 * inner + 2
    parents[2 * inner + 1], parents[2 * inner + 2] = 2 * inner, 2 * inner
    lists = {"left_children": left, "right_children": right, "parents": parents}
    tree = tree_of(model)
    for name, one in tree.items():
        if isinstance(one, list):
            tree[name] = [] if "categories" in name else [0] * nodes
    tree |= {name: one.tolist() for name, one in lists.items()}
    tree["parents"][0] = 2**31 - 1
    tree["tree_param"]["num_nodes"] = str(nodes)


def circle(model: Any) -> None:
    """Two nodes, out of reach, are each other's children."""
    tree = tree_of(model)
    for name, one in tree.items():
        if isinstance(one, list) and "categories" not in name:
            tree[name] = [*one, *[one[-1]] * 4]
    n = len(tree["left_children"])
    tree["left_children"][-4:] = [n - 3, n - 4, -1, -1]
    tree["right_children"][-4:] = [n - 2, n - 1, -1, -1]
    tree["parents"][-4:] = [n - 3, n - 4, n - 4, n - 3]
    tree["split_indices"][-4:] = [0] * 4
    tree["split_type"][-4:] = [0] * 4
    tree["tree_param"]["num_nodes"] = str(n)


LEARNER, BOOSTER = ("learner",), ("learner", "gradient_booster")
OF_TREE = (*BOOSTER, "model", "trees", 0)
PARAMETERS = (*LEARNER, "learner_model_param")


@pytest.mark.parametrize("ending", ["json", "ubj"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (second_gbtree, "the booster has the unknown part 'gbtree'"),
        (put(*BOOSTER, "name", "gblinear"), "it must have trees ('gbtree' or 'dart')"),
        (put(*OF_TREE, "tree_param", "size_leaf_vector", "-1"), "several values per leaf"),
        (put(*OF_TREE, "tree_param", "size_leaf_vector", "3"), "several values per leaf"),
        (twice(escaped=False), "it has the name 'objective' twice"),
        (twice(escaped=True), "it has the name 'objective' twice"),
        (chain, "a tree has more than 10000 levels"),
        (circle, "the branches of tree 0 do not make a tree"),
        (put(*PARAMETERS, "num_feature", "1000000000"), "num_feature must be from 1 to"),
        (put(*PARAMETERS, "num_feature", "4"), "feature_names do not fit 4 features"),
        (put(*PARAMETERS, "num_class", "9"), "a tree adds to an output that the model does not"),
        (put(*PARAMETERS, "base_score", "[1,2,3]"), "its base_score is '[1,2,3]'"),
        (put(*OF_TREE, "categories_nodes", [0]), "the categories of tree 0 do not fit together"),
        (put(*OF_TREE, "unknown", 1), "tree 0 has the unknown part 'unknown'"),
        (put(*LEARNER, "objective", "multi", {"num_class": "9"}), "its objective has num_class=9"),
        (put(*BOOSTER, "model", "gbtree_model_param", "num_parallel_tree", "0"), "from 1 to"),
        (put("version", [3, 2]), "its version must be three numbers"),
    ],
)
def test_xgboost_files_that_do_not_fit_together(change: Any, told: str, ending: str) -> None:
    model = json.loads(json.dumps(MODEL))
    change(model)
    content = as_json(model).encode() if ending == "json" else as_ubj(model)
    with pytest.raises(ValueError, match=re.escape(told)):
        canonical_xgboost(content, is_json=ending == "json")


def test_categories_are_not_larger_than_xgboost_takes() -> None:
    model = json.loads(json.dumps(MODEL))
    tree = tree_of(model)
    first = int(np.flatnonzero(tree["split_type"])[0])
    tree["categories_nodes"], tree["categories_segments"] = [first], [0]
    tree["categories_sizes"], tree["categories"] = [1], [2**24]
    with pytest.raises(ValueError, match="the categories of tree 0 do not fit together"):
        canonical_xgboost(as_json(model).encode(), is_json=True)


@pytest.mark.parametrize("ending", ["json", "ubj"])
def test_parts_that_lie_too_deep(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"model.{ending}"
    path.write_bytes(b"[" * 300_000)
    with pytest.raises(InvalidInputError, match="too deep inside each other"):
        load_model(path)


def test_universal_binary_json_says_where_it_is_wrong() -> None:
    for content, told in ((b"{L", "longer than"), (b"x", "no marker"), (b"ZZ", "after its end")):
        with pytest.raises(ValueError, match=told):
            Ubj(content).whole()


def test_linear_trees_are_refused_in_words(tmp_path: Path) -> None:
    data = lightgbm.Dataset(NUMBERS, LABELS["real"], params={"verbose": -1, "linear_tree": True})
    settings = {"linear_tree": True, "verbose": -1, "num_threads": 1}
    lightgbm.train(settings, data, 2).save_model(tmp_path / "model.txt")
    with pytest.raises(InvalidInputError, match="train it with linear_tree=False"):
        load_model(tmp_path / "model.txt")
