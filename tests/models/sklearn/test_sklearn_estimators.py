"""scikit-learn's linear models and perceptrons: the edited copy is the library's own model."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import (
    Lasso,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Ridge,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor

from biased import QUICK, problem
from fairij import Edit, Exact, FairIJ, Grid
from fairij.data.hashing import state_fingerprint
from fairij.errors import InvalidInputError, NotStationaryWarning, WrongModelError
from fairij.fairness import get_constraint
from fairij.fairness.groups import encode_groups
from fairij.method.objective import Objective, normalised_weights
from fairij.models import adapt
from fairij.models.contract import check_editable
from fairij.models.losses import get_loss
from sklearn_cases import FAMILIES, Case, fit, mlp_classifier

LINEAR = [name for name in FAMILIES if not name.startswith("mlp")]
SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 20))]
TIGHT = {"tol": 1e-10, "max_iter": 10_000}


def native(estimator: Any, X: Any) -> np.ndarray:
    """The estimator's own scores, in a form that the engine's outputs can be held against."""
    if hasattr(estimator, "predict_proba"):
        return estimator.predict_proba(X)
    return estimator.predict(X)


def engine(case: Case, theta: torch.Tensor) -> np.ndarray:
    editable = adapt(case.estimator)
    z = editable.outputs(case.X, theta)
    if editable.loss_name == "squared_error":
        return z.numpy()
    p = torch.sigmoid(z) if z.ndim == 1 else torch.softmax(z, 1)
    return (torch.stack([1 - p, p], 1) if z.ndim == 1 else p).numpy()


def objective(estimator: Any, X: Any, y: np.ndarray, weight: np.ndarray | None = None) -> Objective:
    """The training loss as `FairIJ` puts it together."""
    editable = adapt(estimator)
    target = y if editable.classes is None else np.searchsorted(editable.classes, y)
    target = torch.as_tensor(target).to(editable.theta)
    given = None if weight is None else torch.as_tensor(weight)
    given = editable.row_weights(target, given)
    l2 = editable.l2(len(y), len(y) if given is None else float(given.sum()))
    return Objective(
        editable.linearize(X),
        target,
        get_loss(editable.loss_name),
        normalised_weights(given, len(y), editable.theta),
        editable.theta,
        torch.zeros_like(editable.theta) if l2 is None else l2,
    )


# --- round trip -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_edited_copy_predicts_what_the_engine_does(family: str, seed: int) -> None:
    case = FAMILIES[family](seed)
    before = pickle.dumps(case.estimator)
    editable = adapt(case.estimator)
    generator = torch.Generator().manual_seed(seed)
    theta = editable.theta
    moved = theta + 0.3 * torch.randn(len(theta), generator=generator).to(theta)
    for at in (theta, moved):
        edited = editable.edited(at)
        assert type(edited) is type(case.estimator)
        ours, theirs = engine(case, at), native(edited, case.X)
        size = max(1.0, float(editable.outputs(case.X, at).abs().max()))
        assert np.allclose(ours, theirs, rtol=0, atol=case.tolerance * size)
        reloaded = pickle.loads(pickle.dumps(edited))
        assert np.array_equal(native(reloaded, case.X), theirs)
        assert torch.equal(adapt(reloaded).theta, at)
        assert adapt(reloaded).frame_fingerprint() == editable.frame_fingerprint()
    assert not np.allclose(native(edited, case.X), native(case.estimator, case.X), atol=1e-3)
    assert pickle.dumps(case.estimator) == before
    for name in ("coef_", "intercept_"):
        if hasattr(edited, name):
            old, new = getattr(case.estimator, name), getattr(edited, name)
            assert np.shape(old) == np.shape(new)
            if not family.startswith("sgd"):  # which keeps two precisions side by side
                assert np.asarray(old).dtype == np.asarray(new).dtype


@pytest.mark.parametrize("family", FAMILIES)
def test_an_edit_that_changes_nothing_is_exact(family: str) -> None:
    case = FAMILIES[family](3)
    same = adapt(case.estimator).edited(adapt(case.estimator).theta)
    assert np.array_equal(native(same, case.X), native(case.estimator, case.X))


# --- the Jacobian -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", LINEAR)
def test_any_settings_keep_the_contract(family: str, seed: int) -> None:
    case = FAMILIES[family](seed)
    check_editable(adapt(case.estimator), case.X)


def test_a_sparse_table_is_never_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    group = rng.choice(["f", "m"], 600)
    X = sp.random_array((600, 100_000), density=1e-4, format="csr", random_state=rng, dtype="f8")
    X = sp.hstack([X, sp.csr_array(rng.normal(size=(600, 3)) + (group == "m")[:, None])], "csr")
    y = (X[:, [-1]].toarray()[:, 0] + rng.logistic(size=600) > 0).astype(int)
    model = LogisticRegression(C=0.1).fit(X, y)

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("made dense")

    for kind in (sp.csr_array, sp.csc_array, sp.coo_array):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(kind, name, fail)
    fair = FairIJ(model, search=QUICK, selection="lowest_gap", verbose=False)
    fair.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:], sensitive_features_val=group[300:])
    gap = "demographic_parity_difference"
    assert fair.after_[gap] < fair.before_[gap] - 0.05
    assert np.array_equal(fair.predict(X), fair.estimator_.predict(X))


def test_a_bad_value_in_a_sparse_table_is_named() -> None:
    case = FAMILIES["ridge"](0)
    X = sp.lil_array((3, 5))
    X[1, 2] = np.nan
    with pytest.raises(InvalidInputError, match="`X` must be finite: row 1 holds"):
        adapt(case.estimator).outputs(X)


# --- the loss that the estimator minimised ----------------------------------------------------

TWO, THREE = problem("binary"), problem("three")


@pytest.mark.parametrize(
    ("model", "task", "weighted"),
    [
        (LogisticRegression(C=0.1, **TIGHT), "binary", False),
        (LogisticRegression(C=0.1, fit_intercept=False, **TIGHT), "binary", True),
        (LogisticRegression(C=np.inf, **TIGHT), "binary", False),
        (LogisticRegression(C=3.0, class_weight="balanced", **TIGHT), "binary", False),
        (LogisticRegression(C=3.0, class_weight="balanced", **TIGHT), "binary", True),
        (LogisticRegression(C=3.0, class_weight={1: 4.0}, **TIGHT), "binary", True),
        (LogisticRegression(solver="liblinear", intercept_scaling=2.0, **TIGHT), "binary", True),
        (LogisticRegression(solver="saga", C=0.05, **TIGHT), "binary", True),
        (LogisticRegression(C=0.1, class_weight={2: 3.0}, **TIGHT), "three", True),
        (
            LogisticRegressionCV(
                Cs=[0.01, 0.1],
                use_legacy_attributes=False,
                l1_ratios=(0.0,),
                scoring="accuracy",
                **TIGHT,
            ),
            "binary",
            True,
        ),
        (Ridge(alpha=7.0), "real", True),
        (Ridge(alpha=7.0, fit_intercept=False), "real", False),
        (RidgeCV(alphas=[5.0, 50.0]), "real", True),
        (LinearRegression(), "real", True),
        (
            MLPClassifier(
                (3,),
                solver="lbfgs",
                alpha=2.0,
                tol=1e-14,
                max_iter=20_000,
                max_fun=99_999,
                activation="tanh",
            ),
            "binary",
            True,
        ),
        (
            MLPRegressor(
                hidden_layer_sizes=(), solver="lbfgs", alpha=2.0, tol=1e-14, max_iter=20_000
            ),
            "real",
            False,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_gradient_is_zero_at_what_the_library_fitted(
    model: Any, task: str, weighted: bool
) -> None:
    data = problem(task)
    X, y = data.X.astype("f8"), data.y
    weight = np.random.default_rng(0).uniform(0.2, 3, len(y)) if weighted else None
    if hasattr(model, "random_state"):
        model.set_params(random_state=0)
    fitted = fit(model, X, y, sample_weight=weight)
    exact = objective(fitted, X, y, weight)
    assert exact.gradient.norm() < 2e-5


@pytest.mark.parametrize("weighted", [False, True])
def test_sgd_ends_near_the_minimum_of_what_it_says(weighted: bool) -> None:
    X, y = TWO.X.astype("f8"), TWO.y
    weight = np.random.default_rng(0).uniform(0.5, 6, len(y)) if weighted else None
    settings = {"alpha": 0.1, "average": True, "tol": None, "max_iter": 400, "random_state": 0}
    model = SGDClassifier("log_loss", class_weight="balanced", **settings)
    exact = objective(model.fit(X, y, sample_weight=weight), X, y, weight)
    without = exact.gradient - exact.l2 * exact.theta
    assert exact.gradient.norm() < 0.05 * without.norm()


def test_penalties_by_batch() -> None:
    case = mlp_classifier(0)
    count = len(adapt(case.estimator).theta)
    for solver, batch_size, expected in (
        ("lbfgs", "auto", 1 / 500),
        ("adam", "auto", 1 / 200),
        ("sgd", 50, 1 / 50),
        ("adam", 900, 1 / 500),
    ):
        case.estimator.set_params(solver=solver, batch_size=batch_size, alpha=1.0)
        l2 = adapt(case.estimator).l2(500, 500.0)
        weights = sum(coef.size for coef in case.estimator.coefs_)
        assert len(l2) == count
        assert int((l2 > 0).sum()) == weights
        assert float(l2.max()) == pytest.approx(expected)


# --- as if refitted ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "task", "constraint"),
    [
        (lambda: LogisticRegression(C=0.5, **TIGHT), "binary", "demographic_parity"),
        (
            lambda: LogisticRegression(C=0.5, class_weight={1: 3.0}, **TIGHT),
            "binary",
            "equalized_odds",
        ),
        (
            lambda: LogisticRegression(C=0.2, solver="liblinear", **TIGHT),
            "binary",
            "demographic_parity",
        ),
        (lambda: LogisticRegression(C=0.5, **TIGHT), "three", "demographic_parity_sum"),
        (lambda: Ridge(alpha=3.0), "real", "mean_prediction"),
        (LinearRegression, "real", "mean_prediction"),
    ],
)
def test_influence_matches_real_refits(make: Any, task: str, constraint: str) -> None:
    data = problem(task)
    X, y, X_val = data.X.astype("f8"), data.y, data.X_val.astype("f8")
    model = make().fit(X, y)
    fair = FairIJ(
        model,
        constraints=constraint,
        solver=Exact(),
        damping=1e-9,
        search=QUICK,
        selection="lowest_gap",
        verbose=False,
    )
    fair.fit(X, y, X_val=X_val, y_val=data.y_val, sensitive_features_val=data.sex_val)
    assert fair.diagnostics_["gradient_norm"] < 1e-6

    truth = torch.as_tensor(data.y_val, dtype=torch.float64)
    groups = encode_groups(data.sex_val)

    def surrogate(estimator: Any) -> float:
        z = adapt(estimator).outputs(X_val)
        ((gap, _),) = get_constraint(constraint).part_gradients(z, truth, groups, fair.loss_, 1.0)
        return gap

    chosen = np.random.default_rng(1).choice(len(X), 30, replace=False)
    before = surrogate(model)
    actual = [before - surrogate(make().fit(np.delete(X, n, 0), np.delete(y, n))) for n in chosen]
    predicted = fair.influence_[chosen]
    assert np.corrcoef(predicted, actual)[0, 1] >= 0.99
    assert predicted @ actual / (predicted @ predicted) == pytest.approx(1, abs=0.1)


# --- end to end -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "task", "constraint"),
    [
        (LogisticRegression(), "binary", "demographic_parity"),
        (LogisticRegression(class_weight="balanced"), "binary", "equal_opportunity"),
        (SGDClassifier("log_loss", average=True, random_state=0), "binary", "demographic_parity"),
        (
            MLPClassifier((4,), solver="lbfgs", alpha=1.0, random_state=0),
            "binary",
            "equalized_odds",
        ),
        (LogisticRegression(), "three", "demographic_parity"),
        (
            MLPClassifier((4,), solver="lbfgs", alpha=1.0, random_state=0),
            "three",
            "demographic_parity",
        ),
        (Ridge(), "real", "mean_prediction"),
        (LinearRegression(), "real", "mean_prediction"),
        (SGDRegressor(random_state=0), "real", "mean_prediction"),
        (
            MLPRegressor(hidden_layer_sizes=(4,), solver="lbfgs", alpha=1.0, random_state=0),
            "real",
            "mean_prediction",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
def test_the_gap_falls(model: Any, task: str, constraint: str, tmp_path: Any) -> None:
    data = problem(task)
    fitted = fit(model, data.X, data.y)
    sharpness = 3.0 if task == "three" else 1.0  # nearer to what argmax does
    search = Grid(points=12, scales=(1.0, 3.0, 10.0))
    fair = FairIJ(
        fitted,
        constraints=constraint,
        temperature=sharpness,
        search=search,
        selection="lowest_gap",
        verbose=False,
    )
    data.fit(fair)
    table = fair.candidates_
    assert table["gap"][fair.chosen_] < 0.6 * table["gap"][0]
    assert type(fair.estimator_) is type(fitted)
    theirs = fair.estimator_.predict(data.X_val)
    if task == "real":
        assert np.allclose(fair.predict(data.X_val), theirs, atol=1e-4)
    else:
        assert np.array_equal(fair.predict(data.X_val), theirs)
        proba = fair.estimator_.predict_proba(data.X_val)
        assert np.allclose(fair.predict_proba(data.X_val), proba, atol=1e-5)
        assert np.array_equal(fair.classes_, fitted.classes_)
    assert fair.__sklearn_tags__().estimator_type == ("classifier", "regressor")[task == "real"]
    edit = Edit.load(fair.edit_.save(tmp_path / "edit.safetensors"))
    applied = edit.apply(fitted)
    assert np.array_equal(native(applied, data.X), native(fair.estimator_, data.X))
    assert torch.equal(adapt(edit.undo(applied)).theta, adapt(fitted).theta)
    with pytest.raises(WrongModelError):
        edit.undo(fitted)


@pytest.mark.parametrize("names", [("no", "yes"), (-1, 1), (False, True), (5, 2)])
def test_labels_of_any_kind(names: tuple[Any, Any]) -> None:
    y, y_val = (np.array(names)[part] for part in (TWO.y, TWO.y_val))
    fitted = LogisticRegression().fit(TWO.X, y)
    fair = TWO.fit(
        FairIJ(fitted, search=QUICK, selection="lowest_gap", verbose=False), y=y, y_val=y_val
    )
    assert np.array_equal(fair.predict(TWO.X_val), fair.estimator_.predict(TWO.X_val))
    assert fair.predict(TWO.X_val).dtype == fitted.classes_.dtype
    assert fair.score(TWO.X_val, y_val) == fair.estimator_.score(TWO.X_val, y_val)


def test_classes_are_the_estimators_even_where_rows_of_one_are_missing() -> None:
    y, y_val = THREE.y + 1, THREE.y_val + 1
    fitted = LogisticRegression().fit(THREE.X, y)
    part = y < 3  # labels 1 and 2 alone would pass for the indices of outputs
    fair = FairIJ(fitted, search=QUICK, selection="lowest_gap", verbose=False)
    with pytest.warns(NotStationaryWarning):
        THREE.fit(fair, X=THREE.X[part], y=y[part], y_val=y_val)
    assert fair.classes_.tolist() == [1, 2, 3]
    assert np.array_equal(fair.predict(THREE.X_val), fair.estimator_.predict(THREE.X_val))


def test_the_penalty_spares_the_intercept() -> None:
    model = LogisticRegression(C=0.5).fit(TWO.X, TWO.y)
    own = adapt(model).l2(240, 240.0)
    assert torch.allclose(own[:-1], torch.tensor(1 / 120).to(own))
    assert own[-1] == 0


def test_columns_must_be_those_of_the_estimator() -> None:
    model = LogisticRegression().fit(TWO.X, TWO.y)
    with pytest.raises(InvalidInputError, match="expected 4, got 3"):
        adapt(model).outputs(TWO.X[:, :3])
    with pytest.raises(InvalidInputError, match="must have the 4 columns"):
        adapt(model).outputs(TWO.X[:, :3].tolist())


# --- what is refused --------------------------------------------------------------------------


X, Y, Y3 = TWO.X, TWO.y, THREE.y
TARGETS = np.column_stack([Y, X[:, 0]])
MANY = make_multilabel_classification(len(X), random_state=0)[1]
SMALL = {"hidden_layer_sizes": (2,), "max_iter": 2}

REFUSED: list[tuple[str, Callable[[], Any]]] = [
    ("L1 penalty", lambda: fit(LogisticRegression(l1_ratio=1.0, solver="saga"), X, Y)),
    ("L1 penalty", lambda: fit(LogisticRegression(l1_ratio=0.5, solver="saga"), X, Y)),
    ("L1 penalty", lambda: fit(SGDClassifier("log_loss", penalty="elasticnet"), X, Y)),
    ("train Ridge instead", Lasso),
    ("its loss is 'hinge'", lambda: fit(SGDClassifier(), X, Y)),
    ("its loss is 'huber'", lambda: fit(SGDRegressor("huber"), X, Y)),
    ("one-vs-rest", lambda: fit(SGDClassifier("log_loss"), X, Y3)),
    ("several models", lambda: OneVsRestClassifier(LogisticRegression())),
    ("2 targets at once", lambda: Ridge().fit(X, TARGETS)),
    ("2 targets at once", lambda: fit(MLPRegressor(**SMALL), X, TARGETS)),
    ("5 targets at once", lambda: fit(MLPClassifier(**SMALL), X, MANY)),
    ("its loss is 'poisson'", lambda: fit(MLPRegressor("poisson", **SMALL), X, Y + 1)),
    ("positive=True", lambda: LinearRegression(positive=True).fit(X, Y)),
    ("`densify()`", lambda: fit(SGDClassifier("log_loss"), X, Y).sparsify()),
    ("torch.nn.Module, LogisticRegression", KNeighborsClassifier),
    ("fairij.models.Editable", KNeighborsClassifier),
]


@pytest.mark.parametrize(("reason", "make"), REFUSED)
def test_refusals_say_why(reason: str, make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        adapt(make())
    assert reason in str(caught.value)


def test_other_refusals() -> None:
    with pytest.raises(NotFittedError):
        adapt(LogisticRegression())
    model = LogisticRegression().fit(TWO.X, TWO.y)
    with pytest.raises(InvalidInputError, match="are edited together"):
        adapt(model, parameters=["coef_"])
    assert len(adapt(model, parameters=["coef_", "intercept_"]).theta) == 5


def test_an_unconverged_network_is_told_of() -> None:
    model = fit(MLPClassifier((4,), max_iter=3, random_state=0), TWO.X, TWO.y)
    with pytest.warns(NotStationaryWarning):
        TWO.fit(FairIJ(model, search=QUICK, selection="lowest_gap", verbose=False))


def test_an_edit_of_float32_coefficients_is_undone_to_the_last_bit() -> None:
    narrow = X.astype(np.float32)
    model = fit(SGDClassifier("log_loss", random_state=0), narrow, Y)
    assert model.coef_.dtype == np.float32
    editable = adapt(model)
    edited = editable.edited(editable.theta + 0.1)
    assert edited.coef_.dtype == np.float64
    undone = adapt(edited).edited(editable.theta)
    assert undone.coef_.dtype == np.float32
    assert np.array_equal(undone.predict_proba(narrow), model.predict_proba(narrow))


def test_the_frame_sees_what_matters() -> None:
    models = (
        LogisticRegression(),
        LogisticRegression(C=2.0),
        SGDClassifier("log_loss", random_state=0),
        MLPClassifier((2,), max_iter=2, random_state=0),
        MLPClassifier((2,), max_iter=2, random_state=0, activation="tanh"),
    )
    frames = [adapt(fit(model, X, Y)).frame_fingerprint() for model in models]
    assert len(set(frames)) == len(models)
    again = [adapt(fit(clone(model), X, Y)).frame_fingerprint() for model in models]
    assert again == frames


def test_fingerprints_of_any_state() -> None:
    cycle: dict[str, Any] = {"a": [1, np.arange(3.0)], "f": np.log1p, "s": {"x", "y"}}
    cycle |= {"self": cycle, "o": np.array(["p", None], object), "m": sp.eye_array(3).tocsr()}
    found = state_fingerprint(cycle)
    assert found == state_fingerprint(pickle.loads(pickle.dumps(cycle)))
    changes = {"a": [1, np.ones(3)], "f": np.exp, "s": {"x"}, "m": 2 * cycle["m"], "o": [None]}
    assert found not in {state_fingerprint({**cycle, key: new}) for key, new in changes.items()}


def test_frames_and_joblib(tmp_path: Any) -> None:
    names = ["a", "b", "c", "d"]
    frame, held = pd.DataFrame(TWO.X, columns=names), pd.DataFrame(TWO.X_val, columns=names)
    model = LogisticRegression().fit(frame, TWO.y)
    fair = TWO.fit(
        FairIJ(model, search=QUICK, selection="lowest_gap", verbose=False), X=frame, X_val=held
    )
    assert np.array_equal(fair.predict(held), fair.estimator_.predict(held))
    joblib.dump(fair.estimator_, tmp_path / "model.joblib")
    reloaded = joblib.load(tmp_path / "model.joblib")
    assert np.array_equal(native(reloaded, held), native(fair.estimator_, held))
    with pytest.raises(InvalidInputError, match="expected 'a' at place 0, got 'd'"):
        adapt(model).outputs(frame[names[::-1]])


@pytest.mark.parametrize("kind", [SGDClassifier, MLPClassifier])
def test_rows_held_back_by_early_stopping_are_warned_of(kind: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
    settings = {"loss": "log_loss"} if kind is SGDClassifier else {"max_iter": 20}
    for early in (True, False):
        model = kind(early_stopping=early, random_state=0, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
        assert len(adapt(model).caveats) == early
    whole = MLPClassifier(early_stopping=True, solver="lbfgs", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole.fit(X, y)
    assert not adapt(whole).caveats  # which has no use for it
