"""LightGBM: edited copies predict what the engine says, whatever the model was trained with."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairij.errors import FairIJWarning, InvalidInputError, NotStationaryWarning
from fairij.models import adapt, check_editable
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

lightgbm = pytest.importorskip("lightgbm")

QUIET = {"verbosity": -1, "num_threads": 1, "deterministic": True, "force_row_wise": True}
OBJECTIVES = {"binary": "binary", "three": "multiclass", "real": "regression"}
pytestmark = pytest.mark.filterwarnings(
    "ignore::fairij.errors.NotStationaryWarning",  # boosting stops short of a minimum
)


def drawn(seed: int) -> tuple[str, dict[str, Any], Table]:
    """A configuration drawn at random: task, settings, table."""
    rng = np.random.default_rng(seed)
    task = TASKS[seed % 3]
    data = table(task, missing=bool(rng.integers(2)), categories=bool(rng.integers(2)), seed=seed)
    boosting = str(rng.choice(["gbdt", "gbdt", "gbdt", "dart", "rf", "goss"]))
    settings: dict[str, Any] = {
        "boosting": boosting,
        "num_leaves": int(rng.integers(2, 24)),
        "max_depth": int(rng.integers(-1, 6)) or -1,
        "min_data_in_leaf": int(rng.integers(1, 40)),
        "learning_rate": float(rng.uniform(0.05, 0.5)),
        "boost_from_average": bool(rng.integers(2)),
        "lambda_l2": float(rng.choice([0.0, 3.0])),
        "min_data_per_group": 5,
        "seed": seed,
    }
    if boosting == "rf" or rng.integers(2):
        settings |= {"bagging_fraction": 0.7, "bagging_freq": 1, "feature_fraction": 0.8}
    if boosting == "goss":
        settings |= {"bagging_fraction": 1.0, "bagging_freq": 0}
    if task == "binary":
        settings["sigmoid"] = float(rng.choice([1.0, 0.7]))
        settings["scale_pos_weight"] = float(rng.choice([1.0, 2.5]))
    if task == "three":
        settings["num_class"] = 3
    return task, settings, data


def trained(task: str, settings: dict[str, Any], data: Table, **options: Any) -> Any:
    params = {"objective": OBJECTIVES[task]} | QUIET | settings
    weight = data.weight if int(settings.get("seed", 0)) % 2 else None
    return lightgbm.train(params, lightgbm.Dataset(data.X, data.y, weight=weight), 12, **options)


def margins(model: Any, X: Any) -> np.ndarray:
    """The outputs from what the model itself predicts, not from its raw scores."""
    booster = model if isinstance(model, lightgbm.Booster) else model.booster_
    p = booster.predict(X, num_threads=1)
    name = booster.dump_model()["objective"].split()[0]
    if name == "binary":
        return np.log(p) - np.log1p(-p)
    if name == "multiclass":
        raw = booster.predict(X, raw_score=True, num_threads=1)
        if "average_output" in booster.model_to_string():
            raw /= booster.current_iteration()
        assert np.allclose(p, np.exp(raw) / np.exp(raw).sum(1, keepdims=True))
        return raw
    return p


def reload(model: Any) -> Any:
    """Through LightGBM's own text file; a scikit-learn estimator has none but its pickle."""
    if not isinstance(model, lightgbm.Booster):
        return model
    return lightgbm.Booster(model_str=model.model_to_string())


def named_rows(data: Table) -> pd.DataFrame:
    return pd.DataFrame(data.X, columns=["the age", "b\xa0b", "c", "d", "e"])


