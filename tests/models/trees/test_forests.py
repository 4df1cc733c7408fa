"""scikit-learn's trees and forests: edited copies predict what the engine says, in shares."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fairij.errors import FairIJWarning, InvalidInputError
from fairij.models import adapt
from fairij.models.trees.shares import LEAST, Shares
from fairij.storage.edits import Edit
from tree_cases import Table, check_gap_falls, check_round_trip, close, mitigate, table

APART = pytest.mark.filterwarnings("ignore:The model averages trees:fairij.errors.FairIJWarning")
pytestmark = [
    pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning"),
    pytest.mark.filterwarnings("ignore:The search went:fairij.errors.FairIJWarning"),
    APART,
]

CLASSIFIERS = {
    "tree": DecisionTreeClassifier(max_depth=4, random_state=0),
    "forest": RandomForestClassifier(8, max_depth=5, random_state=0),
    "full forest": RandomForestClassifier(6, random_state=0),
    "extra trees": ExtraTreesClassifier(7, min_samples_leaf=3, random_state=0),
    "bagged": BaggingClassifier(
        DecisionTreeClassifier(max_depth=5), 5, max_features=0.6, random_state=0
    ),
}
REGRESSORS = {
    "tree": DecisionTreeRegressor(max_depth=4, random_state=0),
    "forest": RandomForestRegressor(8, random_state=0),
    "extra trees": ExtraTreesRegressor(7, min_samples_leaf=3, random_state=0),
    "bagged": BaggingRegressor(DecisionTreeRegressor(max_depth=5), 5, random_state=0),
}


def log_odds(model: Any, X: Any) -> np.ndarray:
    """What the forest's own probabilities say; a straight line near 0."""
    if not hasattr(model, "classes_"):
        return np.asarray(model.predict(X))
    p = model.predict_proba(X)
    log = np.log(np.maximum(p, LEAST)) - np.maximum(LEAST - p, 0) / LEAST
    return log[:, 1] - log[:, 0] if p.shape[1] == 2 else log


def reload(model: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


def shares(model: Any) -> np.ndarray:
    trees = model.estimators_ if hasattr(model, "estimators_") else [model]
    return np.concatenate([tree.tree_.value[:, 0, :] for tree in trees])


@pytest.mark.parametrize("task", ["binary", "three"])
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_round_trip_of_classifiers(kind: str, task: str) -> None:
    data = table(task, missing=kind == "forest")
    model = CLASSIFIERS[kind].fit(data.X, data.y)
    check_round_trip(model, data.X_new, log_odds, reload)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_round_trip_of_regressors(kind: str) -> None:
    data = table("real", categories=False)
    check_round_trip(REGRESSORS[kind].fit(data.X, data.y), data.X_new, log_odds, reload)


def test_the_nearest_shares_are_those_of_a_search() -> None:
    rng = np.random.default_rng(0)
    asked = torch.from_numpy(rng.normal(0.3, 0.6, (40, 3)))
    found = Shares(3).nearest(asked)
    assert float((found.sum(1) - 1).abs().max()) < 1e-12
    assert float(found.min()) >= 0
    others = torch.from_numpy(rng.dirichlet(np.ones(3), 20000))
    best = torch.cdist(asked, others).min(1).values
    assert bool(((asked - found).norm(dim=1) <= best + 1e-12).all())
    kept = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.0, 1.0, 0.0]], dtype=torch.float64)
    assert torch.equal(Shares(3).nearest(kept), kept)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_ties_are_decided_as_the_forest_does(kind: str) -> None:
    """Half of the trees for each class: the first one is predicted."""
    data = table()
    X, y = np.round(data.X), data.y
    model = CLASSIFIERS[kind].fit(X, y)
    z = adapt(model).outputs(np.round(data.X_new))
    assert np.array_equal((z > 0).numpy(), model.predict(np.round(data.X_new)) == 1)


