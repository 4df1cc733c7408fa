"""CatBoost: edited copies predict what the engine says, whatever the model was trained with."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairij.errors import FairIJWarning, InvalidInputError
from fairij.models import adapt
from fairij.models.losses import get_loss
from fairij.storage.edits import Edit
from tree_cases import (
    TASKS,
    Table,
    check_gap_falls,
    check_round_trip,
    close,
    dense_jacobian,
    mitigate,
    moved,
    table,
)

catboost = pytest.importorskip("catboost")

LOSSES = {"binary": "Logloss", "three": "MultiClass", "real": "RMSE"}
KINDS = {"binary": "CatBoostClassifier", "three": "CatBoostClassifier", "real": "CatBoostRegressor"}
SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 18))]
pytestmark = pytest.mark.filterwarnings(
    "ignore::fairij.errors.NotStationaryWarning",  # boosting stops short of a minimum
)


def quiet(**settings: Any) -> dict[str, Any]:
    fixed = {"verbose": False, "thread_count": 1, "allow_writing_files": False, "random_seed": 0}
    return {"iterations": 6, "depth": 3, **fixed, **settings}


def with_words(data: Table) -> Table:
    """Categories as CatBoost takes them: columns of text."""
    X, X_new = (X.assign(kind=X["kind"].astype(str)) for X in (data.X, data.X_new))
    return Table(X, data.y, data.group, data.weight, X_new, data.y_new, data.group_new)


def trained(task: str, data: Table, **settings: Any) -> Any:
    weight = settings.pop("weight", None)
    names = ["kind"] if hasattr(data.X, "columns") else None
    model = getattr(catboost, KINDS[task])(**quiet(cat_features=names, **settings))
    return model.fit(data.X, data.y, sample_weight=weight)


def drawn(seed: int) -> tuple[str, Any, Table]:
    """A configuration drawn at random."""
    rng = np.random.default_rng(seed)
    task = TASKS[seed % 3]
    categories = bool(rng.integers(2))
    data = table(task, missing=bool(rng.integers(2)), categories=categories, seed=seed)
    data = with_words(data) if categories else data
    grow = str(rng.choice(["SymmetricTree", "SymmetricTree", "Depthwise", "Lossguide"]))
    ordered = grow == "SymmetricTree" and bool(rng.integers(2))
    settings = {
        "grow_policy": grow,
        "boosting_type": "Ordered" if ordered else "Plain",
        "depth": int(rng.integers(1, 5)),
        "l2_leaf_reg": float(rng.choice([0.5, 3.0])),
        "learning_rate": float(rng.uniform(0.1, 0.6)),
        "one_hot_max_size": int(rng.choice([2, 20])),
        "boost_from_average": task == "real",
        "weight": data.weight if rng.integers(2) else None,
    }
    return task, trained(task, data, **settings), data


def raw(model: Any, X: Any) -> np.ndarray:
    return np.asarray(model.predict(X, prediction_type="RawFormulaVal"))


@pytest.fixture
def reload(tmp_path: Path) -> Any:
    def through_a_file(model: Any) -> Any:
        model.save_model(str(tmp_path / "model.cbm"))
        return type(model)().load_model(str(tmp_path / "model.cbm"))

    return through_a_file


@pytest.mark.parametrize("seed", SEEDS)
def test_round_trip_of_random_configurations(seed: int, reload: Any) -> None:
    _, model, data = drawn(seed)
    check_round_trip(model, data.X_new, raw, reload)


@pytest.mark.parametrize("task", TASKS)
def test_leaf_values_and_jacobian_are_the_librarys(task: str) -> None:
    data = table(task)
    model = trained(task, data, iterations=2)
    J = dense_jacobian(model, data.X_new[:40], raw)
    linear = adapt(model).linearize(data.X_new[:40])
    assert torch.allclose(linear.rows(torch.arange(40)).double(), J, atol=1e-9)


def test_its_json_file_rounds_the_last_digit_only(tmp_path: Path) -> None:
    data = with_words(table(categories=True))
    model = trained("binary", data)
    edited = adapt(model).edited(moved(adapt(model).theta))
    edited.save_model(str(tmp_path / "model.json"), format="json")
    again = catboost.CatBoostClassifier().load_model(str(tmp_path / "model.json"), format="json")
    assert np.abs(raw(again, data.X_new) - raw(edited, data.X_new)).max() < 1e-14
    assert adapt(again).frame_fingerprint() == adapt(model).frame_fingerprint()


@pytest.mark.parametrize("task", TASKS)
def test_probabilities_and_labels_are_those_of_the_outputs(task: str) -> None:
    data = table(task)
    model = trained(task, data)
    editable = adapt(model)
    theta = moved(editable.theta)
    edited, z = editable.edited(theta), editable.outputs(data.X_new, theta)
    if task == "real":
        close(edited.predict(data.X_new), z)
        return
    loss = get_loss(editable.loss_name or "")
    p = torch.softmax(z, 1) if task == "three" else torch.sigmoid(z)
    proba = edited.predict_proba(data.X_new)
    close(proba if task == "three" else proba[:, 1], p)
    assert np.array_equal(np.ravel(edited.predict(data.X_new)), loss.predict(z).numpy())


WEIGHTS: list[dict[str, Any]] = [
    {},
    {"class_weights": [2.0, 0.5]},
    {"scale_pos_weight": 3.0},
    {"auto_class_weights": "Balanced"},
    {"auto_class_weights": "SqrtBalanced"},
]


@pytest.mark.parametrize("weights", WEIGHTS, ids=lambda one: "-".join(one) or "none")
def test_the_objective_is_the_plain_weighted_loss(weights: dict[str, Any]) -> None:
    """One tree, its leaves taken to the minimum: the gradient vanishes, whatever l2_leaf_reg is."""
    data = table()
    model = trained("binary", data, weight=data.weight, **ONE_TREE, **weights)
    editable = adapt(model)
    y, weight = torch.as_tensor(data.y).double(), torch.as_tensor(data.weight)
    total = editable.row_weights(y, weight)
    assert total is not None
    linear = editable.linearize(data.X)
    slope = get_loss("binary_cross_entropy").slope(linear.outputs, y)
    plain = linear.vjp(slope * weight).abs().max()
    assert float(linear.vjp(slope * total).abs().max()) < 2e-2
    if weights:
        assert float(plain) > 1
    assert editable.l2(len(y), float(total.sum())) is None


ONE_TREE = {
    "iterations": 1,
    "learning_rate": 1.0,
    "leaf_estimation_iterations": 80,
    "leaf_estimation_method": "Newton",
    "leaf_estimation_backtracking": "No",
    "bootstrap_type": "No",
    "l2_leaf_reg": 5.0,
}


def test_influence_is_that_of_a_dense_reference() -> None:
    data = table(categories=True)
    data = with_words(data)
    model = trained("binary", data, iterations=3, depth=2, auto_class_weights="Balanced")
    fair = mitigate(model, data, solver="exact", sample_weight=data.weight)
    J = dense_jacobian(model, data.X, raw)[:, 0]
    J_val = dense_jacobian(model, data.X_new, raw)[:, 0]
    z, z_val = (torch.as_tensor(raw(model, X)) for X in (data.X, data.X_new))
    y = torch.as_tensor(data.y).double()
    w = torch.as_tensor(data.weight) * _balanced(model, data.y)
    p, p_val = torch.sigmoid(z), torch.sigmoid(z_val)
    H = (J * (w * p * (1 - p))[:, None]).T @ J / w.sum()
    H += 1e-2 * torch.eye(len(H)).double()
    b = torch.as_tensor(data.group_new == "b")
    sign = torch.where(b, 1 / b.sum(), -1 / (~b).sum()).double()
    sign = sign * torch.sign((sign * (z_val > 0)).sum())
    gradient = J_val.T @ (sign * p_val * (1 - p_val))
    expected = -(J @ torch.linalg.solve(H, gradient)) * w * (p - y) / w.sum()
    assert np.abs(fair.influence_ - expected.numpy()).max() < 1e-7 * float(expected.abs().max())


def _balanced(model: Any, y: np.ndarray) -> torch.Tensor:
    return torch.tensor(model.get_all_params()["class_weights"]).double()[torch.as_tensor(y)]


def test_influence_is_that_of_a_real_refit() -> None:
    """One tree of given splits: CatBoost's own leaves without a row, from the same splits."""
    data = table(rows=400)
    settings = ONE_TREE | {"l2_leaf_reg": 1e-6, "depth": 2}
    model = trained("binary", data, **settings)
    editable = adapt(model)
    leaves = np.asarray(model.calc_leaf_indexes(data.X))[:, 0]
    for row in (3, 57, 200):
        kept = np.arange(len(data.y)) != row
        # a feature of leaf numbers, so that the splits are those of the first tree
        codes = np.stack([(leaves >> bit) & 1 for bit in range(2)], 1).astype(float)
        refit = catboost.CatBoostClassifier(**quiet(**settings)).fit(codes[kept], data.y[kept])
        z = raw(refit, codes)
        change = torch.as_tensor(z) - editable.outputs(data.X)
        y = torch.as_tensor(data.y).double()
        linear = editable.linearize(data.X)
        p = torch.sigmoid(linear.outputs)
        g = linear.rows(torch.tensor([row]))[0, 0] * (p - y)[row]
        H = linear.gram((p * (1 - p))[:, None, None]) + 1e-9 * torch.eye(len(editable.theta))
        predicted = linear.jvp(torch.linalg.solve(H, g))
        own = leaves == leaves[row]
        ratio = (predicted[own] / change[own]).numpy()
        assert np.abs(ratio - 1).max() < 0.05
        assert float(predicted[~own].abs().max()) < 1e-9


