from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import gaussian_kde, norm
from torch import nn

from fairij.baselines import HGR, FairMixup, GapReg, Recipe
from fairij.baselines.base import positive_scores
from fairij.baselines.in_processing import Draw, Sampler, train_module
from fairij.baselines.penalties import SPREAD, chi_square, joint_density, path_slope
from fairij.datasets import Split
from fairij.fairness import CONSTRAINTS
from fairij.models.torch.training import mlp, train_mlp

FAST = Recipe(epochs=15, batch_size=128, learning_rate=1e-2, checkpoint="last")


def everything(split: Any, constraint: str) -> Draw:
    return Sampler.of(split, constraint, 2).draw(None, torch.Generator().manual_seed(0))


def test_without_a_penalty_the_loop_is_that_of_the_papers_network(trial: Any) -> None:
    t, v = trial.train, trial.validation
    reference = train_mlp(
        t.X, t.y, v.X, v.y, hidden=8, epochs=3, batch_size=64, learning_rate=1e-2, seed=5
    )
    recipe = Recipe(epochs=3, batch_size=64, learning_rate=1e-2)
    module = train_module(mlp(4, 8), t, v, recipe=recipe, seed=5)
    predictor = GapReg(strength=0, recipe=recipe, seed=5).fit(mlp(4, 8), t, v)
    for key, value in reference.state_dict().items():
        torch.testing.assert_close(module.state_dict()[key], value, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        predictor.predict_proba(v.X)[:, 1], positive_scores(reference, v.X), rtol=1e-4
    )