def dense(editable: Any, model: Any, X: Any) -> torch.Tensor:
    """``dp_1 / dtheta`` from leaves and blocks: slow and obvious."""
    blocks, trees = editable._blocks, model.estimators_
    leaves = np.stack([tree.apply(X) for tree in trees], 1)
    starts = np.cumsum([0, *(int((t.tree_.children_left == -1).sum()) for t in trees)])
    J = torch.zeros(len(X), len(editable.theta), dtype=torch.float64)
    for t, tree in enumerate(trees):
        numbers = np.flatnonzero(tree.tree_.children_left == -1)
        for n, node in enumerate(leaves[:, t]):
            leaf = starts[t] + int(np.searchsorted(numbers, node))
            for place, sign in ((2 * leaf, -0.5), (2 * leaf + 1, 0.5)):
                block = int(blocks.of[place])
                J[n, place] += sign / len(trees)
                J[n, 2 * starts[-1] + block] += sign / len(trees) * float(blocks.gain[block])
    return J


def test_influence_is_that_of_a_dense_reference() -> None:
    data = table(rows=300, new=200)
    model = RandomForestClassifier(4, max_depth=3, class_weight={0: 1, 1: 2}, random_state=0)
    model.fit(data.X, data.y, data.weight)
    fair = mitigate(model, data, solver="exact", sample_weight=data.weight)
    editable = adapt(model)
    J, J_val = dense(editable, model, data.X.astype("f4")), dense(editable, model, data.X_new)
    p = torch.from_numpy(model.predict_proba(data.X)[:, 1])
    y = torch.as_tensor(data.y).double()
    w = torch.as_tensor(data.weight) * (1 + y)
    H = (J * w[:, None]).T @ J / w.sum() + 1e-2 * torch.eye(len(editable.theta)).double()
    b = torch.as_tensor(data.group_new == "b")
    sign = torch.where(b, 1 / b.sum(), -1 / (~b).sum()).double()
    hard = torch.from_numpy(model.predict(data.X_new)).double()
    gradient = J_val.T @ (sign * torch.sign((sign * hard).sum()))
    expected = -(J @ torch.linalg.solve(H, gradient)) * w * (p - y) / w.sum()
    assert np.abs(fair.influence_ - expected.numpy()).max() < 1e-7 * float(expected.abs().max())


@pytest.mark.parametrize("kind", [DecisionTreeClassifier, DecisionTreeRegressor])
def test_influence_is_that_of_a_real_refit_of_one_tree(kind: Any) -> None:
    """A tree is at its minimum: without a row, the tree of the same leaves moves as predicted."""
    data = table("binary" if kind is DecisionTreeClassifier else "real", rows=400)
    model = kind(max_depth=2, min_samples_leaf=40, random_state=0).fit(data.X, data.y)
    editable = adapt(model)
    codes = model.apply(data.X)[:, None].astype(float)

    def predicted(fitted: Any, X: Any) -> np.ndarray:
        return fitted.predict_proba(X)[:, 1] if hasattr(fitted, "classes_") else fitted.predict(X)

    first = predicted(model, data.X)
    for row in (3, 57, 200):
        kept = np.arange(400) != row
        refit = kind(random_state=0).fit(codes[kept], data.y[kept])
        change = torch.from_numpy(predicted(refit, codes) - first)
        linear = editable.linearize(data.X)
        J = linear.rows(torch.arange(400))[:, 0]
        if hasattr(model, "classes_"):
            p = torch.from_numpy(first)
            J = J * (p * (1 - p))[:, None]  # of p, not of the log-odds
        off = torch.from_numpy(first - data.y)
        H = J.T @ J + 1e-9 * torch.eye(J.shape[1]).double()
        moved = J @ torch.linalg.solve(H, J[row] * off[row])
        own = model.apply(data.X) == model.apply(data.X)[row]
        ratio = (moved[own] / change[own]).numpy()
        assert np.abs(ratio - 1).max() < 0.05
        assert float(moved[~own].abs().max()) < 1e-6


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("full forest", "bagged")))
        for kind in CLASSIFIERS
    ],
)
def test_the_gap_falls_and_leaves_hold_shares(kind: str, tmp_path: Path) -> None:
    data = table()
    model = CLASSIFIERS[kind].fit(data.X, data.y)
    before = model.predict_proba(data.X_new)
    fair = mitigate(model, data, search="constrained")
    check_gap_falls(fair)
    assert np.array_equal(fair.predict(data.X_new), fair.estimator_.predict(data.X_new))
    close(
        fair.estimator_.predict_proba(data.X_new), torch.as_tensor(fair.predict_proba(data.X_new))
    )
    found = shares(fair.estimator_)
    assert found.min() >= 0
    assert np.abs(found.sum(1) - 1).max() < 1e-9
    fair.edit_.save(tmp_path / "edit")
    edited = Edit.load(tmp_path / "edit").apply(model)
    assert np.array_equal(shares(edited), found)
    undone = fair.edit_.undo(edited)
    assert np.array_equal(shares(undone), shares(model))
    assert np.array_equal(undone.predict_proba(data.X_new), before)


