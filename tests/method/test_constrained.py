"""The constrained search: against a general solver, on all families, and where it cannot go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMClassifier
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import nn

from biased import fair, fitted, problem
from fairij import Constrained, Exact, FairIJ
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.fairness.constraints import CONSTRAINTS
from fairij.fairness.groups import encode_groups
from fairij.method.search import constrained
from fairij.models import adapt

QUICK = Constrained(steps=4)


def gap_of(model: FairIJ, row: int = -1) -> float:
    return float(model.candidates_["gap"].iloc[row])


# --- against a general solver -----------------------------------------------------------------


def mean_gap(z: torch.Tensor, y: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    p = torch.sigmoid(z)
    return (p[groups == 1].mean() - p[groups == 0].mean())[None]


def odds_gaps(z: torch.Tensor, y: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    p = torch.sigmoid(z)
    of = [p[(groups == g) & (y == label)].mean() for label in (0, 1) for g in (0, 1)]
    return torch.stack([of[1] - of[0], of[3] - of[2]])


@pytest.mark.parametrize("gaps", [mean_gap, odds_gaps])
@pytest.mark.parametrize("loss_on", ["training", "validation"])
def test_it_ends_where_a_general_solver_ends(gaps: Any, loss_on: str) -> None:
    """The least ``Phi`` at which the gaps are zero, of a linear model that was not trained out."""
    data, damping = problem(), 1e-2
    model = LogisticRegression(tol=0.05, C=10.0).fit(data.X.astype(float), data.y)
    constraint = CONSTRAINTS["demographic_parity"]
    constraint = type(constraint)(
        "gaps", lambda *d: gaps(*d).abs().sum(), None, takes_outputs=True, signed=gaps
    )
    found = data.fit(
        FairIJ(
            model,
            constraints=constraint,
            solver=Exact(),
            search=Constrained(steps=4, newton=4, damping=damping, loss_on=loss_on),
            verbose=False,
        ),
        X=data.X.astype(float),
        X_val=data.X_val.astype(float),
    )
    start = adapt(model).theta.numpy()
    rows, rows_val = (np.c_[X, np.ones(len(X))].astype(float) for X in (data.X, data.X_val))
    codes = torch.tensor(encode_groups(data.sex_val).codes)
    kept, truth = (rows, data.y) if loss_on == "training" else (rows_val, data.y_val)

    def loss(theta: np.ndarray) -> float:
        z = kept @ theta
        return float(np.mean(np.logaddexp(0, z) - truth * z) + theta[:-1] @ theta[:-1] / 4800)

    pull = kept.T @ (expit(kept @ start) - truth) / len(kept) + np.r_[start[:-1], 0] / 2400

    def phi(theta: np.ndarray) -> float:
        move = theta - start
        return loss(theta) - pull @ theta + damping * move @ move / 2

    def at(theta: np.ndarray) -> np.ndarray:
        values = gaps(torch.tensor(rows_val @ theta), torch.tensor(data.y_val), codes)
        return np.atleast_1d(values.numpy())

    best = minimize(
        phi,
        start,
        method="SLSQP",
        constraints={"type": "eq", "fun": at},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    reached = start + found.moves_[-1]
    assert np.abs(at(start)).sum() > 0.1
    assert np.abs(at(reached)).max() < 1e-7
    assert phi(reached) == pytest.approx(best.fun, abs=1e-8)
    np.testing.assert_allclose(reached, best.x, atol=2e-4)


# --- families, constraints and groups ---------------------------------------------------------


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds", "equal_opportunity"])
@pytest.mark.parametrize("groups", ["sex", "race"])
def test_it_closes_several_gaps_of_several_groups(name: str, groups: str) -> None:
    data = problem()
    found = data.fit(
        fair(constraints=name, search=QUICK),
        sensitive_features_val=getattr(data, f"{groups}_val"),
    )
    table = found.candidates_
    assert table["gap"].min() < 0.6 * table["gap"][0]
    assert table["scale"].tolist()[1:] == [round(i / 8, 6) for i in range(1, 11)]


class Stacked(nn.Module):
    """A network whose Jacobian does not come in factors."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.outer = nn.Linear(4, 1)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.tanh(self.inner(torch.tanh(self.inner(X)))))


def trained() -> nn.Module:
    data = problem()
    torch.manual_seed(0)
    module = Stacked()
    optimizer = torch.optim.Adam(module.parameters(), 0.02)
    for _ in range(100):
        optimizer.zero_grad()
        z = module(torch.tensor(data.X))[:, 0]
        nn.functional.binary_cross_entropy_with_logits(z, torch.tensor(data.y).float()).backward()
        optimizer.step()
    return module


def forest() -> Any:
    data = problem()
    return LGBMClassifier(n_estimators=8, num_leaves=5, verbose=-1, n_jobs=1).fit(data.X, data.y)


@pytest.mark.parametrize(
    "make",
    [
        trained,
        forest,
        lambda: LogisticRegression().fit(problem().X, problem().y),
    ],
)
@pytest.mark.filterwarnings("ignore::fairij.errors.NotStationaryWarning")
def test_every_family(make: Any) -> None:
    found = problem().fit(FairIJ(make(), search=QUICK, selection="lowest_gap", verbose=False))
    assert found.candidates_["gap"].min() < 0.5 * found.candidates_["gap"][0]


