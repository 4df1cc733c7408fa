"""The problem that every tool solves: synthetic rows of Adult's size, and a small MLP.

Scores of every training row, I_n = -(J_n r) l'(z_n) / N with r = (H + damping I)^-1 grad M:
M is the gap of mean scores between two groups on the validation set, H the generalised
Gauss-Newton matrix of the mean loss. Only numpy and torch are needed to read it, so that each
peer can do so in its own environment.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp
from torch.nn.functional import binary_cross_entropy_with_logits

CACHE = Path(__file__).parents[1] / "build" / "benchmarks"
TRAINING_ROWS, VALIDATION_ROWS = 21_708, 10_853
CONTINUOUS = 6
BLOCKS = (8, 16, 7, 14, 6, 5, 10, 41)  # categories in each one-hot block: 107 columns
HIDDEN = 100
DAMPING = 1e-2
EPOCHS = 5

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Problem:
    """Data, labels, groups and fitted weights; `path` is the file they were read from."""

    path: Path
    X: Tensor  # (N, 113)
    y: Tensor  # (N,)
    X_validation: Tensor  # (V, 113)
    group_validation: Tensor  # (V,), True for group 1
    weights: dict[str, Tensor]
    damping: float = DAMPING

    def model(self) -> nn.Sequential:
        """Build the fitted network, output (N, 1), in the dtype of the weights."""
        model = network(self.X.shape[1]).to(self.X.dtype)
        model.load_state_dict(self.weights)
        return model.eval()

    def double(self) -> Problem:
        return Problem(
            self.path,
            self.X.double(),
            self.y.double(),
            self.X_validation.double(),
            self.group_validation,
            {name: weight.double() for name, weight in self.weights.items()},
            self.damping,
        )

    def head(self, rows: int) -> Problem:
        """Return the first rows only, for warming up, not for timing."""
        return Problem(
            self.path,
            self.X[:rows],
            self.y[:rows],
            self.X_validation[:rows],
            self.group_validation[:rows],
            self.weights,
            self.damping,
        )


def network(features: int) -> nn.Sequential:
    layers = {
        "hidden": nn.Linear(features, HIDDEN),
        "activation": nn.SELU(),
        "output": nn.Linear(HIDDEN, 1),
    }
    return nn.Sequential(OrderedDict(layers))


def gap(z: Tensor, group: Tensor) -> Tensor:
    """M = |mean sigmoid(z) over group 1 - mean sigmoid(z) over group 0|."""
    scores = torch.sigmoid(z)
    return (scores[group].mean() - scores[~group].mean()).abs()


def _draw(rng: np.random.Generator, rows: int, blocks: list[NDArray[np.float64]]) -> tuple:
    """Draw rows from three latent traits and a group: features, labels, groups."""
    group = rng.random(rows) < 0.67
    latent = np.column_stack([rng.normal(size=(rows, 3)), group - 0.67])  # (rows, 4)
    mix = np.array([[1.0, 0.4, 0.0, 0.3], [0.5, -0.8, 0.2, 0.0], [0.0, 0.6, 0.9, 0.5]])
    smooth = latent @ mix.T + 0.5 * rng.normal(size=(rows, 3))
    heavy = np.exp(1.5 * latent[:, :1] + rng.normal(size=(rows, 1)))  # as capital gains
    spread = np.maximum(latent[:, 1:3] + rng.normal(size=(rows, 2)) - 1.0, 0.0)  # mostly zero
    columns = [smooth, heavy, spread]
    for weights in blocks:  # (categories, 5): pull of each latent trait, then the base rate
        logits = latent @ weights[:, :4].T + weights[:, 4]
        category = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        columns.append(np.eye(len(weights))[category])
    trait = latent[:, 0] + 0.7 * latent[:, 1] * latent[:, 2] + 1.2 * latent[:, 3]
    y = rng.random(rows) < 1.0 / (1.0 + np.exp(2.8 - 2.8 * trait))
    return np.column_stack(columns), y, group


def _data(seed: int) -> dict[str, NDArray]:
    """Draw both splits and standardise by the training rows."""
    rng = np.random.default_rng(seed)
    blocks = []
    for size in BLOCKS:  # base rates fall as in census categories: some columns are rare
        pull = rng.normal(scale=0.9, size=(size, 4))
        blocks.append(np.column_stack([pull, -1.6 * np.log1p(np.arange(size))]))
    X, y, _ = _draw(rng, TRAINING_ROWS, blocks)
    X_validation, _, group = _draw(rng, VALIDATION_ROWS, blocks)
    mean, deviation = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-3)
    return {
        "X": ((X - mean) / deviation).astype(np.float32),
        "y": y.astype(np.float32),
        "X_validation": ((X_validation - mean) / deviation).astype(np.float32),
        "group_validation": group,
    }


def _train(X: Tensor, y: Tensor, seed: int) -> dict[str, Tensor]:
    """Fit by Adam with rate 1e-3, batches of 256."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = network(X.shape[1])
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(X)).split(256):
                optimizer.zero_grad()
                loss = binary_cross_entropy_with_logits(model(X[rows]).squeeze(1), y[rows])
                loss.backward()
                optimizer.step()
    return {name: weight.detach() for name, weight in model.state_dict().items()}


