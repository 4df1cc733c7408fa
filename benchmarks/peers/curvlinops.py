"""curvlinops: CG on the GGN, and KFAC with exact damping; the scores by one jvp of torch."""

from __future__ import annotations

import warnings

import torch
from curvlinops import (
    CGInverseLinearOperator,
    FisherType,
    GGNLinearOperator,
    KFACInverseLinearOperator,
    KFACLinearOperator,
)
from curvlinops.examples import IdentityLinearOperator
from torch import Tensor, nn
from torch.func import functional_call, jvp

from benchmarks.peers.harness import Method, main
from benchmarks.problem import Problem, gap


def _batches(problem: Problem, size: int) -> list[tuple[Tensor, Tensor]]:
    rows = list(zip(problem.X.split(size), problem.y.unsqueeze(1).split(size), strict=True))
    return rows


def _scores(problem: Problem, model: nn.Module, inverse, gradient: list[Tensor]) -> Tensor:
    """-(J r) l' / N with r the inverse times the gradient of M."""
    names = [name for name, _ in model.named_parameters()]
    r = dict(zip(names, inverse @ gradient, strict=True))
    theta = {name: parameter.detach() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        z, slope = jvp(lambda p: functional_call(model, p, (problem.X,)), (theta,), (r,))
    return (-slope * (torch.sigmoid(z) - problem.y.unsqueeze(1)) / len(z)).squeeze(1)


def _gradient(problem: Problem, model: nn.Module) -> list[Tensor]:
    value = gap(model(problem.X_validation).squeeze(1), problem.group_validation)
    return list(torch.autograd.grad(value, list(model.parameters())))


def ggn_cg(problem: Problem, tolerance: float, max_iter: int, batch_size: int) -> Tensor:
    model = problem.model()
    parameters = list(model.parameters())
    ggn = GGNLinearOperator(
        model,
        nn.BCEWithLogitsLoss(),
        parameters,
        _batches(problem, batch_size),
        check_deterministic=False,
        num_data=len(problem.X),
    )
    identity = IdentityLinearOperator(
        [parameter.shape for parameter in parameters], problem.X.device, problem.X.dtype
    )
    damped = ggn + problem.damping * identity
    inverse = CGInverseLinearOperator(
        damped, tolerance=tolerance, max_iter=max_iter, max_tridiag_iter=0, eps=1e-20
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stopped at max_iter, as asked
        return _scores(problem, model, inverse, _gradient(problem, model))


def kfac(problem: Problem, fisher_type: str, batch_size: int) -> Tensor:
    model = problem.model()
    operator = KFACLinearOperator(
        model,
        nn.BCEWithLogitsLoss(),
        list(model.parameters()),
        _batches(problem, batch_size),
        check_deterministic=False,
        fisher_type=fisher_type,
        separate_weight_and_bias=False,
        num_data=len(problem.X),
        num_per_example_loss_terms=1,
    )
    inverse = KFACInverseLinearOperator(operator, damping=problem.damping, use_exact_damping=True)
    return _scores(problem, model, inverse, _gradient(problem, model))


METHODS = {
    "GGN CG": Method(ggn_cg, {"tolerance": 1e-1, "max_iter": 8, "batch_size": 21_708}),
    "GGN CG, tight": Method(ggn_cg, {"tolerance": 1e-6, "max_iter": 200, "batch_size": 21_708}),
    "KFAC": Method(kfac, {"fisher_type": str(FisherType.TYPE2), "batch_size": 21_708}),
}

if __name__ == "__main__":
    main("curvlinops", METHODS)