def test_the_gap_falls_and_the_edit_can_be_undone(tmp_path: Path) -> None:
    data = with_words(table(categories=True, missing=True))
    model = trained("binary", data, iterations=15)
    before = raw(model, data.X_new)
    with pytest.warns(FairIJWarning, match="statistics of the label"):
        fair = mitigate(model, data)
    check_gap_falls(fair)
    assert isinstance(fair.estimator_, catboost.CatBoostClassifier)
    assert np.array_equal(raw(model, data.X_new), before)
    fair.edit_.save(tmp_path / "edit")
    model.save_model(str(tmp_path / "model.cbm"))
    loaded = catboost.CatBoostClassifier().load_model(str(tmp_path / "model.cbm"))
    edited = Edit.load(tmp_path / "edit").apply(loaded)
    assert np.array_equal(raw(edited, data.X_new), raw(fair.estimator_, data.X_new))
    undone = fair.edit_.undo(edited)
    assert np.array_equal(undone.get_leaf_values(), model.get_leaf_values())
    assert np.array_equal(raw(undone, data.X_new), before)


@pytest.mark.parametrize(
    ("task", "constraint"), [("three", "demographic_parity"), ("real", "mean_prediction")]
)
def test_other_tasks_end_to_end(task: str, constraint: str) -> None:
    data = table(task, missing=True)
    model = trained(task, data, iterations=10)
    fair = mitigate(model, data, constraints=constraint)
    check_gap_falls(fair, to=0.75)
    predicted = np.ravel(fair.estimator_.predict(data.X_new))
    assert np.allclose(fair.predict(data.X_new), predicted, atol=1e-9)


