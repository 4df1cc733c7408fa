from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import plain_files
from fairij import adapt
from fairij.errors import InvalidInputError
from fairij.storage.model_files import Opening, load_model
from fairij.storage.model_files.columns import known_columns, numbers, prepared
from fairij.storage.model_files.estimators import lightgbm_content

TABLE = plain_files.make_table(200, 0)
NEW = plain_files.make_table(60, 1)


def logits(model: Any, X: Any) -> np.ndarray[Any, Any]:
    return adapt(model).outputs(X).numpy()


def test_lightgbm_rows_are_coded_as_in_training(tmp_path: Path) -> None:
    """The new table has only some categories, in another order, and a constant column."""
    table = TABLE.assign(**{"a word": "same", "code": np.arange(len(TABLE)) % 3 * 7})
    rows = table[["job", "income", "code", "a word"]]
    category = rows.astype({"job": "category", "code": "category", "a word": "category"})
    model = lightgbm.LGBMClassifier(n_estimators=5, min_child_samples=5, verbose=-1)
    model.fit(category.rename(columns={"a word": "a_word"}), table["repaid"])
    model.booster_.save_model(tmp_path / "model.txt")
    file = load_model(tmp_path / "model.txt")
    assert file.columns == ("job", "income", "code", "a_word")
    some = rows[(table["job"] != "clerk") & (table["code"] != 0)]
    expected = model.predict(category.loc[some.index], raw_score=True)
    np.testing.assert_allclose(logits(file.model, file.prepare(some)), expected)


def test_a_lightgbm_model_of_plain_numbers_has_no_names(tmp_path: Path) -> None:
    rows = TABLE[plain_files.NUMBERS]
    data = lightgbm.Dataset(rows.to_numpy(), TABLE["repaid"])
    booster = lightgbm.train({"objective": "binary", "verbose": -1}, data, 3)
    booster.save_model(tmp_path / "model.txt")
    file = load_model(tmp_path / "model.txt")
    assert file.columns is None
    expected = booster.predict(rows.to_numpy(), raw_score=True)
    np.testing.assert_allclose(logits(file.model, file.prepare(rows)), expected)


@pytest.fixture
def booster_text(tmp_path: Path) -> bytes:
    plain_files.save_lightgbm(TABLE, tmp_path)
    return (tmp_path / "model.txt").read_bytes()


def test_a_changed_lightgbm_file_never_reaches_lightgbm(
    tmp_path: Path, booster_text: bytes
) -> None:
    """A file that passes the check does not crash LightGBM."""
    rng = np.random.default_rng(0)
    path = tmp_path / "changed.txt"
    places = [
        m.span() for m in re.finditer(rb"-?\d+", booster_text[: booster_text.find(b"end of")])
    ]
    refused = 0
    rows = plain_files.as_categories(NEW)
    for turn in range(120):
        if turn % 3 == 0:
            content = booster_text[: int(rng.integers(1, len(booster_text) * 0.9))]
        else:  # a number becomes another one of as many digits
            start, end = places[int(rng.integers(len(places)))]
            digits = "".join(rng.choice(list("123456789"), end - start)).encode()
            content = booster_text[:start] + digits + booster_text[end:]
        path.write_bytes(content)
        try:
            model = lightgbm.Booster(model_str=lightgbm_content(path))
            model.predict(prepared(model, rows))
        except (InvalidInputError, lightgbm.basic.LightGBMError):
            refused += 1
    assert 40 <= refused < 120  # all that were cut short, at the least


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (rb"left_child=(\S+)", b"left_child=9"),  # a branch that is not there
        (rb"split_feature=(\S+)", b"split_feature=7"),
        (rb"num_leaves=(\d)", b"num_leaves=2"),
    ],
)
def test_indices_outside_a_tree_are_found(
    tmp_path: Path, booster_text: bytes, old: bytes, new: bytes
) -> None:
    found = re.search(old, booster_text)
    assert found is not None
    same_length = new[: len(new) - 1] + new[-1:] * (len(found[0]) - len(new) + 1)
    path = tmp_path / "changed.txt"
    path.write_bytes(booster_text.replace(found[0], same_length, 1))
    with pytest.raises(InvalidInputError, match="tree 0"):
        lightgbm_content(path)


