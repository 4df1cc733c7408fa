from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from fairij.baselines import FST, HPS, ExponentiatedGradient, LinearPost, Recipe, RelaxedThresholds
from fairij.baselines.base import positive_scores
from fairij.baselines.group_blind import GroupModel, dual_solution, fair_program, transformed
from fairij.baselines.thresholds import OperatingPoints, best_mixtures
from fairij.datasets import Split
from fairij.fairness import CONSTRAINTS
from fairij.fairness import rates as tables


def gap_of(constraint: str, table: Any) -> float:
    metric = CONSTRAINTS[constraint].metric
    assert metric is not None
    return float(metric(table))


# relaxed thresholds


def small_groups(n: int = 14) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    groups = []
    for shift in (0.0, 0.8):
        y = np.arange(n) % 2 * 1.0
        groups.append((y + shift + rng.normal(size=n), y))
    return groups


def points_of(groups: list[tuple[np.ndarray, np.ndarray]]) -> list[OperatingPoints]:
    return [OperatingPoints.of(scores, y, 0.5) for scores, y in groups]


@pytest.mark.parametrize("constraint", RelaxedThresholds.constraints)
@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.3])
def test_thresholds_are_the_optimum_over_all_randomised_rules(
    constraint: str, tolerance: float
) -> None:
    """Brute force: a program over all pairs of thresholds at once, corners of the hull or not."""
    groups = small_groups()
    mixtures = best_mixtures(points_of(groups), constraint, tolerance)
    error = sum(w @ p.errors for w, p in zip(mixtures, points_of(groups), strict=True))
    tables_of_pairs = []
    for pair in product(*([np.inf, *scores] for scores, _ in groups)):
        table = np.zeros((2, 2, 2))
        for g, (threshold, (scores, y)) in enumerate(zip(pair, groups, strict=True)):
            for truth in (0, 1):
                hits = scores[y == truth] >= threshold
                table[g, truth] = [(~hits).sum(), hits.sum()]
        tables_of_pairs.append(table)
    every = np.array(tables_of_pairs)  # (P, 2, 2, 2)
    tpr, fpr = every[:, :, 1, 1] / 7, every[:, :, 0, 1] / 7
    gaps = {
        "demographic_parity": [(tpr + fpr) / 2],
        "equal_opportunity": [tpr],
    }.get(constraint, [tpr, fpr])
    differences = np.array([rate[:, 0] - rate[:, 1] for rate in gaps])  # (kinds, P)
    signs = np.array(list(product([1, -1], repeat=len(gaps))))
    if constraint.endswith("worst_case"):
        rows = np.concatenate([differences, -differences])
    else:
        rows = signs @ differences
    found = linprog(
        1 - tables.accuracy(every),
        rows,
        np.full(len(rows), tolerance),
        np.ones((1, len(every))),
        [1.0],
    )
    assert error == pytest.approx(found.fun, abs=1e-9)
    assert 0 < error < 0.5


def test_a_wide_tolerance_leaves_the_best_thresholds(trial: Any) -> None:
    method = RelaxedThresholds(tolerance=1.0)
    predictor = method.fit(trial.model, trial.train, trial.validation)
    v = trial.validation
    table = predictor.expected_counts(v.X, v.y, v.s)
    scores, best = positive_scores(trial.model, v.X), 0
    for g in (0, 1):
        inside = v.s == g
        best += max(((scores[inside] >= t) == v.y[inside]).sum() for t in [np.inf, *scores[inside]])
    assert table[:, [0, 1], [0, 1]].sum() == pytest.approx(best)


@pytest.mark.parametrize("constraint", RelaxedThresholds.constraints)
def test_the_gap_on_validation_rows_is_the_tolerance(trial: Any, constraint: str) -> None:
    v, errors = trial.validation, []
    for tolerance in (0.0, 0.05):
        method = RelaxedThresholds(constraint=constraint, tolerance=tolerance)
        table = method.fit(trial.model, trial.train, v).expected_counts(v.X, v.y, v.s)
        assert gap_of(constraint, table) == pytest.approx(tolerance, abs=1e-7)
        errors.append(1 - tables.accuracy(table))
    assert errors[1] < errors[0]