def test_catboost_reads_what_it_saved(tmp_path: Path) -> None:
    data = table()
    model = trained("binary", data)
    edited = adapt(model).edited(moved(adapt(model).theta))
    edited.save_model(str(tmp_path / "fair.cbm"))
    loaded = catboost.CatBoostClassifier().load_model(str(tmp_path / "fair.cbm"))
    assert np.array_equal(loaded.predict_proba(data.X_new), edited.predict_proba(data.X_new))


@pytest.mark.slow
def test_a_process_without_fairij_predicts_the_same(tmp_path: Path) -> None:
    data = table()
    model = trained("binary", data)
    edited = adapt(model).edited(moved(adapt(model).theta))
    edited.save_model(str(tmp_path / "fair.cbm"))
    np.save(tmp_path / "X.npy", data.X_new)
    code = """
import sys, numpy as np
from catboost import CatBoostClassifier
model = CatBoostClassifier().load_model(sys.argv[1] + "/fair.cbm")
np.save(sys.argv[1] + "/p.npy", model.predict_proba(np.load(sys.argv[1] + "/X.npy")))
assert "fairij" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert np.array_equal(np.load(tmp_path / "p.npy"), edited.predict_proba(data.X_new))


def test_words_as_labels_and_the_plain_class() -> None:
    data = table()
    y = np.where(data.y == 1, "yes", "no")
    model = catboost.CatBoost(quiet(loss_function="Logloss")).fit(data.X, y)
    editable = adapt(model)
    assert editable.classes is not None
    assert editable.classes.tolist() == ["no", "yes"]
    check_round_trip(model, data.X_new, raw, lambda edited: pickle.loads(pickle.dumps(edited)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss_function": "MAE"}, "got 'MAE'"),
        ({"loss_function": "Poisson"}, "got 'Poisson'"),
        ({"loss_function": "Quantile:alpha=0.3"}, "Quantile:alpha=0.3"),
    ],
)
def test_other_losses_are_refused(settings: dict[str, Any], message: str) -> None:
    data = table("real")
    model = catboost.CatBoostRegressor(**quiet(**settings)).fit(data.X, np.exp(data.y / 4))
    with pytest.raises(InvalidInputError, match=message):
        adapt(model)


def test_what_cannot_be_edited_is_refused() -> None:
    data = table("three")
    model = catboost.CatBoostClassifier(**quiet(loss_function="MultiClassOneVsAll"))
    with pytest.raises(InvalidInputError, match="must be fitted"):
        adapt(model)
    with pytest.raises(InvalidInputError, match="MultiClassOneVsAll"):
        adapt(model.fit(data.X, data.y))
    data = table()
    moved_threshold = trained("binary", data)
    moved_threshold.set_probability_threshold(0.3)
    with pytest.raises(InvalidInputError, match=r"set_probability_threshold\(0.5\)"):
        adapt(moved_threshold)
    import pandas as pd

    words = pd.DataFrame(data.X).assign(text=[f"word{n % 7} other{n % 5}" for n in range(600)])
    words.columns = words.columns.map(str)
    with_text = catboost.CatBoostClassifier(**quiet(text_features=["text"])).fit(words, data.y)
    with pytest.raises(InvalidInputError, match="text feature 'text'"):
        adapt(with_text)


def test_what_an_edit_does_not_keep_is_said() -> None:
    data = table()
    kept = trained("binary", data, eval_fraction=0.2, monotone_constraints=[1, 0, 0, 0, 0])
    said = " ".join(adapt(kept).caveats)
    assert "monotone constraints" in said
    assert "Early stopping kept some rows" in said
    ordered = trained("binary", data, boosting_type="Ordered")
    assert "ordered boosting" in " ".join(adapt(ordered).caveats)
    assert adapt(trained("binary", data, boosting_type="Plain")).caveats == ()