def test_several_classes() -> None:
    found = problem("three").fit(fair(fitted("three"), search=QUICK))
    assert found.candidates_["gap"].min() < 0.5 * found.candidates_["gap"][0]


def test_regression() -> None:
    data = problem("real")
    model = LinearRegression().fit(data.X.astype(float), data.y)
    found = data.fit(
        FairIJ(model, constraints="mean_prediction", search=QUICK, verbose=False),
        X=data.X.astype(float),
        X_val=data.X_val.astype(float),
    )
    assert gap_of(found) < 1e-6 < gap_of(found, 0)


@pytest.mark.parametrize("below", [0.0, 10.0])
def test_a_function_of_the_users_is_made_small(below: float) -> None:
    """A gap is brought to zero; what is below zero is lowered by its own size."""
    data = problem()

    def function(z: torch.Tensor, y: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(z)
        return p[groups == 1].mean() - p[groups == 0].mean() - 0.3 * (below > 0)

    found = data.fit(fair(constraints=function, search=QUICK))
    gaps = found.candidates_["gap"]
    assert abs(gaps[0]) > 0.05
    assert gaps.iloc[-1] == pytest.approx(0 if below == 0 else 2 * gaps[0], abs=0.02)


# --- safety -----------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    positives=st.sampled_from([0.05, 0.5, 0.95]),
    size=st.sampled_from([1e-4, 1.0, 1e4]),
    small=st.integers(2, 8),
    name=st.sampled_from(["demographic_parity", "equalized_odds"]),
)
@pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning")
def test_it_never_diverges(seed: int, positives: float, size: float, small: int, name: str) -> None:
    """Untrained networks in float32, extreme features, few positives or negatives, tiny groups."""
    rng = np.random.default_rng(seed)
    X = (size * rng.standard_cauchy((160, 3))).astype(np.float32)
    y = (rng.random(160) < positives).astype(int)
    s = np.arange(160) % 80 < small
    y[[80, 81, 158, 159]] = y[[0, 1, 78, 79]] = 0, 1, 0, 1  # both labels in both groups
    y[82 : 80 + small] = 0
    y[80:84] = 0, 1, 0, 1
    s[80:84] = True
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 4), nn.SELU(), nn.Linear(4, 1))
    model = FairIJ(
        module, constraints=name, search=Constrained(steps=3), outputs="logits", verbose=False
    )
    model.fit(X[:80], y[:80], X_val=X[80:], y_val=y[80:], sensitive_features_val=s[80:])
    assert np.isfinite(model.moves_).all()
    assert np.isfinite(model.candidates_["gap"]).all()


def test_no_step_is_taken_that_does_not_lower_its_merit(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    own = constrained.Descent._go

    def watched(self: Any, step: Any, goal: Any) -> Any:
        before = self.point
        halvings = own(self, 50 * step, goal)  # far too long
        price = constrained.PRICE * float(self._weights.abs().max())
        taken.append((self.point.merit(goal, price) - before.merit(goal, price), halvings))
        return halvings

    monkeypatch.setattr(constrained.Descent, "_go", watched)
    problem().fit(fair(search=QUICK))
    assert all(change < 0 for change, halvings in taken if halvings is not None)
    assert all(change == 0 for change, halvings in taken if halvings is None)
    assert any(halvings for _, halvings in taken)


def test_it_says_that_it_cannot_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constrained.Descent, "_go", lambda *_: None)
    with pytest.warns(FairIJWarning, match="The search went 50% of the way and no farther"):
        found = problem().fit(fair(search=QUICK))
    assert not found.moves_.any()
    assert gap_of(found) == gap_of(found, 0)


def test_a_curvature_that_is_not_positive_definite() -> None:
    """It raises the extra damping until the curvature is positive definite, or stays."""
    found = problem().fit(fair(search=QUICK, curvature="hessian", damping=0.1))
    assert found.candidates_["gap"].min() < found.candidates_["gap"][0]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"steps": 0}, "`steps` must be a whole number of at least 1"),
        ({"newton": 0}, "`newton` must be a whole number"),
        ({"products": 0}, "`products` must be a whole number"),
        ({"beyond": -1}, "`beyond` must be a number"),
        ({"damping": 0}, "`damping` must be a number, above 0"),
    ],
)
def test_bad_settings(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        Constrained(**changes)


# --- folds, and the choice --------------------------------------------------------------------


@pytest.mark.parametrize("validation", ["split", "cross_fit"])
def test_folds_have_the_same_candidates(validation: str) -> None:
    found = problem().fit(fair(search=QUICK, validation_use=validation))
    assert found.candidates_["scale"].tolist()[1:] == [round(i / 8, 6) for i in range(1, 11)]
    assert found.edit_.delta.abs().sum() > 0


def test_its_damping_follows_that_of_one_step() -> None:
    data = problem()
    alike = [
        data.fit(fair(search=search, damping=damping)).moves_
        for search, damping in (
            (QUICK, 1e-1),
            (Constrained(steps=4, damping=3e-2), 1e-1),
            (Constrained(steps=4, damping=1e-2), 1e-1),
        )
    ]
    np.testing.assert_array_equal(alike[0], alike[1])
    assert not np.array_equal(alike[0], alike[2])