def test_columns_in_another_order_or_of_other_names_are_refused() -> None:
    """LightGBM itself goes by the places of columns, whatever their names."""
    data = table()
    X = named_rows(data)
    model = lightgbm.LGBMClassifier(n_estimators=5, **QUIET).fit(X, data.y)
    expected = adapt(model).outputs(X)
    assert torch.equal(adapt(model.booster_).outputs(X), expected)
    assert torch.equal(adapt(model.booster_).outputs(data.X), expected)  # no names: by place
    for other in (X[["b\xa0b", "the age", "c", "d", "e"]], X.rename(columns={"the age": "years"})):
        with pytest.raises(InvalidInputError, match="expected 'the_age' at place 0"):
            adapt(model).outputs(other)


def test_an_edit_of_a_monotone_model_is_warned_of() -> None:
    data = table()
    for asked, warned in (([1, 0, 0, 0, 0], 1), ([0, 0, 0, 0, 0], 0), (None, 0)):
        model = lightgbm.LGBMClassifier(n_estimators=5, monotone_constraints=asked, **QUIET).fit(
            data.X, data.y
        )
        assert len(adapt(model).caveats) == len(adapt(model.booster_).caveats) == warned
        if warned:
            with pytest.warns(FairIJWarning, match="monotone constraints"):
                mitigate(model, data)


@pytest.mark.parametrize("seed", SEEDS)
def test_round_trip_of_random_configurations(seed: int) -> None:
    task, settings, data = drawn(seed)
    check_round_trip(trained(task, settings, data), data.X_new, margins, reload)


@pytest.mark.parametrize("boosting", ["rf", "dart"])
def test_trees_that_are_averaged_or_dropped_out(boosting: str) -> None:
    data = table(rows=200, new=20)
    bagging = {"bagging_fraction": 0.6, "bagging_freq": 1}
    model = trained("binary", {"boosting": boosting, "num_leaves": 4} | bagging, data)
    check_round_trip(model, data.X_new, margins, reload)
    check_editable(adapt(model), data.X_new)


@pytest.mark.parametrize("task", TASKS)
def test_estimators_come_back_as_estimators(task: str, tmp_path: Path) -> None:
    data = table(task, categories=True, missing=True)
    y = np.array(["low", "middle", "top"])[data.y] if task == "three" else data.y
    kind = lightgbm.LGBMRegressor if task == "real" else lightgbm.LGBMClassifier
    model = kind(n_estimators=10, num_leaves=7, n_jobs=1, verbosity=-1).fit(data.X, y)
    check_round_trip(model, data.X_new, margins, reload)
    editable = adapt(model)
    edited = editable.edited(moved(editable.theta))
    z = editable.outputs(data.X_new, moved(editable.theta))
    assert edited.get_params() == model.get_params()
    if task == "real":
        close(edited.predict(data.X_new), z)
    elif task == "binary":
        close(edited.predict_proba(data.X_new)[:, 1], torch.sigmoid(z))
    else:
        close(edited.predict_proba(data.X_new), torch.softmax(z, 1))
        assert set(edited.predict(data.X_new)) <= {"low", "middle", "top"}


def test_sparse_rows_tensors_and_pipelines() -> None:
    data = table()
    X, X_new = (np.where(np.abs(X) < 0.5, 0, X) for X in (data.X, data.X_new))
    model = lightgbm.LGBMClassifier(n_estimators=8, num_leaves=7, n_jobs=1, verbosity=-1)
    model.fit(csr_matrix(X), data.y)
    check_round_trip(model, csr_matrix(X_new), margins, reload)
    close(margins(model, X_new), adapt(model).outputs(torch.from_numpy(X_new)))
    both = make_pipeline(StandardScaler(), model).fit(X, data.y)
    fair = mitigate(both, dataclasses.replace(data, X=X, X_new=X_new))
    check_gap_falls(fair)


