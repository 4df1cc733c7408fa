"""scikit-learn's boosted trees: edited copies predict what the engine says."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from fairij import FairIJ
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.models import adapt
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

HISTOGRAM = {"real": HistGradientBoostingRegressor}
BOOSTED = {"real": GradientBoostingRegressor}
pytestmark = pytest.mark.filterwarnings(
    "ignore::fairij.errors.NotStationaryWarning",  # boosting stops short of a minimum
)


def histogram(task: str, data: Table, *, weight: Any = None, **settings: Any) -> Any:
    kind = HISTOGRAM.get(task, HistGradientBoostingClassifier)
    return kind(**({"max_iter": 8, "max_leaf_nodes": 7} | settings)).fit(data.X, data.y, weight)


def boosted(task: str, data: Table, *, weight: Any = None, **settings: Any) -> Any:
    kind = BOOSTED.get(task, GradientBoostingClassifier)
    return kind(**({"n_estimators": 8, "max_depth": 2} | settings)).fit(data.X, data.y, weight)


def margins(model: Any, X: Any) -> np.ndarray:
    return model.decision_function(X) if hasattr(model, "classes_") else model.predict(X)


def reload(model: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


def drawn(seed: int) -> tuple[str, Table, Any, np.random.Generator]:
    rng = np.random.default_rng(seed)
    task = TASKS[seed % 3]
    data = table(task, missing=bool(rng.integers(2)), categories=bool(rng.integers(2)), seed=seed)
    return task, data, data.weight if rng.integers(2) else None, rng


@pytest.mark.parametrize("seed", SEEDS)
def test_histogram_round_trip_of_random_configurations(seed: int) -> None:
    task, data, weight, rng = drawn(seed)
    model = histogram(
        task,
        data,
        weight=weight,
        max_leaf_nodes=int(rng.integers(2, 24)),
        max_depth=[None, 1, 4][rng.integers(3)],
        learning_rate=float(rng.uniform(0.05, 0.5)),
        l2_regularization=float(rng.choice([0.0, 3.0])),
        min_samples_leaf=int(rng.integers(1, 40)),
        max_bins=int(rng.choice([16, 255])),
        early_stopping=bool(rng.integers(2)),
        categorical_features="from_dtype",
        random_state=seed,
    )
    check_round_trip(model, data.X_new, margins, reload)


@pytest.mark.parametrize("seed", SEEDS)
def test_boosted_round_trip_of_random_configurations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    task = TASKS[seed % 3]
    data = table(task, seed=seed)
    model = boosted(
        task,
        data,
        weight=data.weight if rng.integers(2) else None,
        max_depth=int(rng.integers(1, 6)),
        max_leaf_nodes=[None, 9][rng.integers(2)],
        learning_rate=float(rng.uniform(0.05, 0.5)),
        subsample=float(rng.choice([1.0, 0.7])),
        init=[None, "zero"][rng.integers(2)],
        n_iter_no_change=[None, 2][rng.integers(2)],
        random_state=seed,
    )
    check_round_trip(model, data.X_new, margins, reload)


def test_a_first_estimator_that_sees_the_rows_stays() -> None:
    data = table()
    model = boosted("binary", data, init=LogisticRegression())
    check_round_trip(model, data.X_new, margins, reload)


@pytest.mark.parametrize("train", [histogram, boosted])
def test_probabilities_are_those_of_the_engine(train: Any) -> None:
    for task in ("binary", "three"):
        data = table(task)
        editable = adapt(train(task, data))
        theta = moved(editable.theta)
        z = editable.outputs(data.X_new, theta)
        p = torch.sigmoid(z) if task == "binary" else torch.softmax(z, 1)
        found = editable.edited(theta).predict_proba(data.X_new)
        close(found[:, 1] if task == "binary" else found, p)


@pytest.mark.parametrize("train", [histogram, boosted])
@pytest.mark.parametrize(
    ("task", "constraint"),
    [
        ("binary", "demographic_parity"),
        ("three", "demographic_parity"),
        ("real", "mean_prediction"),
    ],
)
def test_the_gap_falls_without_refitting_or_groups(train: Any, task: str, constraint: str) -> None:
    data = table(task)
    model = train(task, data)
    before = margins(model, data.X_new)
    fair = mitigate(model, data, constraints=constraint)
    check_gap_falls(fair, to=0.75 if task == "three" else 0.5)
    assert np.array_equal(margins(model, data.X_new), before)
    assert type(fair.estimator_) is type(model)
    assert np.allclose(fair.predict(data.X_new), fair.estimator_.predict(data.X_new), atol=1e-9)
    undone = fair.edit_.undo(fair.estimator_)
    assert np.array_equal(margins(undone, data.X_new), before)


def test_class_weights_are_part_of_the_objective() -> None:
    data = table()
    editable = adapt(histogram("binary", data, class_weight={0: 2.0, 1: 0.5}))
    y, weight = torch.as_tensor(data.y), torch.as_tensor(data.weight)
    factor = torch.where(y == 1, 0.5, 2.0).double()
    assert torch.allclose(editable.row_weights(y, weight), factor * weight)


@pytest.mark.parametrize(
    "model",
    [
        HistGradientBoostingRegressor(loss="absolute_error", max_iter=2),
        GradientBoostingRegressor(loss="huber", n_estimators=2),
        GradientBoostingClassifier(loss="exponential", n_estimators=2),
    ],
)
def test_other_losses_are_refused(model: Any) -> None:
    data = table()
    with pytest.raises(InvalidInputError, match=f"must be '.*', got '{model.loss}'"):
        adapt(model.fit(data.X, data.y))


@pytest.mark.parametrize("kind", [HistGradientBoostingClassifier, GradientBoostingClassifier])
def test_a_model_that_is_not_fitted_is_refused(kind: Any) -> None:
    with pytest.raises(NotFittedError):
        adapt(kind())


EARLY = [
    (HistGradientBoostingClassifier, {"early_stopping": True, "max_iter": 8}),
    (HistGradientBoostingRegressor, {"early_stopping": True, "max_iter": 8}),
    (GradientBoostingClassifier, {"n_estimators": 8}),
    (GradientBoostingRegressor, {"n_estimators": 8}),
]


@pytest.mark.parametrize(("kind", "settings"), EARLY)
def test_rows_that_early_stopping_held_back_have_no_influence(
    kind: Any, settings: dict[str, Any]
) -> None:
    real = kind in (HistGradientBoostingRegressor, GradientBoostingRegressor)
    data = table("real" if real else "binary")
    model = kind(random_state=3, n_iter_no_change=50, **settings)
    model.fit(data.X, data.y, data.weight)
    constraint = "mean_prediction" if real else "demographic_parity"
    fair = mitigate(model, data, constraints=constraint, sample_weight=data.weight)
    unused = np.flatnonzero(fair.influence_ == 0)
    assert len(unused) == 60  # a tenth

    for changed, is_same in ((unused, True), (unused + (1 if unused[-1] < 599 else -1), False)):
        X = data.X.copy()
        X[changed] = 5.0
        again = clone(model).fit(X, data.y, data.weight)
        assert np.array_equal(again.predict(data.X_new), model.predict(data.X_new)) == is_same


def test_rows_held_back_are_found_among_those_split_off() -> None:
    data = table()
    model = HistGradientBoostingClassifier(early_stopping=True, max_iter=8, random_state=3)
    model.fit(data.X, data.y)
    unused = np.flatnonzero(mitigate(model, data).influence_ == 0)
    fair = FairIJ(model, search="grid", selection="lowest_gap", verbose=False).fit(
        data.X, data.y, sensitive_features=data.group
    )
    some = np.isfinite(fair.influence_)
    assert np.array_equal(np.flatnonzero(fair.influence_ == 0), unused[some[unused]])
    assert 0 < some[unused].sum() < 60


def test_nothing_is_held_back_where_rows_to_stop_by_were_given() -> None:
    data = table()
    given = {"X_val": data.X_new, "y_val": data.y_new}
    for fraction in (0.1, None):
        model = HistGradientBoostingClassifier(
            early_stopping=True, max_iter=8, validation_fraction=fraction
        ).fit(data.X, data.y, **given)
        assert (mitigate(model, data).influence_ != 0).all()


@pytest.mark.parametrize(("kind", "settings"), EARLY)
def test_other_rows_than_those_fitted_are_warned_of(kind: Any, settings: dict[str, Any]) -> None:
    real = kind in (HistGradientBoostingRegressor, GradientBoostingRegressor)
    data = table("real" if real else "binary")
    model = kind(random_state=3, n_iter_no_change=50, **settings).fit(data.X, data.y)
    half = dataclasses.replace(data, X=data.X[:300], y=data.y[:300])
    constraint = "mean_prediction" if real else "demographic_parity"
    with pytest.warns(FairIJWarning, match="Give all training rows in their original order"):
        fair = mitigate(model, half, constraints=constraint)
    assert (fair.influence_ != 0).all()
    assert "Early stopping" in fair.diagnostics_["caveats"][0]  # for the page


def test_a_part_of_the_rows_drawn_for_each_tree_is_allowed_for() -> None:
    data = table()
    model = GradientBoostingClassifier(
        n_iter_no_change=50, n_estimators=8, subsample=0.7, random_state=3
    ).fit(data.X, data.y)
    assert (mitigate(model, data).influence_ == 0).sum() == 60


def test_without_a_seed_the_rows_held_back_are_warned_of() -> None:
    data = table()
    model = GradientBoostingClassifier(n_iter_no_change=5, n_estimators=15).fit(data.X, data.y)
    with pytest.warns(FairIJWarning, match="Early stopping kept some rows out of training"):
        mitigate(model, data)


def test_an_edit_of_a_monotone_model_is_warned_of() -> None:
    data = table()
    model = histogram("binary", data, monotonic_cst=[1, 0, 0, 0, 0])
    with pytest.warns(FairIJWarning, match="monotone constraints"):
        mitigate(model, data)