@pytest.mark.parametrize("constraint", HPS.constraints)
def test_fairlearn_and_the_program_agree_without_a_tolerance(trial: Any, constraint: str) -> None:
    """Two implementations of the same optimum; fairlearn's is on a grid of rates."""
    v = trial.validation
    ours, theirs = (
        method.fit(trial.model, trial.train, v).expected_counts(v.X, v.y, v.s)
        for method in (RelaxedThresholds(constraint=constraint), HPS(constraint=constraint))
    )
    assert gap_of(constraint, theirs) == pytest.approx(0.0, abs=1e-6)
    # the program knows no grid, and may treat groups unlike where one rate alone is fixed
    assert 0 <= tables.accuracy(ours) - tables.accuracy(theirs) + 1e-9 < 2e-3


# LinearPost


def program_case(seed: int, n: int = 60, groups: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    positive = rng.random(n)
    chances = rng.dirichlet(np.ones(groups), n)
    chances[:, 0] *= 0.2 + positive  # the group goes with the label
    chances /= chances.sum(1, keepdims=True)
    joint = np.stack([chances * positive[:, None], chances * (1 - positive)[:, None]])
    return positive, joint / joint.mean(1, keepdims=True)


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("tolerance", [0.0, 0.1])
def test_the_program_has_no_gap_between_primal_and_dual(groups: int, tolerance: float) -> None:
    """The dual is written out: ``mean min(1 - 2p - psi.w, 0) - tolerance/2 |psi|_1``."""
    positive, weights = program_case(0, groups=groups)
    pi, psi = fair_program(positive, weights, tolerance)
    np.testing.assert_allclose(psi.sum(1), 0, atol=1e-9)
    margin = 1 - 2 * positive - np.einsum("kng,kg->n", weights, psi)
    dual = np.minimum(margin, 0).mean() - tolerance / 2 * np.abs(psi).sum()
    assert ((1 - 2 * positive) * pi).mean() == pytest.approx(dual, abs=1e-9)
    rates = np.einsum("kng,n->kg", weights, pi) / len(pi)
    assert np.ptp(rates, axis=1).max() == pytest.approx(tolerance, abs=1e-9)
    # the rule agrees with the optimum on all rows but the few that are split
    sure = np.abs(margin) > 1e-9
    np.testing.assert_allclose(pi[sure], margin[sure] < 0, atol=1e-9)
    assert (~sure).sum() <= weights.shape[0] * groups


@pytest.mark.parametrize("seed", range(3))
def test_the_program_bounds_all_labellings(seed: int) -> None:
    """Brute force over 2^12 labellings: none within the tolerance does better, by hand."""
    positive, weights = program_case(seed, n=12)
    pi, _ = fair_program(positive, weights[:1], 0.2)
    labellings = np.array(list(product([0, 1], repeat=12)))
    rates = np.einsum("ng,ln->lg", weights[0], labellings) / 12
    costs = (labellings * (1 - 2 * positive)).mean(1)
    fair = np.ptp(rates, axis=1) <= 0.2 + 1e-12
    # mixtures of two labellings reach the optimum of one constraint
    mixed = linprog(
        costs,
        np.stack([rates[:, 0] - rates[:, 1], rates[:, 1] - rates[:, 0]]),
        [0.2, 0.2],
        np.ones((1, len(costs))),
        [1],
    )
    assert ((1 - 2 * positive) * pi).mean() == pytest.approx(mixed.fun, abs=1e-9)
    assert costs[fair].min() >= mixed.fun - 1e-12


def test_a_known_group_gives_thresholds_per_group() -> None:
    """Parity with certain groups: p + psi_g / (2 P(g)) > 1/2, and rates alike: closed form."""
    rng = np.random.default_rng(0)
    s = np.repeat([0, 1], 50)
    positive = np.clip(rng.random(100) * 0.6 + 0.3 * s, 0, 1)
    weights = np.eye(2)[s][None] * 2
    pi, _ = fair_program(positive, weights, 0.0)
    best = min(  # the same number k of the best rows of either group
        sum((1 - 2 * np.sort(positive[s == g])[::-1][:k]).sum() for g in (0, 1)) for k in range(51)
    )
    assert ((1 - 2 * positive) * pi).sum() == pytest.approx(best)


@pytest.mark.parametrize("constraint", LinearPost.constraints)
def test_linear_post_meets_the_bound_in_expectation(trial: Any, constraint: str) -> None:
    v, gaps = trial.validation, []
    groups = GroupModel.fit(constraint, trial.train, 2)
    joint = groups.joint(v.X, positive_scores(trial.model, v.X))
    weights = joint / joint.mean(1, keepdims=True)
    for tolerance in (0.02, 1.0):
        method = LinearPost(constraint=constraint, tolerance=tolerance)
        labels = method.fit(trial.model, trial.train, v).predict(v.X)
        gaps.append(np.ptp(np.einsum("kng,n->kg", weights, labels) / len(v), axis=1).max())
        assert gaps[-1] <= tolerance + 0.01  # one or two rows of 1200 are split by the program
    assert gaps[0] < 0.5 * gaps[1]
    np.testing.assert_array_equal(labels, positive_scores(trial.model, v.X) > 0.5)


def test_linear_post_lowers_the_gap_on_new_rows(trial: Any) -> None:
    t = trial.test
    gaps = [
        gap_of(
            "demographic_parity",
            LinearPost(tolerance=tolerance, recalibrate=recalibrate)
            .fit(trial.model, trial.train, trial.validation)
            .expected_counts(t.X, t.y, t.s),
        )
        for tolerance, recalibrate in ((1.0, False), (0.0, False), (0.0, True))
    ]
    assert max(gaps[1:]) < 0.3 * gaps[0]


# FST


def test_the_transform_is_the_minimiser() -> None:
    f = np.linspace(1e-6, 1 - 1e-6, 200_001)
    for r, mu in product([0.0, 0.2, 0.5, 0.9, 1.0], [-30.0, -1.5, -1.0, -0.3, 0.0, 1e-12, 0.7, 30]):
        value = -r * np.log(f) - (1 - r) * np.log(1 - f) + mu * f
        found = transformed(np.array([r]), np.array([mu]))[0]
        assert found == pytest.approx(f[value.argmin()], abs=1e-5)


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("strata", [1, 2])
def test_fst_is_the_constrained_optimum(tolerance: float, strata: int) -> None:
    """Brute force: the primal in all 25 scores at once, by sequential quadratic programming."""
    r, weights = program_case(1, n=25)
    r = 0.1 + 0.8 * r
    contrasts = (weights - weights.mean(2, keepdims=True))[:strata].transpose(0, 2, 1)
    contrasts = contrasts.reshape(-1, 25)
    multipliers = dual_solution(r, contrasts.reshape(strata, 2, 25).transpose(0, 2, 1), tolerance)
    ours = transformed(r, multipliers.ravel() @ contrasts)

    def loss(f: np.ndarray) -> float:
        return float((-r * np.log(f) - (1 - r) * np.log(1 - f)).mean())

    both = np.concatenate([contrasts, -contrasts])
    bound = {
        "type": "ineq",
        "fun": lambda f: tolerance + 1e-12 - both @ f / 25,
        "jac": lambda f: -both / 25,
    }
    primal = minimize(
        loss,
        np.full(25, 0.5),
        bounds=[(1e-4, 1 - 1e-4)] * 25,
        jac=lambda f: ((f - r) / (f * (1 - f))) / 25,
        constraints=bound,
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-13},
    )
    assert primal.success
    assert np.abs(contrasts @ ours / 25).max() <= tolerance + 1e-6
    assert loss(ours) == pytest.approx(primal.fun, abs=1e-6)
    np.testing.assert_allclose(ours, primal.x, atol=2e-3)