def test_early_stopping_edits_only_the_trees_that_predict() -> None:
    data = table(missing=True)
    valid = lightgbm.Dataset(data.X_new, data.y_new)
    params = {"objective": "binary", "learning_rate": 0.5} | QUIET
    model = lightgbm.train(
        params,
        lightgbm.Dataset(data.X, data.y),
        60,
        valid_sets=[valid],
        callbacks=[lightgbm.early_stopping(3, verbose=False)],
        keep_training_booster=True,  # else the later trees are gone
    )
    assert 0 < model.best_iteration < model.num_trees()
    editable = adapt(model)
    edited = editable.edited(moved(editable.theta))
    assert edited.best_iteration == model.best_iteration
    assert edited.num_trees() == model.num_trees()
    check_round_trip(model, data.X_new, margins, reload)
    beyond = model.best_iteration
    assert edited.get_leaf_output(beyond, 0) == model.get_leaf_output(beyond, 0)


def test_a_booster_saved_to_a_file_takes_the_edit(tmp_path: Path) -> None:
    data = table(categories=True)
    model = trained("binary", {"num_leaves": 7}, data)
    model.save_model(tmp_path / "model.txt")
    fair = mitigate(model, data)
    fair.edit_.save(tmp_path / "edit")
    loaded = lightgbm.Booster(model_file=tmp_path / "model.txt")
    edited = Edit.load(tmp_path / "edit").apply(loaded)
    assert np.array_equal(edited.predict(data.X_new), fair.estimator_.predict(data.X_new))
    undone = fair.edit_.undo(edited)
    assert np.array_equal(undone.predict(data.X_new), model.predict(data.X_new))


@pytest.mark.parametrize("constraint", ["demographic_parity", "equal_opportunity"])
def test_the_gap_falls_without_refitting_or_groups(constraint: str) -> None:
    data = table(categories=True, missing=True)
    model = lightgbm.LGBMClassifier(n_estimators=20, num_leaves=7, n_jobs=1, verbosity=-1)
    model.fit(data.X, data.y)
    text = model.booster_.model_to_string()
    fair = mitigate(model, data, constraints=constraint)
    check_gap_falls(fair)
    assert model.booster_.model_to_string() == text
    assert isinstance(fair.estimator_, lightgbm.LGBMClassifier)
    assert np.array_equal(fair.predict(data.X_new), fair.estimator_.predict(data.X_new))
    proba = fair.estimator_.predict_proba(data.X_new)
    assert np.allclose(fair.predict_proba(data.X_new), proba, atol=1e-9)
    assert fair.diagnostics_["gradient_norm"] > 0


def test_several_classes_end_to_end() -> None:
    data = table("three", missing=True)
    y = np.array(["x", "y", "z"])
    model = lightgbm.LGBMClassifier(n_estimators=10, num_leaves=7, n_jobs=1, verbosity=-1)
    model.fit(data.X, y[data.y])
    named = dataclasses.replace(data, y=y[data.y], y_new=y[data.y_new])
    fair = mitigate(model, named)
    check_gap_falls(fair, to=0.75)
    assert list(fair.classes_) == ["x", "y", "z"]
    assert np.array_equal(fair.predict(data.X_new), fair.estimator_.predict(data.X_new))


def test_regression_end_to_end_needs_no_loss() -> None:
    data = table("real", categories=True)
    model = lightgbm.LGBMRegressor(n_estimators=20, num_leaves=7, n_jobs=1, verbosity=-1)
    model.fit(data.X, data.y)
    fair = mitigate(model, data, constraints="mean_prediction")
    check_gap_falls(fair)
    assert np.allclose(fair.predict(data.X_new), fair.estimator_.predict(data.X_new), atol=1e-9)


