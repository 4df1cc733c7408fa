"""XGBoost: edited copies predict what the engine says, whatever the model was trained with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.exceptions import NotFittedError

from fairij.errors import FairIJWarning, InvalidInputError
from fairij.models import adapt
from fairij.storage.edits import Edit
from tree_cases import (
    SEEDS,
    TASKS,
    Table,
    check_gap_falls,
    check_round_trip,
    close,
    mitigate,
    moved,
    table,
)

xgboost = pytest.importorskip("xgboost")

OBJECTIVES = {"binary": "binary:logistic", "three": "multi:softprob", "real": "reg:squarederror"}
pytestmark = pytest.mark.filterwarnings(
    "ignore::fairij.errors.NotStationaryWarning",  # boosting stops short of a minimum
)


def drawn(seed: int) -> tuple[str, dict[str, Any], Table]:
    """A configuration drawn at random: task, settings, table."""
    rng = np.random.default_rng(seed)
    task = TASKS[seed % 3]
    data = table(task, missing=bool(rng.integers(2)), categories=bool(rng.integers(2)), seed=seed)
    settings: dict[str, Any] = {
        "objective": OBJECTIVES[task],
        "booster": str(rng.choice(["gbtree", "gbtree", "gbtree", "dart"])),
        "max_depth": int(rng.integers(1, 6)),
        "grow_policy": str(rng.choice(["depthwise", "lossguide"])),
        "max_leaves": int(rng.choice([0, 9])),
        "min_child_weight": float(rng.uniform(0.1, 10)),
        "learning_rate": float(rng.uniform(0.05, 0.5)),
        "reg_lambda": float(rng.choice([0.0, 3.0])),
        "gamma": float(rng.choice([0.0, 0.5])),  # prunes, which leaves unused nodes behind
        "subsample": float(rng.choice([1.0, 0.7])),
        "num_parallel_tree": int(rng.choice([1, 1, 3])),
        "tree_method": str(rng.choice(["hist", "approx"])),
        "max_cat_to_onehot": int(rng.choice([1, 10])),
        "nthread": 1,
        "seed": seed,
    }
    if settings["booster"] == "dart":
        settings |= {"rate_drop": 0.3, "one_drop": True}
    if rng.integers(2):
        settings["base_score"] = 0.3
    if task == "three":
        settings["num_class"] = 3
    return task, settings, data


def matrix(X: Any, y: Any = None, weight: Any = None) -> Any:
    return xgboost.DMatrix(X, y, weight=weight, enable_categorical=True, nthread=1)


def trained(settings: dict[str, Any], data: Table) -> Any:
    weight = data.weight if int(settings.get("seed", 0)) % 2 else None
    return xgboost.train({"nthread": 1} | settings, matrix(data.X, data.y, weight), 8)


def margins(model: Any, X: Any) -> np.ndarray:
    if isinstance(model, xgboost.Booster):
        return model.predict(matrix(X), output_margin=True)
    return model.predict(X, output_margin=True)


@pytest.fixture
def reload(tmp_path: Path) -> Any:
    def through_a_file(model: Any) -> Any:
        for name in ("model.ubj", "model.json"):
            model.save_model(tmp_path / name)
            again = type(model)()
            again.load_model(tmp_path / name)
        return again

    return through_a_file


@pytest.mark.parametrize("seed", SEEDS)
def test_round_trip_of_random_configurations(seed: int, reload: Any) -> None:
    _, settings, data = drawn(seed)
    check_round_trip(trained(settings, data), data.X_new, margins, reload)


@pytest.mark.parametrize("task", TASKS)
def test_estimators_come_back_as_estimators(task: str, reload: Any) -> None:
    data = table(task, missing=True, categories=True)
    kind = xgboost.XGBRegressor if task == "real" else xgboost.XGBClassifier
    model = kind(n_estimators=8, max_depth=3, n_jobs=1, enable_categorical=True)
    model.fit(data.X, data.y)
    check_round_trip(model, data.X_new, margins, lambda edited: edited)
    editable = adapt(model)
    edited = editable.edited(moved(editable.theta))
    z = editable.outputs(data.X_new, moved(editable.theta))
    for copy in (edited, reload(edited)):
        if task == "real":
            close(copy.predict(data.X_new), z)
        elif task == "binary":
            close(copy.predict_proba(data.X_new)[:, 1], torch.sigmoid(z))
        else:
            close(copy.predict_proba(data.X_new), torch.softmax(z, 1))


def test_a_mark_for_missing_values_is_kept() -> None:
    data = table(missing=True)
    X, X_new = (np.where(np.isnan(X), -9.0, X) for X in (data.X, data.X_new))
    model = xgboost.XGBClassifier(n_estimators=8, n_jobs=1, missing=-9.0).fit(X, data.y)
    check_round_trip(model, X_new, margins, lambda edited: edited)


def test_sparse_rows_are_read_as_the_library_reads_them() -> None:
    data = table()
    X, X_new = (csr_matrix(np.where(np.abs(X) < 0.5, 0, X)) for X in (data.X, data.X_new))
    model = xgboost.XGBClassifier(n_estimators=8, n_jobs=1).fit(X, data.y)
    check_round_trip(model, X_new, margins, lambda edited: edited)


def test_a_forest_is_a_sum_of_its_trees(reload: Any) -> None:
    data = table()
    model = xgboost.XGBRFClassifier(n_estimators=6, max_depth=3, n_jobs=1).fit(data.X, data.y)
    check_round_trip(model, data.X_new, margins, lambda edited: edited)


def test_early_stopping_edits_only_the_trees_that_predict() -> None:
    data = table(missing=True)
    model = xgboost.XGBClassifier(
        n_estimators=60, learning_rate=0.5, early_stopping_rounds=3, n_jobs=1
    )
    model.fit(data.X, data.y, eval_set=[(data.X_new, data.y_new)], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    check_round_trip(model, data.X_new, margins, lambda edited: edited)
    editable = adapt(model)
    edited = editable.edited(moved(editable.theta))
    assert edited.best_iteration == model.best_iteration
    all_trees = adapt(model.get_booster())  # a Booster by itself predicts with all of them
    assert len(all_trees.theta) > len(editable.theta)
    tail = adapt(edited.get_booster()).theta[len(editable.theta) :]
    assert torch.equal(tail, all_trees.theta[len(editable.theta) :])


def test_a_model_saved_to_a_file_takes_the_edit(tmp_path: Path) -> None:
    data = table(missing=True)
    model = xgboost.XGBClassifier(n_estimators=10, max_depth=3, n_jobs=1).fit(data.X, data.y)
    model.save_model(tmp_path / "model.json")
    fair = mitigate(model, data)
    fair.edit_.save(tmp_path / "edit")
    loaded = xgboost.XGBClassifier()
    loaded.load_model(tmp_path / "model.json")
    edited = Edit.load(tmp_path / "edit").apply(loaded)
    assert np.array_equal(
        edited.predict_proba(data.X_new), fair.estimator_.predict_proba(data.X_new)
    )
    undone = fair.edit_.undo(edited)
    assert np.array_equal(undone.predict_proba(data.X_new), model.predict_proba(data.X_new))


def test_the_gap_falls_without_refitting_or_groups() -> None:
    data = table(categories=True, missing=True)
    model = xgboost.XGBClassifier(
        n_estimators=15, max_depth=3, n_jobs=1, enable_categorical=True, scale_pos_weight=1.5
    ).fit(data.X, data.y)
    raw = model.get_booster().save_raw("json")
    fair = mitigate(model, data)
    check_gap_falls(fair)
    assert model.get_booster().save_raw("json") == raw
    assert isinstance(fair.estimator_, xgboost.XGBClassifier)
    assert np.array_equal(fair.predict(data.X_new), fair.estimator_.predict(data.X_new))
    proba = fair.estimator_.predict_proba(data.X_new)
    assert np.allclose(fair.predict_proba(data.X_new), proba, atol=1e-6)


@pytest.mark.parametrize(
    ("task", "constraint"), [("three", "demographic_parity"), ("real", "mean_prediction")]
)
def test_other_tasks_end_to_end(task: str, constraint: str) -> None:
    data = table(task, missing=True)
    kind = xgboost.XGBRegressor if task == "real" else xgboost.XGBClassifier
    model = kind(n_estimators=10, max_depth=3, n_jobs=1).fit(data.X, data.y)
    fair = mitigate(model, data, constraints=constraint)
    check_gap_falls(fair, to=0.75)
    assert np.allclose(fair.predict(data.X_new), fair.estimator_.predict(data.X_new), atol=1e-5)


def test_scale_pos_weight_is_part_of_the_objective() -> None:
    data = table()
    model = xgboost.XGBClassifier(n_estimators=3, n_jobs=1, scale_pos_weight=3.0)
    editable = adapt(model.fit(data.X, data.y))
    y, weight = torch.as_tensor(data.y), torch.as_tensor(data.weight)
    factor = torch.where(y == 1, 3.0, 1.0).double()
    assert torch.equal(editable.row_weights(y, None), factor)
    assert torch.equal(editable.row_weights(y, weight), factor * weight)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"booster": "gblinear"}, "'gbtree' or 'dart', got 'gblinear'"),
        ({"objective": "reg:absoluteerror"}, "reg:absoluteerror"),
        ({"objective": "count:poisson"}, "count:poisson"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*gblinear")
def test_what_cannot_be_edited_is_refused(settings: dict[str, Any], message: str) -> None:
    data = table()
    with pytest.raises(InvalidInputError, match=message):
        adapt(trained(settings, data))


def test_an_objective_of_ones_own_is_refused() -> None:
    data = table()

    def logistic(truth: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = 1 / (1 + np.exp(-z))
        return p - truth, p * (1 - p)

    model = xgboost.XGBClassifier(n_estimators=3, objective=logistic).fit(data.X, data.y)
    with pytest.raises(InvalidInputError, match="trained with a custom function"):
        adapt(model)


def test_an_edit_of_a_monotone_model_is_warned_of() -> None:
    data = table()
    for asked, warned in (((1, 0, 0, 0, 0), 1), (None, 0)):
        model = xgboost.XGBClassifier(n_estimators=5, monotone_constraints=asked)
        model.fit(data.X, data.y)
        assert len(adapt(model).caveats) == warned
        if warned:
            with pytest.warns(FairIJWarning, match="monotone constraints"):
                mitigate(model, data)


def test_vector_leaves_are_refused() -> None:
    data = table("three")
    model = xgboost.XGBClassifier(
        n_estimators=3, n_jobs=1, multi_strategy="multi_output_tree", tree_method="hist"
    ).fit(data.X, data.y)
    with pytest.raises(InvalidInputError, match="one_output_per_tree"):
        adapt(model)


def test_a_model_that_is_not_fitted_is_refused() -> None:
    with pytest.raises(NotFittedError):
        adapt(xgboost.XGBClassifier())
