"""Pipelines, searches and frozen estimators: the model inside is edited, the rest is kept."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from torch import nn

from biased import QUICK, fitted, problem
from fairij import Edit, FairIJ, Grid
from fairij.errors import InvalidInputError, WrongModelError
from fairij.method.types import FOLDS
from fairij.models import adapt

DATA = problem()
GAP = "demographic_parity_difference"


def people(part: str) -> pd.DataFrame:
    """A table as people hold it: text beside numbers, some missing."""
    X = DATA.X if part == "train" else DATA.X_val
    rng = np.random.default_rng(len(X))
    frame = pd.DataFrame(X[:, :3].astype("f8"), columns=["age", "hours", "debt"])
    frame["work"] = np.where(X[:, 0] > 1, "office", np.where(X[:, 3] > 0, "field", "home"))
    frame["city"] = rng.choice(["a", "b"], len(X))
    frame.loc[rng.random(len(X)) < 0.1, "hours"] = np.nan
    return frame


def preparation(*, sparse: bool = True) -> ColumnTransformer:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return ColumnTransformer(
        [
            ("text", OneHotEncoder(sparse_output=sparse), ["work", "city"]),
            ("numbers", numbers, ["age", "hours", "debt"]),
        ],
        sparse_threshold=1.0 if sparse else 0.0,
    )


def edit(model: Any, **settings: Any) -> FairIJ:
    search = Grid(points=8, scales=(1.0, 3.0, 10.0))
    fair = FairIJ(
        model, verbose=False, **({"search": search, "selection": "lowest_gap"} | settings)
    )
    return DATA.fit(fair, X=people("train"), X_val=people("validation"))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "last",
    [
        LogisticRegression(),
        MLPClassifier((4,), solver="lbfgs", alpha=1.0, max_iter=2000, random_state=0),
    ],
    ids=lambda last: type(last).__name__,
)
def test_a_raw_frame_with_text(last: Any, sparse: bool, tmp_path: Any) -> None:
    X, X_val = people("train"), people("validation")
    model = Pipeline([("prepare", preparation(sparse=sparse)), ("model", last)]).fit(X, DATA.y)
    before = pickle.dumps(model)
    fair = edit(model)
    assert fair.after_[GAP] < 0.6 * fair.before_[GAP]
    assert isinstance(fair.estimator_, Pipeline)
    assert type(fair.estimator_[-1]) is type(last)
    assert np.array_equal(fair.predict(X_val), fair.estimator_.predict(X_val))
    assert np.allclose(fair.predict_proba(X_val), fair.estimator_.predict_proba(X_val), atol=1e-9)
    assert pickle.dumps(model) == before
    reloaded = pickle.loads(pickle.dumps(fair.estimator_))
    assert np.array_equal(reloaded.predict_proba(X_val), fair.estimator_.predict_proba(X_val))
    saved = Edit.load(fair.edit_.save(tmp_path / "edit.safetensors"))
    undone = saved.undo(reloaded)  # known again after a round trip
    assert np.array_equal(undone.predict_proba(X_val), model.predict_proba(X_val))
    assert fair.feature_names_in_.tolist() == X.columns.tolist()


@pytest.mark.parametrize("validation", ["reuse", "split", "cross_fit"])
def test_each_table_is_prepared_once(validation: str) -> None:
    seen: list[int] = []

    def count(X: np.ndarray) -> np.ndarray:
        seen.append(len(X))
        return X

    model = make_pipeline(FunctionTransformer(count), LogisticRegression()).fit(DATA.X, DATA.y)
    seen.clear()
    DATA.fit(
        FairIJ(
            model, validation_use=validation, search=QUICK, selection="lowest_gap", verbose=False
        )
    )
    trial, train, held = 2, len(DATA.X), len(DATA.X_val)
    parts = {"reuse": [], "split": [held // 2] * 2, "cross_fit": folds(held)}[validation]
    assert seen == [trial, train, held, *parts]


def folds(rows: int) -> list[int]:
    return [rows - rows // FOLDS] * FOLDS + [rows // FOLDS] * FOLDS


def test_the_steps_are_kept_and_the_frame_sees_them() -> None:
    X = people("train")
    model = Pipeline([("prepare", preparation()), ("model", LogisticRegression())]).fit(X, DATA.y)
    fair = edit(model)
    kept, old = fair.estimator_["prepare"], model["prepare"]
    assert kept is not old
    assert np.array_equal(kept.transform(X).toarray(), old.transform(X).toarray())
    other = pickle.loads(pickle.dumps(model))
    other["prepare"].named_transformers_["numbers"][-1].mean_ += 1
    with pytest.raises(WrongModelError):
        fair.edit_.apply(other)


def test_texts() -> None:
    rng = np.random.default_rng(0)
    words = np.array([*"abcdefghij", "kind", "rude"])

    def comments(y: np.ndarray, sex: np.ndarray) -> list[str]:
        return [
            " ".join([*rng.choice(words[:10], 4), "rude" if label or her else "kind"]) + " word"
            for label, her in zip(y, (sex == "f") & (rng.random(len(sex)) < 0.5), strict=True)
        ]

    texts, held = comments(DATA.y, DATA.sex), comments(DATA.y_val, DATA.sex_val)
    model = make_pipeline(TfidfVectorizer(token_pattern=r"\w+"), LogisticRegression(C=10))
    model.fit(texts, DATA.y)
    for X, X_val in ((texts, held), (pd.Series(texts), pd.Series(held))):
        fair = DATA.fit(
            FairIJ(model, search=QUICK, selection="lowest_gap", verbose=False), X=X, X_val=X_val
        )
        assert fair.candidates_["gap"].min() < fair.candidates_["gap"][0]
        assert np.array_equal(fair.predict(X_val), fair.estimator_.predict(X_val))


@pytest.mark.parametrize("seed", range(8))
def test_random_pipelines_round_trip(seed: int) -> None:
    rng = np.random.default_rng(seed)
    middle = [
        ("passthrough"),
        PCA(3),
        FunctionTransformer(np.arctan),
        make_pipeline(StandardScaler()),
    ]
    last = [LogisticRegression(C=0.3), Ridge(), MLPClassifier((3,), solver="lbfgs", max_iter=900)]
    steps = [
        ("prepare", preparation(sparse=False)),
        ("middle", middle[rng.integers(4)]),
        ("last", last[rng.integers(3)]),
    ]
    X = people("train")
    model: Any = Pipeline(steps).set_output(transform=["default", "pandas"][rng.integers(2)])
    model.fit(X, DATA.y)
    if rng.random() < 0.5:
        model = make_pipeline("passthrough", model)  # one inside another
    editable = adapt(model)
    theta = editable.theta + 0.2 * torch.tensor(rng.normal(size=len(editable.theta)))
    edited = editable.edited(theta)
    z = editable.outputs(X, theta).numpy()
    if hasattr(edited, "predict_proba"):
        z = 1 / (1 + np.exp(-z))
    ours = edited.predict_proba(X)[:, 1] if hasattr(edited, "predict_proba") else edited.predict(X)
    assert np.allclose(z, ours, rtol=0, atol=1e-9)
    reloaded = adapt(pickle.loads(pickle.dumps(edited)))
    assert torch.equal(reloaded.theta, theta)
    assert reloaded.frame_fingerprint() == editable.frame_fingerprint()


def test_a_torch_module_in_a_pipeline() -> None:
    model = Pipeline([("model", fitted())])
    assert isinstance(adapt(model).edited(adapt(model).theta)[-1], nn.Module)


def test_a_search_is_edited_through_its_best_estimator() -> None:
    X, X_val = people("train"), people("validation")
    inside = Pipeline([("prepare", preparation()), ("model", LogisticRegression())])
    model = GridSearchCV(inside, {"model__C": [0.1, 1.0]}, cv=2).fit(X, DATA.y)
    fair = edit(model)
    assert isinstance(fair.estimator_, GridSearchCV)
    assert fair.after_[GAP] < 0.6 * fair.before_[GAP]
    assert np.array_equal(fair.predict(X_val), fair.estimator_.predict(X_val))
    assert fair.estimator_.best_estimator_ is not model.best_estimator_
    unfit = GridSearchCV(inside, {"model__C": [0.1]}, refit=False, cv=2).fit(X, DATA.y)
    with pytest.raises(InvalidInputError, match="fit it, with refit=True"):
        adapt(unfit)


def test_a_frozen_estimator_and_calibration_after_the_edit() -> None:
    inside = LogisticRegression().fit(DATA.X, DATA.y)
    fair = DATA.fit(
        FairIJ(FrozenEstimator(inside), search=QUICK, selection="lowest_gap", verbose=False)
    )
    assert isinstance(fair.estimator_, FrozenEstimator)
    assert np.array_equal(fair.predict(DATA.X_val), fair.estimator_.predict(DATA.X_val))
    calibrated = CalibratedClassifierCV(fair.estimator_).fit(DATA.X_val, DATA.y_val)
    for model in (calibrated, TunedThresholdClassifierCV(inside)):
        with pytest.raises(InvalidInputError, match=r"FrozenEstimator\(fair.estimator_\)"):
            adapt(model)


def test_what_is_refused() -> None:
    class Resampler:
        def fit_resample(self, X: Any, y: Any) -> Any: ...

    for steps, said in (
        ([("scale", StandardScaler()), ("model", "passthrough")], "must end in the model"),
        ([("more", Resampler()), ("model", LogisticRegression())], "must have `transform`"),
        ([("scale", StandardScaler())], "No family of models recognises 'StandardScaler'"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            adapt(Pipeline(steps))
    with pytest.raises(InvalidInputError, match="transformed after they are made"):
        adapt(TransformedTargetRegressor(Ridge()))


def test_a_table_that_the_steps_do_not_take() -> None:
    X, X_val = people("train"), people("validation")
    model = make_pipeline(preparation(), LogisticRegression()).fit(X, DATA.y)
    wrong = X_val.assign(work="nowhere")
    with pytest.raises(InvalidInputError, match="step 'columntransformer' must take `X_val`"):
        DATA.fit(FairIJ(model, selection="lowest_gap", verbose=False), X=X, X_val=wrong)
    short = {"X": X.drop(columns="age"), "X_val": X_val.drop(columns="age")}
    with pytest.raises(InvalidInputError, match="step 'columntransformer' must take `X`"):
        DATA.fit(FairIJ(model, selection="lowest_gap", verbose=False), **short)