def test_boosting_stops_short_of_a_minimum_and_says_so() -> None:
    data = table()
    model = trained("binary", {"num_leaves": 7, "learning_rate": 0.02}, data)
    with (
        pytest.warns(NotStationaryWarning, match="not at a minimum"),
        pytest.warns(FairIJWarning, match="predicts 1 for 100.0% of the rows"),
    ):
        mitigate(model, data, damping=1e-3)


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({}, lambda y: None),
        ({"scale_pos_weight": 3.0}, lambda y: np.where(y == 1, 3.0, 1.0)),
        ({"class_weight": {0: 2.0, 1: 0.5}}, lambda y: np.where(y == 1, 0.5, 2.0)),
        ({"is_unbalance": True}, lambda y: np.where(y == 1, *sorted_ratio(y))),
    ],
)
def test_weights_of_labels_are_part_of_the_objective(settings: dict[str, Any], factor: Any) -> None:
    """One leaf of a stump trained to its minimum: the weighted gradient vanishes there."""
    data = table()
    model = lightgbm.LGBMClassifier(
        n_estimators=300, num_leaves=2, learning_rate=0.3, n_jobs=1, verbosity=-1, **settings
    )
    model.fit(data.X[:, :1] > 0, data.y, sample_weight=data.weight)
    editable = adapt(model)
    y = torch.as_tensor(data.y)
    expected = factor(data.y)
    found = editable.row_weights(y, None)
    if expected is None:
        assert found is None
    else:
        assert np.allclose(found.numpy(), expected)
    weight = editable.row_weights(y, torch.as_tensor(data.weight))
    z = editable.outputs(data.X[:, :1] > 0)
    slope = weight * (torch.sigmoid(z) - y)
    assert abs(float(slope.sum())) < 1e-3 * float(slope.abs().sum())


def sorted_ratio(y: np.ndarray) -> tuple[float, float]:
    ones = y.mean()
    return (1.0, ones / (1 - ones)) if ones > 0.5 else ((1 - ones) / ones, 1.0)


def test_rows_with_other_columns_are_refused_by_name() -> None:
    data = table()
    model = trained("binary", {}, data)
    with pytest.raises(InvalidInputError, match="must take `X` as it is given"):
        adapt(model).outputs(data.X[:, :3])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "multiclassova", "num_class": 3}, "multiclassova"),
        ({"objective": "quantile"}, "quantile"),
        ({"objective": "regression", "reg_sqrt": True}, "sqrt"),
        ({"objective": "regression", "linear_tree": True}, "linear_tree=False"),
    ],
)
def test_what_cannot_be_edited_is_refused(settings: dict[str, Any], message: str) -> None:
    data = table("three" if "num_class" in settings else "real")
    params = settings | QUIET
    model = lightgbm.train(params, lightgbm.Dataset(data.X, data.y, params=params), 3)
    with pytest.raises(InvalidInputError, match=message):
        adapt(model)


def test_a_custom_objective_is_refused() -> None:
    data = table("real")

    def objective(predicted: np.ndarray, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        return predicted - rows.get_label(), np.ones_like(predicted)

    params = {"objective": objective} | QUIET
    model = lightgbm.train(params, lightgbm.Dataset(data.X, data.y), 3)
    with pytest.raises(InvalidInputError, match="objective must be one of"):
        adapt(model)


def test_a_model_that_is_not_fitted_is_refused() -> None:
    with pytest.raises(NotFittedError):
        adapt(lightgbm.LGBMClassifier())


def test_parameters_are_the_leaf_values() -> None:
    model = trained("binary", {}, table())
    assert adapt(model, parameters="leaf_*").parameter_names == ["leaf_values"]
    with pytest.raises(InvalidInputError, match="'leaf_values'"):
        adapt(model, parameters=["thresholds"])


def test_predictions_cut_short_are_found_out() -> None:
    data = table()
    early = {"pred_early_stop": True, "pred_early_stop_freq": 1, "pred_early_stop_margin": 0.1}
    model = lightgbm.LGBMClassifier(n_estimators=40, n_jobs=1, verbosity=-1, **early)
    model.fit(pd.DataFrame(data.X, columns=list("uvwxy")), data.y)
    with pytest.raises(InvalidInputError, match="sum of its leaves"):
        adapt(model).outputs(pd.DataFrame(data.X_new, columns=list("uvwxy")))
