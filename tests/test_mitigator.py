"""`FairIJ`: scores and edits against dense float64 references, and its scikit-learn manners."""

from __future__ import annotations

import copy
import pickle
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
import torch
from fairlearn import metrics as fairlearn_metrics
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import Tensor, nn

from biased import L2, QUICK, Problem, fair, fitted, mlp, problem, train
from fairij import (
    AccuracyBudget,
    AllPositive,
    ConjugateGradient,
    FairIJ,
    Grid,
    Neumann,
    Sequential,
    TargetGap,
    Woodbury,
)
from fairij.errors import SeenRowsWarning, SmallGroupWarning
from fairij.method.influence import RIDGE
from fairij.method.selection import Measures, SelectionDefaults
from fairij.method.types import FOLDS
from fairij.method.types import assigned as parted
from fairij.models.losses import SquaredError, get_loss
from reference import Case

DAMPING = 1e-2


@pytest.fixture(scope="session")
def data() -> Problem:
    return problem()


@pytest.fixture(scope="session")
def parity(data: Problem) -> FairIJ:
    """The plain use, fitted once; tests must not change it."""
    return data.fit(fair())


def probability_gap(outputs: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    p = torch.sigmoid(outputs)
    return (p[groups == 1].mean() - p[groups == 0].mean()).abs()


# --- against dense float64 references ---------------------------------------------------------


def plain_gap(constraint: str, z: Tensor, y: np.ndarray, groups: np.ndarray, T: float) -> Tensor:
    """Each surrogate in loops, by its definition."""
    names = np.unique(groups)

    def spread(values: Tensor, rows: np.ndarray) -> Tensor:
        means = [values[torch.tensor(rows & (groups == name))].mean() for name in names]
        return max(means) - min(means)

    everyone = np.ones(len(y), dtype=bool)
    if constraint == "mean_prediction":
        return spread(z, everyone)
    if constraint == "mean_error":
        return spread(z - torch.tensor(y), everyone)
    if z.ndim == 1:
        columns = {1: torch.sigmoid(T * z)}
    else:
        columns = dict(enumerate(torch.softmax(T * z, 1).T))
    parity = [spread(score, everyone) for score in columns.values()]
    true = [spread(score, y == label) for label, score in columns.items()]
    false = [spread(score, y != label) for label, score in columns.items()]
    return {
        "demographic_parity": max(parity),
        "demographic_parity_sum": sum(parity),
        "equal_opportunity": max(true),
        "equalized_odds": sum(true) + sum(false),
        "equalized_odds_worst_case": max(true + false),
        "equalized_odds_mean": sum(true + false) / len(true + false),
    }[constraint]


class Last(SelectionDefaults):
    """Take the last candidate, whatever it does."""

    def choose(self, candidates: Measures) -> int:
        return len(candidates["gap"]) - 1


@cache
def dense(task: str) -> Case:
    return dense_of(fitted(task), task)


@cache
def dense_inverse(task: str) -> Tensor:
    return inverse_of(dense(task))


def inverse_of(case: Case) -> Tensor:
    return torch.linalg.inv(case.ggn() + DAMPING * torch.eye(len(case.theta)).double())


def dense_of(module: nn.Module, task: str = "binary", weight: np.ndarray | None = None) -> Case:
    data = problem(task)
    loss = get_loss(
        {"binary": "binary_cross_entropy", "three": "softmax_cross_entropy"}.get(
            task, "squared_error"
        )
    )
    return Case(
        copy.deepcopy(module).double(),
        torch.tensor(data.X).double(),
        torch.tensor(data.y).double(),
        loss,
        None if weight is None else torch.tensor(weight).double(),
        L2,
    )


def dense_scores(
    case: Case,
    inverse: Tensor,
    data: Problem,
    constraint: str,
    groups: np.ndarray,
    T: float = 1.0,
) -> np.ndarray:
    """The influence of every row; of several groups, on the gaps of the largest with each other.

    Those are weighted so that one step closes all of them.
    """
    names, sizes = np.unique(groups, return_counts=True)
    largest = names[sizes.argmax()]
    theta = case.theta.clone().requires_grad_()
    z = case.outputs(theta, torch.tensor(data.X_val).double())
    gaps, gradients = [], []
    for other in names[names != largest]:
        pair = np.isin(groups, (largest, other))
        gap = plain_gap(constraint, z[torch.tensor(pair)], data.y_val[pair], groups[pair], T)
        gaps.append(gap.detach())
        gradients.append(torch.autograd.grad(gap, theta, retain_graph=True)[0])
    G = torch.stack(gradients, 1)
    gram = G.T @ inverse @ G
    gram += RIDGE * gram.diagonal().mean() * torch.eye(len(gaps))
    weights = torch.linalg.solve(gram, torch.stack(gaps))
    gradient = G @ (weights * len(gaps) / weights.abs().sum())
    return -(case.w * (case.gradients() @ inverse @ gradient)).numpy()


def theta_of(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


TARGETS = [
    ("binary", "demographic_parity", "sex", 1.0),
    ("binary", "demographic_parity", "race", 3.0),
    ("binary", "equalized_odds", "sex", 1.0),
    ("binary", "equalized_odds", "race", 2.0),
    ("binary", "equalized_odds_worst_case", "sex", 1.0),
    ("binary", "equalized_odds_mean", "sex", 1.0),
    ("binary", "equal_opportunity", "sex", 3.0),
    ("three", "demographic_parity", "sex", 1.0),
    ("three", "demographic_parity_sum", "race", 2.0),
    ("three", "equalized_odds", "sex", 1.0),
    ("three", "equal_opportunity", "sex", 1.0),
    ("real", "mean_prediction", "race", 1.0),
    ("real", "mean_error", "sex", 1.0),
]


@pytest.mark.parametrize(("task", "constraint", "column", "temperature"), TARGETS)
def test_scores_and_edit_equal_dense_algebra(
    task: str, constraint: str, column: str, temperature: float
) -> None:
    data = problem(task)
    groups = getattr(data, f"{column}_val")
    model = data.fit(
        fair(
            copy.deepcopy(fitted(task)).double(),
            constraints=constraint,
            temperature=temperature,
            loss="squared_error" if task == "real" else "auto",
            solver="exact",
            damping=DAMPING,
            search=Grid(k=(7, 40), scales=(1.0, 2.5)),
            selection=Last(),
        ),
        sensitive_features_val=groups,
    )
    case, inverse = dense(task), dense_inverse(task)
    scores = dense_scores(case, inverse, data, constraint, groups, temperature)
    joint = model.joint_influence_  # by which rows are dropped, with several gaps
    found = model.influence_ if joint is None else joint
    np.testing.assert_allclose(found, scores, rtol=1e-6, atol=1e-9)

    assert model.dropped_.tolist() == np.argsort(-scores, kind="stable")[:40].tolist()
    pull = (case.w[:, None] * case.gradients())[model.dropped_].sum(0)
    moved = case.theta + 2.5 * inverse @ pull
    torch.testing.assert_close(theta_of(model.estimator_), moved, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("constraint", "metric"),
    [
        ("demographic_parity", fairlearn_metrics.demographic_parity_difference),
        ("equal_opportunity", fairlearn_metrics.equal_opportunity_difference),
        ("equalized_odds_worst_case", fairlearn_metrics.equalized_odds_difference),
    ],
)
def test_the_returned_model_has_the_gap_that_was_chosen(
    data: Problem, constraint: str, metric: Any
) -> None:
    model = data.fit(fair(constraints=constraint, search="grid"))
    with torch.no_grad():
        hard = {
            "before": (fitted()(torch.tensor(data.X_val))[:, 0] > 0).numpy(),
            "after": (model.estimator_(torch.tensor(data.X_val))[:, 0] > 0).numpy(),
        }
    gaps = {k: metric(data.y_val, v, sensitive_features=data.sex_val) for k, v in hard.items()}
    assert model.candidates_["gap"].iloc[0] == pytest.approx(gaps["before"])
    assert model.candidates_["gap"].iloc[model.chosen_] == pytest.approx(gaps["after"])
    assert gaps["after"] < 0.2 * gaps["before"]
    name = {"equalized_odds_worst_case": "equalized_odds"}.get(constraint, constraint)
    assert model.before_[f"{name}_difference"] == pytest.approx(gaps["before"])
    assert model.after_[f"{name}_difference"] == pytest.approx(gaps["after"])
    assert model.after_["accuracy"] == pytest.approx((hard["after"] == data.y_val).mean())


@pytest.mark.parametrize("task", ["binary", "three", "real"])
def test_the_chosen_gap_is_that_of_the_returned_model(task: str) -> None:
    data = problem(task)
    real = task == "real"
    model = data.fit(
        fair(
            fitted(task),
            search=Grid(scales=(1.0, 3.0)),
            damping=[3e-3, 3e-2],
            constraints="mean_prediction" if real else "demographic_parity",
            loss="squared_error" if real else "auto",
        )
    )
    name = "mean_prediction_difference" if real else "demographic_parity_difference"
    row = model.candidates_.iloc[model.chosen_]
    assert row["gap"] == model.candidates_["gap"].min()
    assert row["gap"] == pytest.approx(model.after_[name], rel=1e-4)
    assert bool(row["pareto"])
    assert model.candidates_["solve_error"].max() <= 2 * ConjugateGradient().tolerance


@pytest.mark.parametrize("task", ["binary", "three"])
def test_a_candidate_fitted_alone_has_the_gap_of_the_table(task: str) -> None:
    data = problem(task)
    close = ConjugateGradient(tolerance=1e-4)  # one row of these few is more than 0.002
    search = Grid(points=9, scales=(0.3, 1.0, 5.0))
    table = data.fit(fair(fitted(task), search=search, solver=close)).candidates_
    for _, row in table[table["k"] > 0].iloc[::5].iterrows():
        alone = Grid(k=(int(row["k"]),), scales=(row["scale"],))
        found = data.fit(fair(fitted(task), search=alone, solver=close)).candidates_
        assert found["gap"][1] == pytest.approx(row["gap"], abs=0.002)


def test_the_honest_gap_counts_the_final_candidates_only(data: Problem) -> None:
    for solver in ("cg", "exact"):
        model = data.fit(fair(solver=solver, damping=[3e-3, 3e-2], search=Grid(points=6)))
        assert model._choice is not None
        predictions = model._choice.patterns.predictions  # (U, K)
        assert predictions.shape[1] == len(model.candidates_)


def test_conjugate_gradients_agree_with_the_dense_edit(data: Problem) -> None:
    solver = ConjugateGradient(tolerance=1e-3)
    model = data.fit(fair(solver=solver, search=Grid(k=(25,), scales=(1.0,))))
    case, inverse = dense("binary"), dense_inverse("binary")
    scores = dense_scores(case, inverse, data, "demographic_parity", data.sex_val)
    assert np.abs(model.influence_ - scores).max() < 2e-3 * np.abs(scores).max()
    pull = (case.w[:, None] * case.gradients())[model.dropped_].sum(0)
    expected = (inverse @ pull).float()
    assert (model.edit_.delta - expected).norm() < 5e-3 * expected.norm()
    assert model.diagnostics_["edit_residual"] < 1e-3
    assert model.diagnostics_["influence_residual"] < 1e-3


def test_edit_is_near_the_refit_without_the_rows() -> None:
    data = problem("real")
    linear = train(nn.Linear(4, 1), torch.tensor(data.X).double(), data.y, "squared_error")
    model = data.fit(
        fair(
            linear.double(),
            loss="squared_error",
            constraints="mean_prediction",
            damping=1e-9,
            solver="exact",
            search=Grid(k=(3,), scales=(1.0,)),
        )
    )
    weight = np.ones(len(data.y))
    weight[model.dropped_] = 0
    # the jackknife keeps 1/N: so does this refit, by a smaller L2 relative to what is left
    refit = torch.linalg.solve(*_normal_equations(data, weight))
    before = theta_of(linear)
    moved, truly = theta_of(model.estimator_) - before, refit - before
    assert (moved - truly).norm() < 0.1 * truly.norm()


def _normal_equations(data: Problem, weight: np.ndarray) -> tuple[Tensor, Tensor]:
    X = torch.tensor(np.column_stack([data.X, np.ones(len(data.y))])).double()
    W = torch.tensor(weight)[:, None] / len(weight)
    return X.T @ (W * X) + L2 * torch.eye(5).double(), X.T @ (W[:, 0] * torch.tensor(data.y))


def test_sample_weights_and_weight_decay(data: Problem) -> None:
    weight = np.random.default_rng(0).uniform(0.2, 3, len(data.y))
    X = torch.tensor(data.X).double()
    module = train(mlp().double(), X, data.y, "binary_cross_entropy", weight=weight)
    model = data.fit(fair(module, solver="exact"), sample_weight=weight)
    case = dense_of(module, weight=weight)
    scores = dense_scores(case, inverse_of(case), data, "demographic_parity", data.sex_val)
    np.testing.assert_allclose(model.influence_, scores, rtol=1e-6, atol=1e-10)
    assert model.diagnostics_["gradient_norm"] < 1e-6
    assert model.diagnostics_["train_loss"] == pytest.approx(float(case.total(case.theta)))


def test_a_row_of_weight_two_is_two_rows(data: Problem) -> None:
    weight = np.ones(len(data.y))
    weight[:50] = 2
    X = torch.tensor(data.X).double()
    module = train(mlp().double(), X, data.y, "binary_cross_entropy", weight=weight)
    weighted = data.fit(fair(module, solver="exact"), sample_weight=weight.tolist())
    twice = np.concatenate([np.arange(len(data.y)), np.arange(50)])
    repeated = data.fit(fair(module, solver="exact"), X=data.X[twice], y=data.y[twice])
    together = np.bincount(twice, weights=repeated.influence_)
    np.testing.assert_allclose(weighted.influence_, together, rtol=1e-9)


def test_loss_aware_drops_only_points_that_hurt_both(data: Problem) -> None:
    model = data.fit(
        fair(
            copy.deepcopy(fitted()).double(),
            solver="exact",
            drop="loss_aware",
            search="all_positive",
        )
    )
    case, inverse = dense("binary"), dense_inverse("binary")
    scores = dense_scores(case, inverse, data, "demographic_parity", data.sex_val)
    theta = case.theta.clone().requires_grad_()
    z = case.outputs(theta, torch.tensor(data.X_val).double())
    (gradient,) = torch.autograd.grad(
        case.loss.value(z, torch.tensor(data.y_val).double()).mean(), theta
    )
    on_loss = -(case.w * (case.gradients() @ inverse @ gradient)).numpy()
    np.testing.assert_allclose(model.loss_influence_, on_loss, rtol=1e-6, atol=1e-10)
    both = np.flatnonzero((scores > 0) & (on_loss > 0))
    assert 0 < len(both) < (scores > 0).sum()
    assert set(model.candidates_["k"]) == {0, len(both)}
    assert set(model.dropped_) <= set(both)
    assert model.diagnostics_["n_positive"] == len(both)


def test_loss_influence_is_kept_only_when_asked_for(parity: FairIJ) -> None:
    assert parity.loss_influence_ is None


# --- the search -------------------------------------------------------------------------------


def test_all_positive(data: Problem) -> None:
    model = data.fit(fair(search=AllPositive(scales=(0.1, 0.3))))
    positive = np.flatnonzero(model.influence_ > 0)
    assert model.candidates_["k"].tolist() == [0, len(positive), len(positive)]
    assert sorted(model.dropped_) == positive.tolist()


@pytest.mark.parametrize("step", [7, 9])
def test_sequential_stops_where_brute_force_does(data: Problem, step: int) -> None:
    model = data.fit(
        fair(
            copy.deepcopy(fitted()).double(),
            solver="exact",
            search=Sequential(step=step, max_k=170),
        )
    )
    case, inverse = dense("binary"), dense_inverse("binary")
    scores = dense_scores(case, inverse, data, "demographic_parity", data.sex_val)
    order = np.argsort(-scores, kind="stable")
    X_val = torch.tensor(data.X_val).double()
    pulls = case.w[:, None] * case.gradients()
    gaps = []
    for k in range(0, 170, step):
        z = case.outputs(case.theta + inverse @ pulls[order[:k].copy()].sum(0), X_val)
        hard = (z > 0).numpy()
        gaps.append(abs(hard[data.sex_val == "m"].mean() - hard[data.sex_val == "f"].mean()))
        if len(gaps) > 1 and not gaps[-1] < gaps[-2]:
            break
    assert 4 <= len(gaps) < 170 // step  # the loop ran for a while, and did stop by the rule
    np.testing.assert_allclose(model.candidates_["gap"], gaps, atol=1e-12)
    assert model.candidates_["k"].tolist() == list(range(0, len(gaps) * step, step))
    assert len(model.dropped_) == (len(gaps) - 2) * step


def test_grid_is_every_k_by_every_scale(data: Problem) -> None:
    model = data.fit(fair(search=Grid(k=(5, 20), scales=(0.5, 1.0, 2.0))))
    pairs = list(zip(model.candidates_["k"], model.candidates_["scale"], strict=True))
    assert pairs == [(0, 1.0)] + [(k, c) for k in (5, 20) for c in (0.5, 1.0, 2.0)]


def test_several_dampings_are_an_axis_of_the_grid(data: Problem) -> None:
    dampings = (3e-2, 3e-3)
    together = data.fit(fair(damping=dampings))
    alone = [data.fit(fair(damping=d)) for d in dampings]
    assert (together.candidates_["k"] == 0).sum() == 1
    for model, damping in zip(alone, dampings, strict=True):
        theirs = together.candidates_[together.candidates_["damping"] == damping]
        ours = model.candidates_
        assert theirs[theirs.k > 0]["k"].tolist() == ours[ours.k > 0]["k"].tolist()
    best = min(alone, key=lambda model: model.candidates_["gap"].iloc[model.chosen_])
    row = together.candidates_.iloc[together.chosen_]
    assert row["gap"] == together.candidates_["gap"].min()
    assert row["gap"] <= best.candidates_["gap"].iloc[best.chosen_] + 0.02
    at = dampings.index(row["damping"])
    assert together.diagnostics_["damping"] == together.edit_.settings["damping"] == dampings[at]
    np.testing.assert_allclose(together.influence_, alone[at].influence_, rtol=1e-2, atol=1e-5)


def test_auto_damping_is_a_hundredth_of_the_largest_eigenvalue(data: Problem) -> None:
    model = data.fit(fair(damping="auto"))
    largest = float(torch.linalg.eigvalsh(dense("binary").ggn())[-1])
    assert model.diagnostics_["damping"] == pytest.approx(0.01 * largest, rel=0.02)


# --- which rows the choice is made on ---------------------------------------------------------


@pytest.mark.parametrize("parts", [2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_parts_have_a_like_share_of_every_group_and_every_cell(seed: int, parts: int) -> None:
    rng = np.random.default_rng(seed)
    groups, labels = rng.integers(0, 3, 41), rng.integers(0, 2, 41)
    part = parted(groups * 2 + labels, parts, seed)
    some = [groups == group for group in range(3)]
    some += [member & (labels == label) for member in some for label in range(2)]
    for rows in some:
        sizes = np.bincount(part[rows], minlength=parts)
        assert sizes.max() - sizes.min() <= 1
        assert len(sizes) == parts
    assert (part == parted(groups * 2 + labels, parts, seed)).all()
    assert (part != parted(groups * 2 + labels, parts, seed + 1)).any()


def fold_of(data: Problem, parts: int, seed: int) -> np.ndarray:
    return parted((data.sex_val == "m") * 2 + data.y_val, parts, seed)


def halved(data: Problem, seed: int) -> tuple[np.ndarray, np.ndarray]:
    second = fold_of(data, 2, seed) == 1
    return np.flatnonzero(~second), np.flatnonzero(second)


@pytest.mark.filterwarnings("ignore::fairij.errors.SmallGroupWarning")
def test_split_scores_on_one_half_and_judges_on_the_other(data: Problem) -> None:
    double = copy.deepcopy(fitted()).double()
    model = data.fit(fair(double, solver="exact", validation_use="split", random_state=3))
    seen, judged = halved(data, 3)
    only_seen = data.fit(
        fair(double, solver="exact"),
        X_val=data.X_val[seen],
        y_val=data.y_val[seen],
        sensitive_features_val=data.sex_val[seen],
    )
    np.testing.assert_allclose(model.influence_, only_seen.influence_, rtol=1e-9)
    hard = model.predict(data.X_val[judged])
    gap = fairlearn_metrics.demographic_parity_difference(
        data.y_val[judged], hard, sensitive_features=data.sex_val[judged]
    )
    assert model.candidates_["gap"].iloc[model.chosen_] == pytest.approx(gap)
    assert model.after_["demographic_parity_difference"] == pytest.approx(gap)
    assert model.after_.by_group["count"].sum() == len(judged)
    # the surrogate is predicted and checked on the rows that the gradient saw
    with torch.no_grad():
        before, after = (
            plain_gap(
                "demographic_parity",
                module(torch.tensor(data.X_val[seen]).double())[:, 0],
                data.y_val[seen],
                data.sex_val[seen],
                1.0,
            )
            for module in (double, model.estimator_)
        )
    scale = model.candidates_["scale"].iloc[model.chosen_]
    d = model.diagnostics_
    assert d["surrogate_before"] == pytest.approx(float(before))
    assert d["surrogate_after"] == pytest.approx(float(after))
    predicted = float(before) - scale * model.influence_[model.dropped_].sum()
    assert d["surrogate_predicted"] == pytest.approx(predicted)


@pytest.mark.filterwarnings("ignore::fairij.errors.SmallGroupWarning")
@pytest.mark.parametrize(("search", "largest"), [(QUICK, 100), ("grid", 100), (AllPositive(), 100)])
def test_cross_fit_counts_all_rows_each_by_an_edit_that_did_not_see_it(
    data: Problem, search: Any, largest: int
) -> None:
    double = copy.deepcopy(fitted()).double()
    settings = {"solver": "exact", "search": search}
    model = data.fit(fair(double, validation_use="cross_fit", random_state=3, **settings))
    fold = fold_of(data, FOLDS, 3)
    case, inverse = dense("binary"), dense_inverse("binary")
    X_val = torch.tensor(data.X_val).double()
    pulls = case.w[:, None] * case.gradients()
    table = model.candidates_
    assert table["k"].max() >= largest  # the folds rank apart, and still share candidates
    for row in table.sample(min(len(table), 8), random_state=0).itertuples():
        hard = np.empty(len(fold), dtype=bool)
        for f in range(FOLDS):
            seen = fold != f
            part = Problem(*[None] * 4, data.X_val[seen], data.y_val[seen], None, None)
            scores = dense_scores(case, inverse, part, "demographic_parity", data.sex_val[seen])
            top = np.argsort(-scores, kind="stable")[: row.k].copy()
            moved = case.theta + row.scale * inverse @ pulls[top].sum(0)
            hard[~seen] = (case.outputs(moved, X_val[~seen]) > 0).numpy()
        expected = fairlearn_metrics.demographic_parity_difference(
            data.y_val, hard, sensitive_features=data.sex_val
        )
        assert row.gap == pytest.approx(expected, abs=1e-12)
        assert row.accuracy == pytest.approx((hard == data.y_val).mean(), abs=1e-12)
        of_men = hard[data.sex_val == "m"].mean()
        assert model.candidates_["selection_rate[m]"][row.Index] == pytest.approx(of_men)
    # the edit itself is by the gradient on all rows, and the audit is of all rows
    everything = data.fit(fair(double, solver="exact"))
    np.testing.assert_allclose(model.influence_, everything.influence_, rtol=1e-9)
    assert model.after_.by_group["count"].sum() == len(data.y_val)
    assert model.edit_.settings["k"] == len(model.dropped_)


@pytest.mark.filterwarnings("ignore::fairij.errors.SmallGroupWarning")
@pytest.mark.parametrize("settings", [{"constraints": probability_gap}, {"search": Sequential(7)}])
def test_cross_fit_by_the_mean_over_two_halves(data: Problem, settings: dict[str, Any]) -> None:
    """Where nothing is counted, and where a search stops by the gap of its own rows."""
    double = copy.deepcopy(fitted()).double()
    model = data.fit(
        fair(double, validation_use="cross_fit", random_state=3, **{"solver": "exact"} | settings)
    )
    halves = halved(data, 3)
    tables = [
        data.fit(
            fair(double, **{"solver": "exact"} | settings),
            X_val=data.X_val[half],
            y_val=data.y_val[half],
            sensitive_features_val=data.sex_val[half],
        ).candidates_
        for half in halves
    ]
    assert model.candidates_["gap"][0] == pytest.approx(np.mean([t["gap"][0] for t in tables]))
    assert model.candidates_["gap"].min() < model.candidates_["gap"][0]


def test_validation_rows_split_off_the_training_rows() -> None:
    data = problem(n=560, n_val=2)  # as many training rows, and no use for the others
    X = torch.tensor(data.X).double()
    module = train(mlp().double(), X, data.y, "binary_cross_entropy")
    frame = pd.DataFrame(data.X, columns=list("abcd"), index=np.arange(560) + 1000)
    settings = {"solver": "exact", "validation_fraction": 0.4, "random_state": 5}
    with pytest.warns(SeenRowsWarning, match="on them are too good"):
        model = fair(module, **settings).fit(frame, data.y, sensitive_features=data.sex)
    held = np.isnan(model.influence_)
    for name in ("f", "m"):
        member = data.sex == name
        assert held[member].sum() == round(0.4 * member.sum())
    parts = {
        "X": data.X[~held],
        "y": data.y[~held],
        "X_val": data.X[held],
        "y_val": data.y[held],
        "sensitive_features_val": data.sex[held],
    }
    given = fair(module, solver="exact").fit(**parts)
    np.testing.assert_allclose(model.influence_[~held], given.influence_, rtol=1e-9)
    # rows are named by their place in what the user gave
    assert model.dropped_.tolist() == np.flatnonzero(~held)[given.dropped_].tolist()
    assert len(model.dropped_) > 0
    assert model.edit_.dropped.tolist() == model.dropped_.tolist()
    np.testing.assert_allclose(
        model.influence_[model.dropped_], np.sort(model.influence_[model.dropped_])[::-1]
    )
    weight = np.random.default_rng(1).uniform(0.5, 2, 560)
    weighted = fair(module, **settings).fit(
        frame, data.y, sensitive_features=data.sex, sample_weight=weight
    )
    theirs = fair(module, solver="exact").fit(**parts, sample_weight=weight[~held])
    np.testing.assert_allclose(weighted.influence_[~held], theirs.influence_, rtol=1e-9)
    other = fair(module, **settings | {"random_state": 6})
    other.fit(frame, data.y, sensitive_features=data.sex)
    assert (np.isnan(other.influence_) != held).any()


# --- which edit is taken ----------------------------------------------------------------------


def test_accuracy_budget_holds_for_the_returned_model(data: Problem) -> None:
    model = data.fit(fair(search="grid", selection=AccuracyBudget(0.03)))
    assert model.after_["accuracy"] >= model.before_["accuracy"] - 0.03 - 1e-12
    assert model.after_["demographic_parity_difference"] < 0.35
    assert len(model.dropped_) > 0
    allowed = model.candidates_["accuracy"] >= model.before_["accuracy"] - 0.03 - 1e-9
    assert allowed.sum() < len(allowed)
    assert model.candidates_["gap"].iloc[model.chosen_] == model.candidates_["gap"][allowed].min()


def test_target_gap_holds_for_the_returned_model(data: Problem) -> None:
    model = data.fit(fair(search="grid", selection=TargetGap(0.15)))
    assert model.after_["demographic_parity_difference"] <= 0.15 + 1e-9
    allowed = model.candidates_["gap"] <= 0.15 + 1e-9
    best = model.candidates_["accuracy"][allowed].max()
    assert model.candidates_["accuracy"].iloc[model.chosen_] == best
    # more is kept of the accuracy than by the lowest gap
    assert model.after_["accuracy"] > data.fit(fair(search="grid")).after_["accuracy"]


def test_a_selection_of_ones_own(data: Problem) -> None:
    class Third(SelectionDefaults):
        def choose(self, candidates: Measures) -> int:
            assert {"gap", "gap_error", "accuracy", "auc", "brier"} <= set(candidates)
            return 3

    assert data.fit(fair(selection=Third())).chosen_ == 3


# --- forms of input ---------------------------------------------------------------------------

FORMS = {
    "float64": lambda X: X.astype(np.float64),
    "fortran order": np.asfortranarray,
    "read-only": lambda X: (X.setflags(write=False), X)[1],
    "reversed view": lambda X: X[::-1][::-1],
    "big-endian": lambda X: X.astype(">f8"),
    "list": lambda X: X.tolist(),
    "tensor": torch.tensor,
    "tensor with gradient": lambda X: torch.tensor(X, requires_grad=True),
    "frame": lambda X: pd.DataFrame(X, columns=list("abcd")),
    "frame of objects": lambda X: pd.DataFrame(X, columns=list("abcd")).astype(object),
    "nullable frame": lambda X: pd.DataFrame(X, columns=list("abcd")).convert_dtypes(),
    "sparse matrix": scipy.sparse.csr_matrix,
    "sparse array": scipy.sparse.coo_array,
}


@pytest.mark.parametrize("form", FORMS)
def test_features_in_any_form(data: Problem, parity: FairIJ, form: str) -> None:
    make = FORMS[form]
    model = data.fit(fair(), X=make(data.X.copy()), X_val=make(data.X_val.copy()))
    np.testing.assert_allclose(model.influence_, parity.influence_, rtol=1e-5, atol=1e-8)
    assert model.dropped_.tolist() == parity.dropped_.tolist()
    np.testing.assert_allclose(
        model.decision_function(make(data.X.copy())), parity.decision_function(data.X), rtol=1e-5
    )


@pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning")  # few rows are left
@pytest.mark.parametrize("form", FORMS)
def test_rows_of_any_form_can_be_split_off(data: Problem, form: str) -> None:
    plain = fair().fit(data.X, data.y, sensitive_features=data.sex)
    model = fair().fit(FORMS[form](data.X.copy()), data.y, sensitive_features=data.sex)
    np.testing.assert_allclose(model.influence_, plain.influence_, rtol=1e-4, atol=1e-7)
    assert model.dropped_.tolist() == plain.dropped_.tolist()


@pytest.mark.parametrize(
    "form", [lambda v: v.tolist(), pd.Series, lambda v: v[:, None], lambda v: v.astype(object)]
)
def test_labels_and_groups_in_any_form(data: Problem, parity: FairIJ, form: Any) -> None:
    model = data.fit(
        fair(),
        y=form(data.y),
        y_val=form(data.y_val),
        sensitive_features_val=form(data.sex_val),
    )
    assert model.dropped_.tolist() == parity.dropped_.tolist()
    assert model.predict(data.X_val).dtype.kind == "i"


def test_tensor_labels(data: Problem, parity: FairIJ) -> None:
    model = data.fit(fair(), y=torch.tensor(data.y), y_val=torch.tensor(data.y_val))
    assert model.dropped_.tolist() == parity.dropped_.tolist()


@pytest.mark.parametrize(
    ("low", "high"),
    [("no", "yes"), (-1, 1), (-1, 0), (1, 2), (False, True), (0.0, 1.0), (10, 9.0)],
)
def test_two_classes_by_any_name(data: Problem, parity: FairIJ, low: Any, high: Any) -> None:
    # the larger name is the positive class, as in scikit-learn
    first, second = sorted([low, high])
    names = np.array([first, second])
    model = data.fit(fair(), y=names[data.y], y_val=names[data.y_val])
    assert model.classes_.tolist() == [first, second]
    assert model.dropped_.tolist() == parity.dropped_.tolist()
    predicted = model.predict(data.X_val)
    assert predicted.tolist() == names[parity.predict(data.X_val)].tolist()
    assert model.score(data.X_val, names[data.y_val]) == parity.score(data.X_val, data.y_val)
    assert model.after_.to_dict() == pytest.approx(parity.after_.to_dict())


@pytest.mark.parametrize("label", [0, 1])
def test_validation_rows_of_one_class(data: Problem, label: int) -> None:
    kept = data.y_val == label
    words = np.array(["no", "yes"])
    with pytest.warns(SmallGroupWarning, match="has no rows with label (no|yes)"):
        model = data.fit(
            fair(),
            y=words[data.y],
            X_val=data.X_val[kept],
            y_val=words[data.y_val[kept]],
            sensitive_features_val=data.sex_val[kept],
        )
    said_yes = model.predict(data.X_val[kept]) == "yes"
    female = data.sex_val[kept] == "f"
    gap = abs(said_yes[female].mean() - said_yes[~female].mean())
    assert model.after_["demographic_parity_difference"] == pytest.approx(gap)
    rates = model.after_.by_group["selection_rate"]
    assert rates["f"] == pytest.approx(said_yes[female].mean())


def test_three_classes_by_name() -> None:
    data = problem("three")
    names = np.array(["low", "mid", "high"])
    told = fair(fitted("three"), classes=names)
    model = data.fit(told, y=names[data.y], y_val=names[data.y_val])
    numbered = data.fit(fair(fitted("three")))
    assert model.classes_.tolist() == names.tolist()
    assert numbered.classes_.tolist() == [0, 1, 2]
    assert model.predict(data.X).tolist() == names[numbered.predict(data.X)].tolist()


def test_intersection_of_two_sensitive_columns(data: Problem) -> None:
    both = pd.DataFrame({"sex": data.sex_val, "race": data.race_val})
    joined = [f"{sex} & {race}" for sex, race in zip(data.sex_val, data.race_val, strict=True)]
    model = data.fit(fair(), sensitive_features_val=both)
    by_hand = data.fit(fair(), sensitive_features_val=joined)
    np.testing.assert_array_equal(model.influence_, by_hand.influence_)
    assert set(model.after_.by_group.index) == set(joined)
    assert len(model.after_.by_group) == 6


def test_a_function_as_constraint(data: Problem) -> None:
    own = data.fit(fair(constraints=probability_gap, solver="exact"))
    named = data.fit(fair(solver="exact"))
    np.testing.assert_allclose(own.influence_, named.influence_, rtol=1e-4, atol=1e-8)
    # it is its own metric
    row = own.candidates_.iloc[own.chosen_]
    assert row["gap"] == pytest.approx(own.diagnostics_["surrogate_after"], abs=1e-5)
    assert own.edit_.settings["constraint"] == "probability_gap"


class TwoTables(nn.Module):
    """Named inputs, one of them integers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kinds = nn.Embedding(3, 2)
        self.body = nn.Linear(4, 2)
        self.head = nn.Linear(2, 1)

    def forward(self, features: Tensor, kind: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(features) + self.kinds(kind)))


@pytest.mark.parametrize("form", ["dict", "tuple"])
def test_a_module_with_several_inputs(data: Problem, form: str) -> None:
    def table(X: np.ndarray, race: np.ndarray) -> Any:
        kind = np.unique(race, return_inverse=True)[1]
        return {"features": X, "kind": kind} if form == "dict" else (X, kind)

    def tensors(X: np.ndarray, race: np.ndarray) -> tuple[Tensor, Tensor]:
        made = table(X, race)
        features, kind = made.values() if form == "dict" else made
        return torch.tensor(features).double(), torch.tensor(kind)

    module = train(
        TwoTables(),
        tensors(data.X, data.race),
        data.y,
        "binary_cross_entropy",
        call=lambda module, X: module(*X),
    )
    model = data.fit(
        fair(module), X=table(data.X, data.race), X_val=table(data.X_val, data.race_val)
    )
    assert model.candidates_["gap"].iloc[model.chosen_] < 0.5 * model.candidates_["gap"].iloc[0]
    features, kind = tensors(data.X_val, data.race_val)
    with torch.no_grad():
        own = model.estimator_(features.float(), kind)[:, 0].numpy()
    found = model.decision_function(table(data.X_val, data.race_val))
    np.testing.assert_allclose(found, own, rtol=1e-5, atol=1e-6)


# --- predictions ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_predictions_are_the_edited_modules_own(data: Problem, dtype: torch.dtype) -> None:
    model = data.fit(fair(copy.deepcopy(fitted()).to(dtype)))
    with torch.no_grad():
        z = model.estimator_(torch.tensor(data.X_val).to(dtype))[:, 0]
    found = model.decision_function(data.X_val)
    assert found.dtype == np.dtype(str(dtype)[6:])
    np.testing.assert_allclose(found, z, rtol=1e-6)
    assert model.predict(data.X_val).tolist() == (z > 0).long().tolist()
    p = torch.sigmoid(z).numpy()
    np.testing.assert_allclose(model.predict_proba(data.X_val), np.column_stack([1 - p, p]))
    assert next(model.estimator_.parameters()).dtype == dtype


def test_predictions_of_several_classes() -> None:
    data = problem("three")
    model = data.fit(fair(fitted("three")))
    with torch.no_grad():
        z = model.estimator_(torch.tensor(data.X_val))
    np.testing.assert_allclose(model.decision_function(data.X_val), z, rtol=1e-6)
    np.testing.assert_allclose(model.predict_proba(data.X_val), torch.softmax(z, 1), rtol=1e-5)
    assert model.predict(data.X_val).tolist() == z.argmax(1).tolist()
    assert model.score(data.X_val, data.y_val) == (z.argmax(1).numpy() == data.y_val).mean()


def test_two_outputs_are_one_decision(data: Problem) -> None:
    X = torch.tensor(data.X).double()
    module = train(mlp(2), X, data.y, "softmax_cross_entropy")
    model = data.fit(fair(module))
    with torch.no_grad():
        z = model.estimator_(torch.tensor(data.X_val))
    np.testing.assert_allclose(
        model.decision_function(data.X_val), z[:, 1] - z[:, 0], rtol=1e-4, atol=1e-6
    )
    auc = get_scorer("roc_auc")(model, data.X_val, data.y_val)  # takes decision_function
    assert auc == pytest.approx(
        sklearn.metrics.roc_auc_score(data.y_val, model.predict_proba(data.X_val)[:, 1])
    )


@pytest.mark.parametrize("loss", ["squared_error", SquaredError()])
def test_regression(loss: Any) -> None:
    data = problem("real")
    model = data.fit(fair(fitted("real"), loss=loss, constraints="mean_prediction"))
    with torch.no_grad():
        z = model.estimator_(torch.tensor(data.X_val))[:, 0].numpy()
    np.testing.assert_allclose(model.predict(data.X_val), z, rtol=1e-6)
    gap = abs(z[data.sex_val == "m"].mean() - z[data.sex_val == "f"].mean())
    assert model.after_["mean_prediction_difference"] == pytest.approx(gap, rel=1e-5)
    r2 = 1 - ((z - data.y_val) ** 2).mean() / data.y_val.var()
    assert model.score(data.X_val, data.y_val) == pytest.approx(r2, rel=1e-5)
    assert model.candidates_["r2"].iloc[model.chosen_] == pytest.approx(r2, rel=1e-4)
    assert is_regressor(model)
    assert len(model.classes_) == 0
    with pytest.raises(ValueError, match="no class probabilities; use `predict`"):
        model.predict_proba(data.X_val)


def test_score_takes_weights(data: Problem, parity: FairIJ) -> None:
    weight = np.arange(len(data.y_val))
    right = parity.predict(data.X_val) == data.y_val
    expected = (right * weight).sum() / weight.sum()
    assert parity.score(data.X_val, data.y_val, sample_weight=weight) == pytest.approx(expected)


def test_only_the_chosen_parameters_move(data: Problem) -> None:
    # a frozen part in another precision, as under a large encoder
    module = copy.deepcopy(fitted())
    module[0].requires_grad_(False)
    model = data.fit(fair(module, parameters="2.*", damping=1e-3, weight_decay=0.01))
    assert torch.equal(model.estimator_[0].weight, module[0].weight)
    assert not torch.equal(model.estimator_[2].weight, module[2].weight)
    assert model.edit_.parameter_names == ("2.weight", "2.bias")
    assert [p.requires_grad for p in model.estimator_.parameters()] == [False, False, True, True]
    assert not np.array_equal(model.predict(data.X_val), (data.fit(fair())).predict(data.X_val))


class HalfFrozen(nn.Module):
    """A frozen half-precision table under a head in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4).half(), requires_grad=False)
        self.body = mlp()

    def forward(self, X: Tensor) -> Tensor:
        return self.body(X * self.scale)


def test_parameters_of_mixed_precision(data: Problem) -> None:
    module = HalfFrozen()
    module.body = copy.deepcopy(fitted())
    model = data.fit(fair(module))
    plain = data.fit(fair())
    assert model.predict(data.X_val).tolist() == plain.predict(data.X_val).tolist()


# --- the user's model -------------------------------------------------------------------------


class Noisy(nn.Module):
    """Dropout, batch norm and buffers: everything that depends on the mode."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(
            nn.Linear(4, 6), nn.BatchNorm1d(6), nn.SELU(), nn.Dropout(0.5), nn.Linear(6, 1)
        )

    def forward(self, X: Tensor) -> Tensor:
        return self.body(X)


@pytest.mark.filterwarnings("ignore:The (solver|model knows):fairij.errors.FairIJWarning")
@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
def test_the_estimator_is_left_alone_bit_for_bit(data: Problem) -> None:
    module = Noisy().train()
    module(torch.tensor(data.X)).sum().backward()
    module.body[2].eval()  # modes differ within the module
    parameters = list(module.parameters())
    state = {name: value.clone() for name, value in module.state_dict().items()}
    grads = [p.grad.clone() for p in parameters]
    modes = [part.training for part in module.modules()]

    model = data.fit(fair(module, solver=Woodbury(rows=50), validation_use="cross_fit"))
    model.predict(data.X_val)

    assert all(a is b for a, b in zip(parameters, module.parameters(), strict=True))
    assert [part.training for part in module.modules()] == modes
    for name, value in module.state_dict().items():
        assert torch.equal(value, state[name]), name
    for parameter, grad in zip(parameters, grads, strict=True):
        assert parameter.requires_grad
        assert torch.equal(parameter.grad, grad)
    assert model.estimator is module
    # the edited copy is a model of its own, in the same modes
    assert type(model.estimator_) is Noisy
    assert [part.training for part in model.estimator_.modules()] == modes
    mine = {p.data_ptr() for p in [*module.parameters(), *module.buffers()]}
    assert mine.isdisjoint(
        p.data_ptr() for p in [*model.estimator_.parameters(), *model.estimator_.buffers()]
    )
    # and it is judged in evaluation mode
    quiet = copy.deepcopy(model.estimator_).eval()
    with torch.no_grad():
        z = quiet(torch.tensor(data.X_val))[:, 0]
    np.testing.assert_allclose(model.decision_function(data.X_val), z, rtol=1e-5, atol=1e-6)


def test_the_data_is_left_alone(data: Problem) -> None:
    frame = pd.DataFrame(data.X.copy(), columns=list("abcd"))
    before = frame.copy()
    y, sex = data.y.copy(), pd.Series(data.sex_val.copy())
    data.fit(fair(), X=frame, y=y, X_val=pd.DataFrame(data.X_val, columns=list("abcd")),
             sensitive_features_val=sex)  # fmt: skip
    pd.testing.assert_frame_equal(frame, before)
    assert (y == data.y).all()
    assert (sex == data.sex_val).all()


# --- scikit-learn -----------------------------------------------------------------------------


def test_get_and_set_params(data: Problem) -> None:
    model = fair(damping=0.1, temperature=2.0)
    settings = model.get_params()
    assert settings["damping"] == 0.1
    assert settings["estimator"] is fitted()
    model.set_params(damping=0.2, constraints="equal_opportunity")
    assert (model.damping, model.constraints) == (0.2, "equal_opportunity")
    again = data.fit(model)
    assert again is model
    assert again.edit_.settings["constraint"] == "equal_opportunity"
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(dampening=1)


def test_clone_keeps_the_fitted_model_and_forgets_the_fit(parity: FairIJ) -> None:
    copied = clone(parity)
    assert copied is not parity
    assert copied.estimator is parity.estimator
    assert copied.get_params() == parity.get_params()
    assert not hasattr(copied, "estimator_")


def test_clone_keeps_metadata_requests() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = clone(fair().set_fit_request(sensitive_features=True))
        assert model.get_metadata_routing().fit.requests["sensitive_features"] is True


def test_pickle_round_trip(data: Problem, parity: FairIJ) -> None:
    again = pickle.loads(pickle.dumps(parity))
    np.testing.assert_array_equal(again.predict_proba(data.X), parity.predict_proba(data.X))
    np.testing.assert_array_equal(again.influence_, parity.influence_)
    pd.testing.assert_frame_equal(again.candidates_, parity.candidates_)
    torch.testing.assert_close(again.edit_.apply(fitted())[0].weight, parity.estimator_[0].weight)


def test_unfitted_says_so(data: Problem) -> None:
    for method in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(fair(), method)(data.X)


def test_tags_and_repr(parity: FairIJ) -> None:
    assert is_classifier(parity)
    assert is_regressor(fair(loss="squared_error"))
    assert is_regressor(fair(loss=SquaredError()))
    assert "FairIJ" in repr(parity)
    assert "FairIJ" in parity._repr_html_()


@pytest.fixture(scope="session")
def scaled() -> tuple[Problem, StandardScaler, nn.Module]:
    data = problem()
    scaler = StandardScaler().fit(data.X)
    X = torch.tensor(scaler.transform(data.X)).double()
    return data, scaler, train(mlp(), X, data.y, "binary_cross_entropy")


@pytest.mark.filterwarnings("ignore::fairij.errors.SmallGroupWarning")
def test_pipeline_with_groups(scaled: Any) -> None:
    data, scaler, module = scaled
    pipeline = Pipeline(
        [("scale", StandardScaler()), ("fair", fair(module, constraints="demographic_parity"))]
    )
    pipeline.fit(data.X, data.y, fair__sensitive_features=data.sex)
    direct = fair(module).fit(scaler.transform(data.X), data.y, sensitive_features=data.sex)
    np.testing.assert_array_equal(
        pipeline.predict_proba(data.X_val), direct.predict_proba(scaler.transform(data.X_val))
    )
    assert pipeline.score(data.X_val, data.y_val) == direct.score(
        scaler.transform(data.X_val), data.y_val
    )
    assert len(direct.dropped_) > 0


def test_pipeline_transforms_validation_rows(scaled: Any) -> None:
    data, scaler, module = scaled
    with sklearn.config_context(enable_metadata_routing=True):
        wants = dict.fromkeys(("X_val", "y_val", "sensitive_features_val"), True)
        pipeline = Pipeline(
            [("scale", StandardScaler()), ("fair", fair(module).set_fit_request(**wants))],
            transform_input=["X_val"],
        )
        data.fit(pipeline)
        found = pipeline.predict_proba(data.X_val)
    direct = data.fit(fair(module), X=scaler.transform(data.X), X_val=scaler.transform(data.X_val))
    np.testing.assert_array_equal(found, direct.predict_proba(scaler.transform(data.X_val)))


@pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning")  # half the rows are few
def test_settings_can_be_searched(data: Problem) -> None:
    pipeline = Pipeline([("as_is", FunctionTransformer()), ("fair", fair())])
    search = GridSearchCV(pipeline, {"fair__selection": ["lowest_gap", TargetGap(1.0)]}, cv=2)
    search.fit(data.X, data.y, fair__sensitive_features=data.sex)
    assert search.best_params_ == {"fair__selection": TargetGap(1.0)}  # no gap is asked to fall


def test_columns_are_remembered(data: Problem, parity: FairIJ) -> None:
    assert parity.n_features_in_ == 4
    assert not hasattr(parity, "feature_names_in_")
    columns = list("abcd")
    model = fair()
    frame, frame_val = (pd.DataFrame(X, columns=columns) for X in (data.X, data.X_val))
    data.fit(model, X=frame, X_val=frame_val)
    assert model.feature_names_in_.tolist() == columns
    data.fit(model)  # a second fit forgets the first
    assert not hasattr(model, "feature_names_in_")


# --- the record -------------------------------------------------------------------------------


def test_everything_is_recorded(data: Problem, parity: FairIJ) -> None:
    assert parity.influence_.shape == (240,)
    assert (parity.influence_[parity.dropped_] > 0).all()
    assert (np.diff(parity.influence_[parity.dropped_]) <= 0).all()
    row = parity.candidates_.iloc[parity.chosen_]
    assert len(parity.dropped_) == row["k"] == parity.edit_.settings["k"]
    assert len(parity.candidates_) == 5 * 2 + 1
    torch.testing.assert_close(theta_of(parity.estimator_), parity.edit_.after, rtol=0, atol=0)
    d = parity.diagnostics_
    assert d["n_parameters"] == 31
    assert d["n_train"] == 240
    assert d["n_positive"] == (parity.influence_ > 0).sum()
    assert d["solver"] == "cg"
    assert d["curvature"] == "ggn"
    assert d["gradient_norm"] < 1e-5
    before, inside = ["linearize"], ["gradient", "influence", "candidates", "edit"]
    assert set(d["seconds"]) >= {*before, *inside, "diagnostics", "audits"}


def test_predicted_change_of_the_surrogate_is_right_for_small_steps(data: Problem) -> None:
    model = data.fit(
        fair(
            copy.deepcopy(fitted()).double(),
            solver="exact",
            search=Grid(k=(20,), scales=(1e-3,)),
            selection=Last(),
        )
    )
    d = model.diagnostics_
    predicted = d["surrogate_predicted"] - d["surrogate_before"]
    assert predicted < 0
    assert d["surrogate_after"] - d["surrogate_before"] == pytest.approx(predicted, rel=1e-2)


def test_intervals_hold_the_value(parity: FairIJ) -> None:
    for audit in (parity.before_, parity.after_):
        frame = audit.metrics
        assert (frame["low"] <= frame["high"]).all()
        assert frame["low"]["accuracy"] < frame["value"]["accuracy"] < frame["high"]["accuracy"]
    wide = problem().fit(fair(confidence=0.99)).before_.metrics
    narrow = problem().fit(fair(confidence=0.5)).before_.metrics
    spread = wide["high"] - wide["low"]
    assert (spread > narrow["high"] - narrow["low"]).all()


def test_the_seed_decides_everything(data: Problem) -> None:
    def run(seed: int | None) -> FairIJ:
        return data.fit(fair(solver="woodbury", validation_use="split", random_state=seed))

    one, same, other = run(1), run(1), run(2)
    assert torch.equal(one.edit_.delta, same.edit_.delta)
    pd.testing.assert_frame_equal(one.candidates_, same.candidates_)
    pd.testing.assert_frame_equal(one.before_.metrics, same.before_.metrics)
    assert not np.array_equal(one.influence_, other.influence_)
    drawn = run(None)  # a seed drawn anew is recorded, so the run can be repeated
    again = run(drawn.edit_.settings["random_state"])
    assert torch.equal(drawn.edit_.delta, again.edit_.delta)


def test_the_seed_reaches_a_solver_asked_for_by_name(data: Problem) -> None:
    import fairij.solvers.woodbury as module

    seeds = []
    prepare = module.Woodbury.prepare
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            module.Woodbury,
            "prepare",
            lambda self, *args: (seeds.append(self.seed), prepare(self, *args))[1],
        )
        data.fit(fair(solver="woodbury", random_state=11))
        data.fit(fair(solver=Woodbury(seed=4), random_state=11))
    assert seeds == [11, 4]


def test_global_random_state_is_left_alone(data: Problem) -> None:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    expected = (torch.rand(1), np.random.rand())  # noqa: NPY002
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    data.fit(fair(validation_use="cross_fit", solver="woodbury"))
    assert (torch.rand(1), np.random.rand()) == expected  # noqa: NPY002


@pytest.mark.filterwarnings("ignore:The solver:fairij.errors.FairIJWarning")
@pytest.mark.parametrize("curvature", ["ggn", "empirical_fisher"])
@pytest.mark.parametrize(
    "solver",
    [
        "cg",
        "exact",
        "woodbury",
        Neumann(tolerance=None, steps=100),
        "identity",
        "printed_woodfisher",
    ],
)
def test_every_solver_lowers_the_gap(data: Problem, solver: Any, curvature: str) -> None:
    scales = (30.0,) if solver in ("identity", "printed_woodfisher") else (1.0, 5.0)
    model = data.fit(fair(solver=solver, curvature=curvature, search=Grid(points=6, scales=scales)))
    assert model.candidates_["gap"].min() < 0.7 * model.candidates_["gap"].iloc[0]
    assert model.diagnostics_["solver"] == getattr(solver, "name", solver)
    assert model.diagnostics_["curvature"] == curvature


def test_verbose(data: Problem, capsys: pytest.CaptureFixture[str]) -> None:
    data.fit(fair(verbose=False))
    data.fit(fair(verbose="auto"))  # no terminal here
    out, err = capsys.readouterr()
    assert out == err == ""
    data.fit(fair(verbose=True))
    assert capsys.readouterr().out == ""


def test_batches_do_not_matter(data: Problem, parity: FairIJ) -> None:
    model = data.fit(fair(batch_size=np.int64(17), memory_limit=0))
    np.testing.assert_allclose(model.influence_, parity.influence_, rtol=1e-3, atol=1e-7)
    assert model.dropped_.tolist() == parity.dropped_.tolist()