@pytest.mark.parametrize("constraint", FST.constraints)
def test_fst_meets_the_bound_on_scores(trial: Any, constraint: str) -> None:
    v = trial.validation
    predictor = FST(constraint=constraint, tolerance=0.01).fit(trial.model, trial.train, v)
    scores = predictor.predict_proba(v.X)[:, 1]
    raw = positive_scores(trial.model, v.X)
    calibrated = IsotonicRegression(y_min=0, y_max=1).fit(raw, v.y).predict(raw)
    joint = GroupModel.fit(constraint, trial.train, 2).joint(v.X, calibrated)
    weights = joint / joint.mean(1, keepdims=True)
    every = joint.sum(2) / joint.sum(2).mean(1, keepdims=True)
    for k in range(len(weights)):
        means = weights[k].T @ scores / len(v)
        assert np.abs(means - every[k] @ scores / len(v)).max() == pytest.approx(0.01, abs=1e-4)


def test_fst_without_a_bound_is_the_recalibrated_model(trial: Any) -> None:
    v = trial.validation
    predictor = FST(tolerance=1.0).fit(trial.model, trial.train, v)
    raw = positive_scores(trial.model, v.X)
    curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(raw, v.y)
    new = positive_scores(trial.model, trial.test.X)
    np.testing.assert_allclose(
        predictor.predict_proba(trial.test.X)[:, 1], curve.predict(new), atol=1e-6
    )