def make(cache: Path = CACHE, seed: int = 0) -> Problem:
    """Draw and fit the problem, or read it if this version of this file has made it before."""
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    path = cache / f"problem-{version}-{seed}.npz"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        arrays = _data(seed)
        weights = _train(torch.from_numpy(arrays["X"]), torch.from_numpy(arrays["y"]), seed)
        arrays |= {f"weight.{name}": weight.numpy() for name, weight in weights.items()}
        np.savez(path, **arrays)
    return load(path)


def load(path: Path) -> Problem:
    with np.load(path) as arrays:
        data = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    weights = {name[7:]: data.pop(name) for name in list(data) if name.startswith("weight.")}
    return Problem(path=Path(path), weights=weights, **data)


def reference(problem: Problem, tolerance: float = 1e-10) -> NDArray[np.float64]:
    """Scores in float64 by CG, |residual| <= tolerance |grad M|; kept next to the problem."""
    path = problem.path.with_name(problem.path.stem + "-reference.npy")
    if not path.exists():
        np.save(path, _scores(problem.double(), tolerance).numpy())
    return np.load(path)


def _scores(problem: Problem, tolerance: float) -> Tensor:
    model, rows = problem.model(), len(problem.X)
    theta = {name: weight.detach() for name, weight in model.named_parameters()}
    sizes = [weight.numel() for weight in theta.values()]

    def unflatten(flat: Tensor) -> dict[str, Tensor]:
        parts = flat.split(sizes)
        return {name: part.view_as(theta[name]) for name, part in zip(theta, parts, strict=True)}

    def flatten(tree: dict[str, Tensor]) -> Tensor:
        return torch.cat([tree[name].reshape(-1) for name in theta])

    def outputs(X: Tensor):
        return lambda parameters: functional_call(model, parameters, (X,)).squeeze(1)

    value, pull = vjp(
        lambda p: gap(outputs(problem.X_validation)(p), problem.group_validation), theta
    )
    gradient = flatten(pull(torch.ones_like(value))[0])  # (D,)
    z, transposed = vjp(outputs(problem.X), theta)
    probability = torch.sigmoid(z)
    curvature = probability * (1 - probability)  # l''

    def jacobian(vector: Tensor) -> Tensor:
        return jvp(outputs(problem.X), (theta,), (unflatten(vector),))[1]

    def ggn(vector: Tensor) -> Tensor:
        product = flatten(transposed(curvature * jacobian(vector))[0])
        return product / rows + problem.damping * vector

    r = _conjugate_gradients(ggn, gradient, tolerance)
    return -jacobian(r) * (probability - problem.y) / rows


def _conjugate_gradients(matrix, b: Tensor, tolerance: float, steps: int = 20_000) -> Tensor:
    x, residual = torch.zeros_like(b), b.clone()
    direction, squared = residual.clone(), residual @ residual
    for _ in range(steps):
        product = matrix(direction)
        step = squared / (direction @ product)
        x += step * direction
        residual -= step * product
        previous, squared = squared, residual @ residual
        if squared.sqrt() <= tolerance * b.norm():
            return x
        direction = residual + squared / previous * direction
    raise RuntimeError(f"The reference did not converge in {steps} steps.")


def agreement(scores: NDArray, expected: NDArray, top: int = 500) -> dict[str, float]:
    """Spearman correlation, and the shared part of the `top` largest scores."""
    from scipy.stats import spearmanr  # absent from some peers' environments

    shared = np.intersect1d(np.argsort(-scores)[:top], np.argsort(-expected)[:top])
    return {
        "spearman": float(spearmanr(scores, expected).statistic),
        f"top{top}": len(shared) / top,
    }
