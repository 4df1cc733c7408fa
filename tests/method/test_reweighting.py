"""Searches that reweight rows: against closed forms, dense solves and the models they return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from torch import nn

from biased import L2, fitted, problem
from fairij import FairIJ, Path, Reweight
from fairij.errors import FairIJWarning, InvalidInputError
from fairij.fairness import encode_groups
from fairij.fairness.constraints import CONSTRAINTS
from fairij.method.search import Proposal, SearchContext, SearchDefaults
from fairij.method.search.reweighting import cheapest_fall
from fairij.method.types import FOLDS
from fairij.models import adapt
from fairij.models.losses import get_loss
from reference import CASES, make_case

RATES = ("demographic_parity", "equal_opportunity", "equalized_odds", "equalized_odds_balanced")


def regression(seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, 300)
    X = rng.normal(size=(300, 4)) + 0.8 * s[:, None]
    y = X @ [1.0, -0.5, 0.3, 0.0] + 0.5 * s + 0.3 * rng.normal(size=300)
    return LinearRegression().fit(X[:200], y[:200]), X[:200], y[:200], X[200:], y[200:], s[200:]


def biased(seed: int = 0, rows: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, rows)
    X = rng.normal(size=(rows, 3)) + np.stack([s, 0.3 * s, 0 * s], 1)
    y = (X @ [1.0, 0.6, -0.8] + 0.5 * rng.normal(size=rows) > 0.4).astype(int)
    return X.astype(np.float32), y, s


def network(seed: int = 0) -> tuple[nn.Module, tuple[np.ndarray, ...]]:
    X, y, s = biased(seed)
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(module.parameters(), 0.02)
    for _ in range(150):
        optimizer.zero_grad()
        z = module(torch.from_numpy(X[:400]))[:, 0]
        nn.functional.binary_cross_entropy_with_logits(
            z, torch.from_numpy(y[:400]).float()
        ).backward()
        optimizer.step()
    return module, (X, y, s)


def fit(module: Any, data: tuple[np.ndarray, ...], **settings: Any) -> FairIJ:
    X, y, s = data
    return FairIJ(
        module, verbose=False, **({"search": "grid", "selection": "lowest_gap"} | settings)
    ).fit(X[:400], y[:400], X_val=X[400:], y_val=y[400:], sensitive_features_val=s[400:])


# --- closed forms -----------------------------------------------------------------------------


def test_a_path_of_a_linear_model_closes_a_linear_gap_step_by_step() -> None:
    model, X, y, X_val, y_val, s = regression()
    fair = FairIJ(
        model,
        constraints="mean_prediction",
        search=Path(steps=5, beyond=0, past=0.4, tolerance=1e-12),
        selection="lowest_gap",
        verbose=False,
    ).fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=s)
    table = fair.candidates_
    whole = table["gap"][0]
    assert table["scale"].tolist() == [1.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4]
    # what goes past zero opens the gap the other way
    left = (1 - table["scale"][1:]).abs()
    np.testing.assert_allclose(table["gap"][1:], whole * left, atol=1e-6)


def test_the_end_of_the_path_is_the_least_change_by_the_curvature() -> None:
    model, X, y, X_val, y_val, s = regression()
    fair = FairIJ(
        model,
        constraints="mean_prediction",
        solver="exact",
        search=Path(steps=4, beyond=0, past=0),
        damping=0.1,
        selection="lowest_gap",
        verbose=False,
    ).fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=s)
    design, held = (np.hstack([part, np.ones((len(part), 1))]) for part in (X, X_val))
    H = design.T @ design / len(X) + 0.1 * np.eye(5)
    gradient = held[s == 1].mean(0) - held[s == 0].mean(0)
    theta = np.append(model.coef_, model.intercept_)
    cheapest = np.linalg.solve(H, gradient)
    expected = -cheapest * (gradient @ theta) / (gradient @ cheapest)
    np.testing.assert_allclose(fair.moves_[-1], expected, rtol=1e-6, atol=1e-9)


def test_reweighting_equals_a_dense_solve_of_the_weighted_gradients() -> None:
    module, data = network()
    module = module.double()
    X, y, s = (torch.as_tensor(part) for part in data)
    fair = fit(
        module,
        (data[0].astype(float), *data[1:]),
        search=Reweight(scales=(0.5, 1.0)),
        solver="exact",
    )
    case_z = lambda theta, rows: adapt(module).outputs(X[rows].double(), theta)  # noqa: E731
    theta = adapt(module).theta
    jacobian = adapt(module).linearize(X[:400].double()).rows(torch.arange(400))[:, 0]
    p = torch.sigmoid(case_z(theta, slice(0, 400)))
    H = jacobian.T @ (jacobian * (p * (1 - p))[:, None]) / 400 + 1e-2 * torch.eye(len(theta))
    g = jacobian * (p - y[:400])[:, None]
    weight = torch.as_tensor(fair.influence_).clamp_min(0)
    direction = torch.linalg.solve(H, (weight[:, None] * g).sum(0))
    moved = torch.as_tensor(fair.moves_[2])
    assert float(torch.cosine_similarity(moved, direction, 0)) == pytest.approx(1, abs=1e-4)
    # scale 1 is where a linear surrogate would be zero
    mean = lambda t: torch.sigmoid(case_z(t, slice(400, 600)))  # noqa: E731
    gap = lambda t: mean(t)[s[400:] == 1].mean() - mean(t)[s[400:] == 0].mean()  # noqa: E731
    slope = (gap(theta + 1e-5 * moved) - gap(theta - 1e-5 * moved)) / 2e-5
    assert float(slope) == pytest.approx(-float(gap(theta)), rel=1e-3)
    np.testing.assert_allclose(fair.moves_[1], fair.moves_[2] / 2)


# --- what the engine hands to a path ----------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_a_moved_linearisation_is_that_of_the_edited_model(name: str) -> None:
    case = make_case(name)
    editable = adapt(case.module)
    by = 0.3 * torch.randn(
        len(case.theta), generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    moved = editable.linearize(case.X).moved(by / 2).moved(by / 2)
    fresh = adapt(editable.edited(editable.theta + by)).linearize(case.X)
    direction = torch.ones_like(by)
    torch.testing.assert_close(moved.outputs, fresh.outputs)
    torch.testing.assert_close(moved.jvp(direction), fresh.jvp(direction))
    torch.testing.assert_close(moved.vjp(fresh.outputs), fresh.vjp(fresh.outputs))
    index = torch.tensor([3, 1])
    torch.testing.assert_close(
        moved.restrict(index).jvp(direction), fresh.restrict(index).jvp(direction)
    )


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("classes", [2, 3])
def test_hard_gaps_have_the_value_of_the_metric_and_soft_gradients(name: str, classes: int) -> None:
    generator = torch.Generator().manual_seed(5)
    shape = (90,) if classes == 2 else (90, classes)
    z = torch.randn(shape, generator=generator, dtype=torch.float64)
    y = torch.randint(0, classes, (90,), generator=generator).double()
    groups = encode_groups(np.arange(90) % 3)
    loss = get_loss("binary_cross_entropy" if classes == 2 else "softmax_cross_entropy")
    constraint = CONSTRAINTS[name]
    parts = constraint.part_gradients(z, y, groups, loss, 1.0, hard=True)
    from fairij.method.candidates import Judge

    table = Judge(None, y, groups, loss, constraint, classes)._table(loss.predict(z[None]))
    assert sum(value for value, _ in parts) == pytest.approx(
        float(constraint.gap(z[None], y, groups, table)[0]), abs=1e-12
    )
    soft = constraint.part_gradients(z * 1e-9 + z, y, groups, loss, 1.0)
    assert len(parts) == len(soft)
    for (_, of_hard), (_, of_soft) in zip(parts, soft, strict=True):
        assert bool(torch.isfinite(of_hard).all())
        assert float(of_hard.abs().sum()) > 0
        assert of_hard.shape == of_soft.shape


# --- end to end -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("search", "validation"),
    [
        ("reweight", "reuse"),
        ("path", "split"),
        ("reweight", "cross_fit"),
        pytest.param("path", "reuse", marks=pytest.mark.slow),
        pytest.param("reweight", "split", marks=pytest.mark.slow),
        pytest.param("path", "cross_fit", marks=pytest.mark.slow),
    ],
)
def test_the_returned_model_is_the_chosen_candidate(search: str, validation: str) -> None:
    module, data = network()
    fair = fit(module, data, search=search, validation_use=validation, damping=(1e-2, 3e-2))
    before, after = fair.candidates_["gap"][0], fair.candidates_["gap"][fair.chosen_]
    assert before > 0.2
    assert after < before / 2
    assert len(fair.dropped_) == 0
    z = adapt(fair.estimator_).outputs(data[0][400:]).numpy()
    selected = [(z[data[2][400:] == g] > 0).mean() for g in (0, 1)]
    whole = adapt(module).outputs(data[0][400:]).numpy()
    at_first = [(whole[data[2][400:] == g] > 0).mean() for g in (0, 1)]
    assert abs(selected[1] - selected[0]) < abs(at_first[1] - at_first[0]) / 2
    if validation == "cross_fit":
        assert fair.moves_ is None
        return
    assert fair.moves_.shape == (len(fair.candidates_), len(adapt(module).theta))
    assert not fair.moves_[0].any()
    np.testing.assert_allclose(
        adapt(fair.estimator_).theta - adapt(module).theta, fair.moves_[fair.chosen_], atol=1e-6
    )
    if validation == "reuse":
        assert abs(selected[1] - selected[0]) == pytest.approx(after)


def test_a_path_with_fresh_curvature_takes_other_steps_than_one_without() -> None:
    module, data = network()
    fresh, first = (fit(module, data, search=Path(refresh=r)).moves_ for r in (1, None))
    np.testing.assert_allclose(fresh[1], first[1])  # both begin alike
    assert np.abs(fresh[-1] - first[-1]).max() > 1e-3


@given(st.integers(0, 10_000), st.integers(2, 4), st.floats(0.01, 1.3))
def test_the_cheapest_fall_keeps_to_its_bounds_and_of_two_is_the_best(
    seed: int, parts: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(parts, parts + 1))
    gram, gaps = root @ root.T + 0.05 * np.eye(parts), rng.uniform(0.01, 1, parts)
    fall = share * gaps.sum()
    found = cheapest_fall(torch.from_numpy(gram), torch.from_numpy(gaps), fall).numpy()
    assert (found >= -gaps - 1e-9).all()
    if share >= 1:
        np.testing.assert_allclose(found, -gaps, atol=1e-9)
        return
    assert found.sum() == pytest.approx(-fall)
    if parts == 2:  # one number is free: the least of a parabola, or the nearer end
        cost, start, along = np.linalg.inv(gram), np.array([0, -fall]), np.array([1, -1])
        least = -(along @ cost @ start) / (along @ cost @ along)
        best = start + along * np.clip(least, -gaps[0], gaps[1] - fall)
        np.testing.assert_allclose(found, best, atol=1e-7)


def test_the_cheapest_gap_is_closed_first() -> None:
    gram = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))  # the first moves easily
    gaps = torch.tensor([0.1, 0.3], dtype=torch.float64)
    moves = cheapest_fall(gram, gaps, 0.05)
    assert torch.allclose(moves, torch.tensor([-0.04, -0.01]).double())
    assert torch.allclose(cheapest_fall(gram, gaps, 0.3), torch.tensor([-0.1, -0.2]).double())


def test_a_path_that_takes_the_cheapest_first_keeps_more_at_the_same_gap() -> None:
    data = problem()
    ends = {}
    for cheapest in (False, True):
        fair = FairIJ(
            fitted(),
            constraints="equalized_odds_balanced",
            search=Path(cheapest_first=cheapest, steps=40),
            weight_decay=L2,
            selection="lowest_gap",
            verbose=False,
        )
        data.fit(fair)
        moves = torch.from_numpy(fair.moves_)
        editable = adapt(fitted())
        z = torch.stack([editable.outputs(data.X, editable.theta + move) for move in moves])
        y = torch.from_numpy(data.y).to(z)
        loss = nn.functional.binary_cross_entropy_with_logits(
            z, y.expand_as(z), reduction="none"
        ).mean(1) + L2 / 2 * ((editable.theta + moves) ** 2).sum(1)
        half = int((fair.candidates_["gap"] <= fair.candidates_["gap"][0] / 2).argmax())
        ends[cheapest] = float(loss[half] - loss[0])
    assert 0 < ends[True] < ends[False]


def test_both_parts_of_the_odds_fall_along_a_path() -> None:
    module, data = network()
    fair = fit(module, data, search="path", constraints="equalized_odds_balanced")
    table = fair.candidates_

    def parts(row: int) -> list[float]:
        return [
            abs(table[f"{rate}[1]"][row] - table[f"{rate}[0]"][row])
            for rate in ("true_positive_rate", "false_positive_rate")
        ]

    assert all(a < b / 2 for a, b in zip(parts(fair.chosen_), parts(0), strict=True))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Path(steps=0), "`steps` must be a whole number of at least 1; got 0"),
        (lambda: Path(refresh=0), "`refresh` must be a whole number of at least 1 or None; got 0"),
        (lambda: Path(steps=2.5), "`steps` must be a whole number of at least 1; got 2.5"),
        (lambda: Path(beyond=-1), "`beyond` must be a number, at least 0 and finite; got -1"),
        (lambda: Path(past=-0.5), "`past` must be a number, at least 0 and finite; got -0.5"),
        (lambda: Reweight(scales=()), "`scales` must be one or more positive"),
        (lambda: Reweight(scales=(0.0,)), "`scales` must be one or more positive"),
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message.replace("(", r"\(")):
        make()


# --- where there is nothing to do, or not what was asked for ----------------------------------


@pytest.mark.parametrize("search", ["reweight", "path"])
@pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning")
def test_without_harmful_rows_no_edit_is_said_to_be_made(search: str) -> None:
    """All training rows that count are one and the same, whose influence is not positive."""
    module, (X, y, s) = network()
    same, weight = np.repeat(X[:1], 400, 0), np.append(np.ones(399), 0)
    fits = [
        FairIJ(module, search=search, selection="lowest_gap", verbose=False).fit(
            same,
            np.append(np.full(399, label), 1 - label),
            X_val=X[400:],
            y_val=y[400:],
            sensitive_features_val=s[400:],
            sample_weight=weight,
        )
        for label in (0, 1)
    ]
    (fair,) = (found for found in fits if not (found.influence_ > 0).any())
    assert fair.candidates_["gap"][0] > 0.1  # there is something to close
    assert fair.candidates_["k"].tolist() == [0]
    assert fair.moves_.shape == (1, len(adapt(module).theta))


@pytest.mark.parametrize("search", ["reweight", "path"])
def test_a_function_below_zero_is_lowered_and_not_brought_to_zero(search: str) -> None:
    model, X, y, X_val, y_val, s = regression()
    first = torch.as_tensor(s == 1)

    def below(z: torch.Tensor, y: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        return z[first].mean() - z[~first].mean() - 10

    fair = FairIJ(model, constraints=below, search=search, selection="lowest_gap", verbose=False)
    table = fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=s).candidates_
    assert table["gap"][0] < -5
    assert (table["gap"][1:] < table["gap"][0] - 0.1).all()


def test_a_path_does_not_go_row_by_row() -> None:
    module, data = network()
    with pytest.raises(InvalidInputError, match="`drop`='loss_aware' must have a search that goes"):
        fit(module, data, search="path", drop="loss_aware")


class Fickle(SearchDefaults):
    """A search that proposes an edit to each fold of the rows, and none to all of them."""

    name: ClassVar[str] = "fickle"

    def __init__(self) -> None:
        self.asked = 0

    def count(self, context: SearchContext) -> int:
        return 1

    def propose(self, context: SearchContext) -> Iterator[Proposal]:
        self.asked += 1
        if self.asked <= FOLDS:
            yield from Reweight(scales=(1.0,)).propose(context)


def test_an_edit_that_all_rows_together_cannot_make_is_named() -> None:
    module, data = network()
    with pytest.warns(FairIJWarning, match="cannot be made with all of them together"):
        fair = fit(module, data, search=Fickle(), validation_use="cross_fit")
    assert fair.chosen_ > 0
    assert torch.equal(adapt(fair.estimator_).theta, adapt(module).theta)


def test_a_scale_given_twice_is_not_lost_between_the_folds() -> None:
    module, data = network()
    search = Reweight(scales=(0.5, 1.0, 1.0))
    fair = fit(module, data, search=search, validation_use="cross_fit")
    assert fair.candidates_["scale"].tolist()[1:] == [0.5, 1.0]