def test_fst_lowers_the_gap_on_new_rows(trial: Any) -> None:
    t = trial.test
    gaps = [
        gap_of(
            "demographic_parity",
            FST(tolerance=tolerance)
            .fit(trial.model, trial.train, trial.validation)
            .expected_counts(t.X, t.y, t.s),
        )
        for tolerance in (1.0, 0.0)
    ]
    assert gaps[1] < 0.4 * gaps[0]


# exponentiated gradient


def test_exponentiated_gradient_is_the_best_mixture_of_four() -> None:
    """One binary feature: only four classifiers, so the best mixture is a tiny program."""
    cells = {(0, 0): (60, 15), (1, 0): (10, 15), (0, 1): (20, 10), (1, 1): (10, 60)}  # (x, s): y
    x, s, y = (
        np.concatenate(parts)
        for parts in zip(
            *(
                (np.full(sum(n), a), np.full(sum(n), g), np.repeat([0, 1], n))
                for (a, g), n in cells.items()
            ),
            strict=True,
        )
    )
    split = Split(x[:, None].astype(np.float32), y.astype(np.float32), s.astype(np.int64))
    rules = np.array(list(product([0, 1], repeat=2)))
    labels = rules[:, x]  # (4, N)
    errors = (labels != y).mean(1)
    to_all = np.array(
        [[labels[i][s == g].mean() - labels[i].mean() for i in range(4)] for g in (0, 1)]
    )
    best = linprog(errors, np.concatenate([to_all, -to_all]), [0.05] * 4, np.ones((1, 4)), [1])
    method = ExponentiatedGradient(tolerance=0.05, max_iter=25, estimator=LogisticRegression(C=1e4))
    chance = method.fit(None, split, split).acceptance(split.X)
    error = np.where(y == 1, 1 - chance, chance).mean()
    assert error == pytest.approx(best.fun, abs=0.01)
    for g in (0, 1):
        assert abs(chance[s == g].mean() - chance.mean()) <= 0.05 + 0.01
    assert best.fun > errors.min() + 0.01  # the bound does bind


def test_exponentiated_gradient_trains_the_network(trial: Any) -> None:
    t, few = trial.test, Split(trial.train.X[:600], trial.train.y[:600], trial.train.s[:600])
    recipe = Recipe(start="model", epochs=3, batch_size=300, learning_rate=3e-2, checkpoint="last")
    gaps = [
        gap_of(
            "demographic_parity",
            ExponentiatedGradient(tolerance=tolerance, max_iter=5, recipe=recipe)
            .fit(trial.model, few, few)
            .expected_counts(t.X, t.y, t.s),
        )
        for tolerance in (0.5, 0.02)
    ]
    assert gaps[1] < 0.5 * gaps[0]


def test_tolerances_can_share_a_model_of_the_group(trial: Any) -> None:
    model, train, validation = trial.model, trial.train, trial.validation
    shared = GroupModel.fit("equalized_odds", train, 2)
    for tolerance in (0.0, 0.1):
        given: dict[str, Any] = {"constraint": "equalized_odds", "tolerance": tolerance}
        alone = LinearPost(**given).fit(model, train, validation)
        sharing = LinearPost(**given, learner=shared).fit(model, train, validation)
        for part in (trial.test, validation, trial.test):  # also when it is seen again
            assert np.array_equal(alone.scores(part.X, None), sharing.scores(part.X, None))