def test_xgboost_files_keep_what_the_estimator_predicts_with(tmp_path: Path) -> None:
    """With early stopping, estimator and file use the trees up to the best one."""
    rows, new = plain_files.as_categories(TABLE), plain_files.as_categories(NEW)
    model = xgboost.XGBClassifier(
        n_estimators=60, early_stopping_rounds=3, enable_categorical=True, n_jobs=1
    ).fit(rows, TABLE["repaid"], eval_set=[(new, NEW["repaid"])], verbose=False)
    assert model.best_iteration < 59
    model.save_model(tmp_path / "model.json")
    file = load_model(tmp_path / "model.json")
    assert isinstance(file.model, xgboost.XGBClassifier)
    expected = model.predict(new, output_margin=True)
    given = NEW[plain_files.FEATURES]  # text, not categories
    np.testing.assert_allclose(logits(file.model, file.prepare(given)), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "node", "value"),
    [("left_children", 0, 99_999), ("left_children", 0, 0), ("split_indices", 0, 99_999)],
)
@pytest.mark.parametrize("ending", [".json", ".ubj"])
def test_branches_outside_an_xgboost_tree_are_found(
    tmp_path: Path, name: str, node: int, value: int, ending: str
) -> None:
    """XGBoost itself would read outside its memory and crash."""
    plain_files.save_xgboost(TABLE, tmp_path)
    content = json.loads((tmp_path / "model.json").read_text())
    content["learner"]["gradient_booster"]["model"]["trees"][3][name][node] = value
    (tmp_path / "changed.json").write_text(json.dumps(content))
    if ending == ".ubj":
        booster = xgboost.Booster(model_file=str(tmp_path / "changed.json"))
        booster.save_model(tmp_path / "changed.ubj")
    with pytest.raises(InvalidInputError, match="the branches of tree 3 do not make a tree"):
        load_model(tmp_path / f"changed{ending}")


def test_categories_of_histogram_boosting_follow_the_training_table() -> None:
    rows = plain_files.as_categories(TABLE)
    model = HistGradientBoostingClassifier(max_iter=5).fit(rows, TABLE["repaid"])
    given = prepared(model, NEW[plain_files.FEATURES])
    expected = model.decision_function(plain_files.as_categories(NEW))
    np.testing.assert_array_equal(model.decision_function(given), expected)


def test_estimators_get_names_where_they_know_them() -> None:
    rows = TABLE[plain_files.NUMBERS]
    named = LogisticRegression().fit(rows, TABLE["repaid"])
    assert known_columns(named) == tuple(plain_files.NUMBERS)
    assert isinstance(prepared(named, rows), pd.DataFrame)
    unnamed = LogisticRegression().fit(rows.to_numpy(), TABLE["repaid"])
    assert known_columns(unnamed) is None
    assert isinstance(prepared(unnamed, rows), np.ndarray)


def test_numbers_in_any_column_type() -> None:
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "text": ["1", "2.5", "3"],
            "truth": [True, False, True],
        }
    )
    found = numbers(frame, missing=True)
    np.testing.assert_array_equal(found["whole"], [1, np.nan, 3])
    np.testing.assert_array_equal(found["text"], [1, 2.5, 3])
    with pytest.raises(InvalidInputError, match="'whole' has 1, the first in row 1"):
        numbers(frame, missing=False)
    dates = pd.DataFrame({"day": pd.to_datetime(["2026-01-01", "2026-01-02"])})
    with pytest.raises(InvalidInputError, match="'day' must be numeric"):
        numbers(dates, missing=True)


def test_a_python_file_names_the_class(tmp_path: Path) -> None:
    net = plain_files.save_torch(TABLE, tmp_path)
    opening = Opening(model_class=f"{tmp_path / 'net.py'}:Net", model_args={"inputs": 3})
    rows = NEW[plain_files.NUMBERS]
    for name in ("net.safetensors", "net.pt"):
        file = load_model(tmp_path / name, opening)
        with torch.no_grad():
            expected = net(torch.tensor(rows.to_numpy(copy=True)).float())[:, 0]
        np.testing.assert_array_equal(logits(file.model, file.prepare(rows)), expected)


def test_a_folder_must_hold_a_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"has no config\.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="must hold the model's tokenizer"):
        load_model(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="cannot be read as a Hugging Face folder"):
        load_model(tmp_path)


SINGLE = {"0.weight": torch.ones(1, 3), "0.bias": torch.ones(1)}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({0: torch.ones(3)}, "got the name 0, of type 'int'"),
        ({"state_dict": {b"0.weight": torch.ones(3)}}, "got the name b'0.weight', of type 'bytes'"),
        ({**SINGLE, (1, 2): torch.ones(1)}, "got the name (1, 2), of type 'tuple'"),
        ({**SINGLE, "0.bias": torch.ones(1) * 1j}, "but '0.bias' is torch.complex64"),
        ({**SINGLE, "\x1b[2J": torch.ones(1)}, 'Unexpected key(s) in state_dict: "\\x1b[2J"'),
    ],
)
def test_odd_names_and_values_of_parameters(tmp_path: Path, state: Any, said: str) -> None:
    torch.save(state, tmp_path / "net.pt")
    opening = Opening(model_class=f"{tmp_path / 'net.py'}:Net")
    (tmp_path / "net.py").write_text(
        "from torch import nn\nclass Net(nn.Sequential):\n"
        "    def __init__(self): super().__init__(nn.Linear(3, 1))\n"
    )
    with pytest.raises(InvalidInputError) as caught:
        load_model(tmp_path / "net.pt", opening)
    assert said in str(caught.value)


def test_doubled_names_of_features() -> None:
    model = LogisticRegression().fit(TABLE[["income", "debt"]], TABLE["repaid"])
    model.feature_names_in_ = np.array(["income", "income"], object)
    with pytest.raises(InvalidInputError, match="'income' occurs twice: train it on a table"):
        known_columns(model)