@pytest.mark.parametrize(
    ("task", "constraint"), [("three", "demographic_parity"), ("real", "mean_prediction")]
)
def test_other_tasks_end_to_end(task: str, constraint: str) -> None:
    data = table(task)
    kind = RandomForestRegressor if task == "real" else RandomForestClassifier
    model = kind(10, min_samples_leaf=5, random_state=0).fit(data.X, data.y)
    fair = mitigate(model, data, constraints=constraint, search="constrained")
    check_gap_falls(fair, to=0.75)
    assert np.allclose(fair.predict(data.X_new), fair.estimator_.predict(data.X_new), atol=1e-9)


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    """An edited forest, in a file of `tmp_path`."""
    skops = pytest.importorskip("skops.io")
    data = table()
    model = RandomForestClassifier(5, max_depth=4, random_state=0).fit(data.X, data.y)
    editable = adapt(model)
    edited = editable.edited(editable.theta * 0.5 + 0.25)
    skops.dump(edited, tmp_path / "fair.skops")
    return edited


def test_a_saved_forest_is_of_scikit_learn_alone(tmp_path: Path, saved: Any) -> None:
    import skops.io

    trusted = ["sklearn.tree._tree.Tree"]
    assert skops.io.get_untrusted_types(file=tmp_path / "fair.skops") == trusted
    loaded = skops.io.load(tmp_path / "fair.skops", trusted=trusted)
    X = table().X_new
    assert np.array_equal(loaded.predict_proba(X), saved.predict_proba(X))


@pytest.mark.slow
def test_a_process_without_fairij_predicts_the_same(tmp_path: Path, saved: Any) -> None:
    X = table().X_new
    np.save(tmp_path / "X.npy", X)
    code = """
import sys, numpy as np, skops.io
model = skops.io.load(sys.argv[1] + "/fair.skops", trusted=["sklearn.tree._tree.Tree"])
np.save(sys.argv[1] + "/p.npy", model.predict_proba(np.load(sys.argv[1] + "/X.npy")))
assert "fairij" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert np.array_equal(np.load(tmp_path / "p.npy"), saved.predict_proba(X))


@pytest.mark.filterwarnings("default:The model averages trees:fairij.errors.FairIJWarning")
def test_what_an_average_of_trees_means_is_said() -> None:
    data = table()
    with pytest.warns(FairIJWarning, match="fitted apart"):
        mitigate(CLASSIFIERS["forest"].fit(data.X, data.y), data, search="constrained")
    assert adapt(CLASSIFIERS["tree"].fit(data.X, data.y)).caveats == ()
    rising = RandomForestClassifier(2, monotonic_cst=[1, 0, 0, 0, 0]).fit(data.X, data.y)
    assert "monotone constraints" in adapt(rising).caveats[1]


def test_balanced_class_weights_count() -> None:
    data = table()
    y = torch.as_tensor(data.y)
    for model in (
        RandomForestClassifier(3, class_weight="balanced_subsample"),
        BaggingClassifier(DecisionTreeClassifier(class_weight="balanced"), 3),
    ):
        weight = adapt(model.fit(data.X, data.y)).row_weights(y, None)
        assert weight is not None
        assert float(weight[y == 1].sum()) == pytest.approx(float(weight[y == 0].sum()))


def several_targets(data: Table) -> Any:
    return RandomForestRegressor(2).fit(data.X, data.X[:, :2])


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (several_targets, "2 targets at once"),
        (
            lambda data: RandomForestRegressor(2, criterion="absolute_error").fit(data.X, data.y),
            "criterion is 'absolute_error'",
        ),
        (
            lambda data: BaggingClassifier(LogisticRegression(), 2).fit(data.X, data.y),
            "made of LogisticRegression models",
        ),
        (lambda data: IsolationForest(n_estimators=2).fit(data.X), "without labels"),
    ],
)
def test_what_cannot_be_edited_is_refused(fit: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        adapt(fit(table()))
