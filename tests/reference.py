"""Slow, obvious references in dense float64: what the engine must equal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian, jacrev

from cases import CASES as CASES
from fairij.method.objective import Objective, normalised_weights
from fairij.models import adapt
from fairij.models.losses import Loss, get_loss
from fairij.solvers.base import Inverse


@dataclass
class Case:
    """A small model with data, and everything about it computed the long way."""

    module: nn.Module
    X: Tensor
    y: Tensor
    loss: Loss
    weight: Tensor | None = None
    l2: float = 0.0

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.module.named_parameters()]

    @property
    def theta(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self.module.parameters()])

    @property
    def w(self) -> Tensor:
        weight = torch.ones(len(self.X), dtype=self.X.dtype) if self.weight is None else self.weight
        return weight / weight.sum()

    def outputs(self, theta: Tensor, X: Tensor | None = None) -> Tensor:
        pieces, at = {}, 0
        for name, p in self.module.named_parameters():
            pieces[name] = theta[at : at + p.numel()].view_as(p)
            at += p.numel()
        z = functional_call(self.module, pieces, (self.X if X is None else X,))
        return z[:, 0] if z.shape[-1] == 1 else z

    def total(self, theta: Tensor) -> Tensor:
        data = (self.w * self.loss.value(self.outputs(theta), self.y)).sum()
        return data + self.l2 * (theta @ theta) / 2

    def jacobian(self) -> Tensor:
        """(N, C, D)."""
        J = jacrev(self.outputs)(self.theta)
        return J if J.ndim == 3 else J[:, None]

    def gradients(self) -> Tensor:
        """The loss gradient of each point, unweighted, (N, D)."""
        return jacrev(lambda t: self.loss.value(self.outputs(t), self.y))(self.theta)

    def ggn(self) -> Tensor:
        J, z = self.jacobian(), self.outputs(self.theta)
        total = torch.zeros(len(self.theta), len(self.theta), dtype=torch.float64)
        curves = self.curves(z.detach())
        for n in range(len(self.X)):
            total += self.w[n] * J[n].T @ curves[n] @ J[n]
        return total + self.l2 * torch.eye(len(self.theta), dtype=torch.float64)

    def curves(self, z: Tensor) -> Tensor:
        """The second derivative of each row's loss, (N, C, C): no row's depends on another's."""
        z = z.requires_grad_()
        (slope,) = torch.autograd.grad(self.loss.value(z, self.y).sum(), z, create_graph=True)
        each = slope.reshape(len(z), -1).sum(0)
        rows = [torch.autograd.grad(one, z, retain_graph=True)[0] for one in each]
        return torch.stack(rows, 1).reshape(len(z), len(rows), len(rows))

    def empirical_fisher(self) -> Tensor:
        g = self.gradients()
        return g.T @ (self.w[:, None] * g) + self.l2 * torch.eye(len(self.theta)).double()

    def hessian(self) -> Tensor:
        return hessian(self.total)(self.theta)

    def objective(self, dtype: torch.dtype = torch.float64, **options: object) -> Objective:
        editable = adapt(self.module.to(dtype), **options)
        theta = editable.theta
        return Objective(
            editable.linearize(self.X.to(dtype)),
            self.y.to(dtype),
            self.loss,
            normalised_weights(self.weight, len(self.X), theta),
            theta,
            torch.tensor(self.l2, dtype=dtype),
        )


def make_case(name: str, n: int = 40, seed: int = 0) -> Case:
    """The cases that every operator and solver must pass."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    truth = X @ torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    torch.manual_seed(seed)
    if name == "logistic":
        return Case(nn.Linear(4, 1).double(), X, (truth + noise > 0).double(), _loss("binary"))
    hidden = nn.Sequential(nn.Linear(4, 5), nn.SELU(), nn.Linear(5, 1)).double()
    if name == "mlp":
        return Case(hidden, X, (truth + noise > 0).double(), _loss("binary"))
    if name == "mlp_weighted_l2":
        weight = torch.rand(n, generator=generator, dtype=torch.float64) + 0.1
        return Case(hidden, X, (truth + noise > 0).double(), _loss("binary"), weight, 0.05)
    if name == "regression":
        return Case(hidden, X, truth + noise, _loss("squared"))
    assert name == "softmax"
    y = torch.bucketize(truth + noise, torch.tensor([-1.0, 1.0], dtype=torch.float64)).double()
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    return Case(module, X, y, _loss("softmax"))


def _loss(kind: str) -> Loss:
    names = {
        "binary": "binary_cross_entropy",
        "softmax": "softmax_cross_entropy",
        "squared": "squared_error",
    }
    return get_loss(names[kind])


def printed_woodfisher(gradients: Tensor, v: Tensor, n: int) -> Tensor:
    """Equation 11 of the paper, one vector update at a time; rows of ``gradients`` in order."""
    o, k = gradients[0].clone(), v.clone()
    for g in gradients[1:]:
        below = n + g @ o
        k = k - o * (g @ k) / below
        o = o - o * (g @ o) / below
    return k


def woodfisher_inverse(gradients: Tensor, damping: float) -> Tensor:
    """Equation 10, matrix by matrix: the inverse of damping I + G^T G / B."""
    inverse = torch.eye(gradients.shape[1], dtype=torch.float64) / damping
    for g in gradients:
        u = inverse @ g
        inverse = inverse - torch.outer(u, u) / (len(gradients) + g @ u)
    return inverse


def fit_logistic(X: np.ndarray, y: np.ndarray, weight: np.ndarray, l2: float) -> np.ndarray:
    """Minimise ``sum w_n l_n / N + l2 |theta|^2 / 2`` by Newton's method to machine precision."""
    n = len(X)
    rows = np.column_stack([X, np.ones(n)])
    theta = np.zeros(rows.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-rows @ theta))
        gradient = rows.T @ (weight * (p - y)) / n + l2 * theta
        curvature = (rows * (weight * p * (1 - p))[:, None]).T @ rows / n
        step = np.linalg.solve(curvature + l2 * np.eye(len(theta)), gradient)
        theta -= step
        if np.abs(step).max() < 1e-13:
            break
    return theta


def slow_influence(
    objective: Objective, inverse: Inverse, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Algorithm 1: one solve for each training point. The reference for `influence`.

    Returns the scores ``(N,)`` and the parameter changes ``(D, N)`` of dropping each point.
    """
    changes = []
    for n in range(len(objective.y)):
        only = torch.zeros_like(objective.slope)
        only[n] = objective.slope[n]
        changes.append(inverse.solve(objective.model.vjp(only)).x)
    moved = torch.stack(changes, 1)
    return -(gradient @ moved), moved
