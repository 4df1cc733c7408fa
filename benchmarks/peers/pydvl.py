"""pyDVL: CG and LiSSA on the full Hessian; the validation set is one test point."""

from __future__ import annotations

import warnings
from collections import OrderedDict

import torch
from pydvl.influence.torch import CgInfluence, LissaInfluence
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.peers.harness import Method, gap_weights, loader, main, weighted_gap
from benchmarks.problem import Problem


class Linearised(nn.Module):
    """The model's first-order expansion in its parameters: its Hessian is the model's GGN."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.point = {name: value.detach().clone() for name, value in model.named_parameters()}
        self.model = model

    def forward(self, X: Tensor) -> Tensor:
        step = {name: value - self.point[name] for name, value in self.model.named_parameters()}
        z, change = jvp(
            lambda point: functional_call(self.model, point, (X,)), (self.point,), (step,)
        )
        return z + change


def loss(output: Tensor, target: Tensor) -> Tensor:
    """M where the target is a validation set's weights, (1, V); else the mean training loss."""
    if target.ndim == 2:
        return weighted_gap(output.squeeze(-1), target)
    return binary_cross_entropy_with_logits(output.squeeze(-1), target)


def _scores(problem: Problem, influence, batch_size: int) -> Tensor:
    query = problem.X_validation.unsqueeze(0), gap_weights(problem).unsqueeze(0)
    factors = influence.influence_factors(*query)  # (1, D)
    factors = OrderedDict([(influence.block_names[0], factors)])
    parts = [
        influence.influences_from_factors(factors, X, y).squeeze(0)
        for X, y in loader(problem.X, problem.y, batch_size=batch_size)
    ]
    return -torch.cat(parts) / len(problem.X)


def cg(problem: Problem, maxiter: int, batch_size: int, linearised: bool = False) -> Tensor:
    model = Linearised(problem.model()) if linearised else problem.model()
    influence = CgInfluence(
        model,
        loss,
        regularization=problem.damping,
        maxiter=maxiter,
        warn_on_max_iteration=False,
    )
    influence.fit(loader(problem.X, problem.y, batch_size=batch_size))
    return _scores(problem, influence, batch_size)


def lissa(problem: Problem, maxiter: int, scale: float, batch_size: int) -> Tensor:
    influence = LissaInfluence(
        problem.model(),
        loss,
        regularization=problem.damping,
        maxiter=maxiter,
        scale=scale,
        warn_on_max_iteration=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        influence.fit(loader(problem.X, problem.y, batch_size=batch_size))
        return _scores(problem, influence, batch_size)


HESSIAN = "its curvature is the full Hessian"
METHODS = {
    "CG": Method(cg, {"maxiter": 25, "batch_size": 8192}, HESSIAN),
    "LiSSA": Method(lissa, {"maxiter": 200, "scale": 20.0, "batch_size": 2048}, HESSIAN),
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main("pydvl", METHODS)