@pytest.mark.parametrize("balanced", [False, True])
def test_a_step_is_down_the_loss_and_the_penalty(trial: Any, balanced: bool) -> None:
    """Adam's first step has the sign of the gradient of ``loss + strength * penalty``."""
    train, rate = trial.train, 1e-3
    recipe = Recipe(
        "model", 1, len(train), learning_rate=rate, checkpoint="last", balanced_loss=balanced
    )
    method = GapReg(strength=3.0, recipe=recipe, seed=4)
    start = mlp(4, 8)
    moved = train_module(start, train, train, recipe=recipe, seed=4, method=method)
    sampler = Sampler.of(train, "demographic_parity", 2)
    draw = sampler.draw(len(train), torch.Generator().manual_seed(4))
    X, y = torch.as_tensor(train.X), torch.as_tensor(train.y)
    z, truth = (start(draw.features), draw.y) if balanced else (start(X), y)
    scores = [torch.sigmoid(start(x)).mean() for x in draw.strata[0]]
    loss = nn.BCEWithLogitsLoss()(z[:, 0], truth) + 3 * (scores[0] - scores[1]).abs()
    gradients = torch.autograd.grad(loss, list(start.parameters()))
    for before, after, gradient in zip(
        start.parameters(), moved.parameters(), gradients, strict=True
    ):
        clear = gradient.abs() > 1e-5
        assert clear.float().mean() > 0.8
        step = (after - before)[clear].detach()
        torch.testing.assert_close(step, -rate * gradient[clear].sign(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("constraint", GapReg.constraints)
def test_gapreg_is_the_gap_of_mean_scores(trial: Any, constraint: str) -> None:
    split = trial.validation
    value = GapReg(constraint=constraint).penalty(trial.model, everything(split, constraint))
    scores = torch.as_tensor(positive_scores(trial.model, split.X))
    y, s = torch.as_tensor(split.y), torch.as_tensor(split.s)
    reference = CONSTRAINTS[constraint].surrogate(scores, y, s)
    assert float(value.detach()) == pytest.approx(float(reference), abs=1e-5)


@pytest.mark.parametrize("method", [GapReg, FairMixup, HGR])
def test_for_odds_the_penalty_is_the_sum_over_both_truths(trial: Any, method: Any) -> None:
    """Each term is that of parity on the rows of one truth alone."""
    split = trial.validation
    together = method(constraint="equalized_odds").penalty(
        trial.model, everything(split, "equalized_odds")
    )
    generator, parts = torch.Generator().manual_seed(0), []
    for truth in (1, 0):
        inside = split.y == truth
        alone = Split(split.X[inside], split.y[inside], split.s[inside])
        draw = Sampler.of(alone, "demographic_parity", 2).draw(None, generator)
        parts.append(float(method().penalty(trial.model, draw).detach()))
    assert float(together.detach()) == pytest.approx(sum(parts), rel=1e-5)
    assert min(parts) > 0


def test_the_draw_has_as_many_rows_of_every_cell(trial: Any) -> None:
    sampler = Sampler.of(trial.train, "equalized_odds", 2)
    draw = sampler.draw(256, torch.Generator().manual_seed(0))
    assert [[len(x) for x in groups] for groups in draw.strata] == [[64, 64], [64, 64]]
    assert draw.y.tolist() == [1.0] * 128 + [0.0] * 128
    known = {tuple(row): int(s) for row, s in zip(trial.train.X, trial.train.s, strict=True)}
    for groups in draw.strata:
        for g, x in enumerate(groups):
            assert {known[tuple(row)] for row in x.numpy()} == {g}


def test_the_slope_along_the_path_is_that_of_finite_differences(trial: Any) -> None:
    module = mlp(4, 8).double()
    first, second = torch.randn(2, 20, 4, generator=torch.Generator().manual_seed(0)).double()
    t = torch.tensor(0.3).double()

    def f(t: float) -> Any:
        with torch.no_grad():
            return torch.sigmoid(module(t * first + (1 - t) * second)[:, 0])

    by_differences = (f(0.3 - 1e-5) - f(0.3 + 1e-5)) / 2e-5
    torch.testing.assert_close(
        path_slope(module, first, second, t).detach(), by_differences, atol=1e-8, rtol=1e-6
    )


def test_the_slope_integrates_to_the_gap(trial: Any) -> None:
    """The integral of the slope over t is the difference of the ends, whatever the network."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    (first, second), *_ = everything(trial.train, "demographic_parity").strata
    n = min(len(first), len(second))
    first, second = first[:n].double(), second[:n].double()
    nodes, weights = np.polynomial.legendre.leggauss(20)
    total = sum(
        weight / 2 * float(path_slope(module, first, second, t).mean().detach())
        for t, weight in zip(torch.tensor((nodes + 1) / 2), weights, strict=True)
    )
    with torch.no_grad():
        ends = [torch.sigmoid(module(x)).mean() for x in (first, second)]
    assert total == pytest.approx(float(ends[1] - ends[0]), abs=1e-6)


def test_fairmixup_trains_through_the_slope(trial: Any) -> None:
    """For a nearly linear score the slope does not depend on t: closed form and gradient."""
    module = nn.Linear(4, 1)
    nn.init.constant_(module.bias, 0.0)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1e-3, 2e-3, -1e-3, 0.0]]))
    draw = everything(trial.train, "demographic_parity")
    n = min(map(len, draw.strata[0]))
    penalty = FairMixup().penalty(module, draw)
    difference = (draw.strata[0][1][:n] - draw.strata[0][0][:n]).mean(0)
    closed = float((module.weight[0].detach() @ difference).abs()) / 4  # sigmoid'(0) = 1/4
    assert float(penalty.detach()) == pytest.approx(closed, rel=1e-3)
    (gradient,) = torch.autograd.grad(penalty, module.weight)
    torch.testing.assert_close(gradient[0].abs(), difference.abs() / 4, atol=1e-2, rtol=1e-2)


def gaussian_groups(n: int = 4000, distance: float = 1.0) -> list[torch.Tensor]:
    rng = np.random.default_rng(0)
    return [torch.as_tensor(rng.normal(m, 1.0, n)) for m in (0.0, distance)]


def test_chi_square_of_two_gaussians_is_near_its_integral() -> None:
    shares = torch.tensor([0.3, 0.7])
    groups = gaussian_groups()
    # the kernel widens each density: Silverman's width in units of the whole standard deviation
    width = np.sqrt(1 + 0.3 * 0.7) * (8000 * 3 / 4) ** (-1 / 5)
    wide = np.sqrt(1 + width**2)

    def integrand(x: float) -> float:
        joint = np.array([0.3 * norm.pdf(x, 0, wide), 0.7 * norm.pdf(x, 1, wide)])
        return float((joint**2 / (joint.sum() * np.array([0.3, 0.7]))).sum())

    exact = quad(integrand, -8, 9)[0] - 1
    assert float(chi_square(groups, shares, bins=200)) == pytest.approx(exact, rel=0.06)
    assert exact > 0.1


def test_the_density_is_that_of_scipy() -> None:
    groups, shares = gaussian_groups(300), torch.tensor([0.5, 0.5])
    joint = joint_density(groups, shares, bins=40).numpy()
    both = np.concatenate([g.numpy() for g in groups])
    centres = np.linspace(-SPREAD, SPREAD, 40)
    for g, values in enumerate(groups):
        standard = (values.numpy() - both.mean()) / both.std()
        width = (600 * 3 / 4) ** (-1 / 5)
        density = gaussian_kde(standard, width / standard.std(ddof=1))(centres)
        np.testing.assert_allclose(
            joint[:, g] / joint[:, g].sum(), density / density.sum(), atol=1e-6
        )


def test_chi_square_is_the_squared_maximal_correlation_for_two_groups() -> None:
    """HGR is the second singular value of h(c, g) / sqrt(h(c) h(g)) (Witsenhausen)."""
    groups, shares = gaussian_groups(500), torch.tensor([0.4, 0.6])
    joint = joint_density(groups, shares)
    scaled = joint / (joint.sum(0, keepdim=True) * joint.sum(1, keepdim=True)).sqrt()
    singular = torch.linalg.svdvals(scaled)
    assert float(singular[0]) == pytest.approx(1.0)
    assert float(chi_square(groups, shares)) == pytest.approx(float(singular[1]) ** 2)


def test_chi_square_is_zero_when_groups_are_alike() -> None:
    (one, _), shares = gaussian_groups(500), torch.tensor([0.4, 0.6])
    assert float(chi_square([one, one], shares)) == pytest.approx(0.0, abs=1e-9)
    assert float(chi_square([one * 0, one * 0], shares)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("method", "strength"), [(GapReg, 5.0), (FairMixup, 5.0), (HGR, 5.0)])
@pytest.mark.parametrize("constraint", ["demographic_parity", "equalized_odds"])
def test_the_penalty_lowers_the_gap(
    trial: Any, method: Any, strength: float, constraint: str
) -> None:
    gaps = []
    for value in (0.0, strength):
        predictor = method(constraint=constraint, strength=value, recipe=FAST).fit(
            trial.model, trial.train, trial.validation
        )
        scores = torch.as_tensor(predictor.predict_proba(trial.test.X)[:, 1])
        y, s = torch.as_tensor(trial.test.y), torch.as_tensor(trial.test.s)
        gaps.append(float(CONSTRAINTS[constraint].surrogate(scores, y, s)))
    assert gaps[1] < 0.45 * gaps[0]


def test_fine_tuning_starts_at_the_model(trial: Any) -> None:
    still = Recipe(start="model", epochs=1, learning_rate=1e-12, checkpoint="last")
    predictor = GapReg(recipe=still).fit(trial.model, trial.train, trial.validation)
    np.testing.assert_allclose(
        predictor.predict_proba(trial.test.X)[:, 1],
        positive_scores(trial.model, trial.test.X),
        atol=1e-6,
    )


def test_the_objective_checkpoint_keeps_fairer_epochs_than_accuracy(trial: Any) -> None:
    """From a biased model, the most accurate epoch is an early one; the best objective is not."""
    gaps = {}
    for checkpoint in ("accuracy", "objective"):
        recipe = Recipe(
            start="model", epochs=12, batch_size=128, learning_rate=3e-3, checkpoint=checkpoint
        )
        predictor = GapReg(strength=10, recipe=recipe).fit(
            trial.model, trial.train, trial.validation
        )
        scores = torch.as_tensor(predictor.predict_proba(trial.validation.X)[:, 1])
        y, s = torch.as_tensor(trial.validation.y), torch.as_tensor(trial.validation.s)
        gaps[checkpoint] = float(CONSTRAINTS["demographic_parity"].surrogate(scores, y, s))
    assert gaps["objective"] < gaps["accuracy"]


def test_weights_are_as_repeated_rows() -> None:
    """One full-batch step with weight 2 on a row is one with the row twice, up to the scale."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 3)).astype(np.float32), np.array([0, 1, 0, 1, 1, 0], np.float32)
    s = np.zeros(6, np.int64)
    recipe = Recipe(start="model", epochs=40, batch_size=100, learning_rate=1e-2, checkpoint="last")
    twice = np.array([0, 1, 2, 3, 4, 5, 5])
    module = nn.Linear(3, 1)
    weight = torch.tensor([1.0, 1, 1, 1, 1, 2]) * 6 / 7
    weighted = train_module(
        module, Split(X, y, s), Split(X, y, s), recipe=recipe, seed=0, weight=weight
    )
    repeated = Split(X[twice], y[twice], s[[0] * 7])
    plain = train_module(module, repeated, repeated, recipe=recipe, seed=0)
    for a, b in zip(weighted.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
