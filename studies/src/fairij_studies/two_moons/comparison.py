"""Appendix C: how well approximate inverses reproduce exact influence, on two moons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.nn import functional as F

from fairij import Exact, Neumann, PrintedWoodFisher, Woodbury, adapt
from fairij.data.hashing import tensor_fingerprint
from fairij.errors import NotConvergedError
from fairij.method.curvature import dense, make_curvature
from fairij.method.influence import influence
from fairij.method.objective import Objective
from fairij.method.run import timed
from fairij.solvers import Solver
from fairij_studies.driver import Unit
from fairij_studies.objectives import training_objective
from fairij_studies.two_moons.data import make_two_moons

Array = NDArray[np.float64]
DEPTHS = (1, 2, 3)
WIDTH = 5
SEEDS = tuple(range(10))
DAMPINGS = tuple(10.0**power for power in range(-4, 2))
TOP = (100, 500)
SCATTERED = 200


@dataclass(frozen=True)
class Size:
    """How much work to do: the paper's numbers, or few of everything."""

    points: int
    epochs: int
    iterations: int
    runs: int


WHOLE, QUICK = Size(10_000, 50, 1000, 10), Size(600, 3, 100, 2)


@dataclass(frozen=True)
class Approximation:
    """A curvature, and a solver by iterations and seed. ``draws`` says if it is random."""

    label: str
    curvature: str
    solver: Callable[[int, int], Solver]
    draws: bool = True


APPROXIMATIONS = (
    Approximation("WoodFisher as printed", "empirical_fisher", PrintedWoodFisher),
    Approximation("Woodbury, empirical Fisher", "empirical_fisher", Woodbury),
    Approximation(
        "Neumann, one row a step",
        "hessian",
        lambda n, seed: Neumann(n, 25.0, batch_size=1, seed=seed, tolerance=None),
    ),
    Approximation(
        "Neumann, all rows",
        "hessian",
        lambda n, seed: Neumann(n, 25.0, tolerance=None),
        draws=False,
    ),
    Approximation("GGN, exact inverse", "ggn", lambda n, seed: Exact(), draws=False),
)


def study_units(quick: bool) -> list[Unit]:
    size, seeds = (QUICK, SEEDS[:1]) if quick else (WHOLE, SEEDS)
    return [
        Unit(
            {"seed": seed, "depth": depth},
            compare,
            {"size": size, "seed": seed, "depth": depth},
            cost=20,
        )
        for seed in seeds
        for depth in DEPTHS
    ]


def compare(size: Size, seed: int, depth: int) -> list[dict[str, Any]]:
    """Compare every approximation with the exact inverse of the damped Hessian, on one model."""
    moons = make_two_moons(size.points, random_state=seed)
    X, y = torch.tensor(moons.data.to_numpy()), torch.tensor(moons.target.to_numpy()).double()
    in_training = torch.tensor((moons.split == "train").to_numpy())
    model = trained(X[in_training], y[in_training], depth, size.epochs, seed)
    objective = training_objective(model, X[in_training], y[in_training])
    test = torch.nonzero(~in_training)[:, 0]
    chosen = test[np.random.default_rng(seed).integers(len(test))]
    gradient = training_objective(model, X[chosen][None], y[chosen][None]).gradient
    eigenvalues = torch.linalg.eigvalsh(dense(make_curvature("hessian", objective)))
    low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    damping = next(d for d in DAMPINGS if low + d > d / 10)
    exact = scores(objective, gradient, Exact(), "hessian", damping)
    predicted = (adapt(model).outputs(X[test]) > 0).double()
    points = tensor_fingerprint(torch.cat([X, y[:, None]], 1))
    facts = {
        "data": "two moons that a line can separate",
        "data_source": f"drawn with seed {seed}, {points}",
        "group_is_feature": False,  # there is none
        "constraint": "the loss of one test point",
        "n_train": int(in_training.sum()),
        "n_validation": 0,
        "n_test": len(test),
        "n_parameters": len(objective.theta),
        "damping": damping,
        "smallest_eigenvalue": low,
        "largest_eigenvalue": high,
        "condition": (high + damping) / (low + damping),
        "train_loss": objective.value,
        "gradient_norm": float(objective.gradient.norm()),
        "test_accuracy": float((predicted == y[test]).double().mean()),
    }
    return [
        {**facts, **_compared(approximation, objective, gradient, exact, damping, size)}
        for approximation in APPROXIMATIONS
    ]


def _compared(
    approximation: Approximation,
    objective: Objective,
    gradient: Tensor,
    exact: Array,
    damping: float,
    size: Size,
) -> dict[str, Any]:
    runs, seconds = range(size.runs if approximation.draws else 1), dict[str, float]()
    record: dict[str, Any] = {"method": approximation.label, "runs": len(runs), "failed": None}
    try:
        with timed(seconds, "seconds"):
            found = [
                scores(
                    objective,
                    gradient,
                    approximation.solver(size.iterations, run),
                    approximation.curvature,
                    damping,
                )
                for run in runs
            ]
    except NotConvergedError as error:
        return {**record, **seconds, "failed": str(error)}
    record["seconds"] = seconds["seconds"] / len(runs)  # of one run
    mean = np.mean(found, 0)
    rescaled = mean * exact.mean() / mean.mean()
    places = np.unique(np.linspace(0, len(exact) - 1, SCATTERED).round().astype(int))
    return {
        **record,
        "mad": float(np.median(np.abs(rescaled - exact))),
        "exact_spread": float(exact.std()),
        "r2": float(1 - ((rescaled - exact) ** 2).sum() / ((exact - exact.mean()) ** 2).sum()),
        "spearman": float(spearmanr(exact, mean).statistic),
        **{f"top_{k}": shared_top(exact, mean, min(k, len(exact) // 4)) for k in TOP},
        "exact_sample": exact[places].tolist(),
        "rescaled_sample": rescaled[places].tolist(),
    }


def scores(
    objective: Objective, gradient: Tensor, solver: Solver, curvature: str, damping: float
) -> Array:
    inverse = solver.prepare(make_curvature(curvature, objective), damping)
    return influence(objective, inverse, gradient).scores.numpy().astype(np.float64)


def shared_top(exact: Array, approximate: Array, k: int) -> float:
    """Return the share of the k largest scores that both have."""
    first, second = (set(np.argsort(-values)[:k].tolist()) for values in (exact, approximate))
    return len(first & second) / k


def trained(X: Tensor, y: Tensor, depth: int, epochs: int, seed: int) -> nn.Sequential:
    """Train ``depth`` linear layers with SELU between them, by Adam, in double precision."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for _ in range(depth - 1):
            layers += [nn.Linear(WIDTH if layers else X.shape[1], WIDTH), nn.SELU()]
        layers.append(nn.Linear(WIDTH if layers else X.shape[1], 1))
        model = nn.Sequential(*layers).double()
        optimiser = torch.optim.Adam(model.parameters(), 1e-3)
        for _ in range(epochs):
            for batch in torch.randperm(len(X)).split(64):
                optimiser.zero_grad()
                F.binary_cross_entropy_with_logits(model(X[batch])[:, 0], y[batch]).backward()
                optimiser.step()
    return model.eval()
