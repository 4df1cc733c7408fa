"""dattri: CG and LiSSA on the full Hessian, and TRAK; the validation set is one test point."""

from __future__ import annotations

import warnings

import torch
from dattri.algorithm.influence_function import IFAttributorCG, IFAttributorLiSSA
from dattri.algorithm.trak import TRAKAttributor
from dattri.task import AttributionTask
from torch import Tensor
from torch.func import functional_call, jvp
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.peers.harness import Method, gap_weights, loader, main, weighted_gap
from benchmarks.problem import Problem


def _task(problem: Problem, *, linearised: bool = False) -> AttributionTask:
    """Build the mean loss as what was trained on, M as the target.

    Linearised: the loss of the model's first-order expansion in its parameters. It has the same
    value and gradient, and the GGN as its Hessian.
    """
    model = problem.model()
    theta = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def outputs(parameters: dict[str, Tensor], X: Tensor) -> Tensor:
        return functional_call(model, parameters, (X,)).squeeze(-1)

    def expanded(parameters: dict[str, Tensor], X: Tensor) -> Tensor:
        step = {name: parameters[name] - theta[name] for name in theta}
        z, change = jvp(lambda point: outputs(point, X), (theta,), (step,))
        return z + change

    def loss(parameters: dict[str, Tensor], data: tuple[Tensor, Tensor]) -> Tensor:
        X, y = data
        z = (expanded if linearised else outputs)(parameters, X)
        return binary_cross_entropy_with_logits(z, y)

    def target(parameters: dict[str, Tensor], data: tuple[Tensor, Tensor]) -> Tensor:
        X, weights = data  # (1, V, 113), (1, V)
        return weighted_gap(outputs(parameters, X), weights)

    return AttributionTask(loss, model, problem.weights, target_func=target)


@torch.no_grad()  # or each product keeps its graph: 9 GB after 100 steps
def _attribute(problem: Problem, attributor, batch_size: int) -> Tensor:
    """Solve once, then meet the training gradients in batches.

    `attributor.attribute` does the same, but solves again for each batch of training rows, or
    holds the gradients of all of them at once (4 GB).
    """
    attributor.cache(loader(problem.X, problem.y, batch_size=len(problem.X)))
    query = (problem.X_validation[None, None], gap_weights(problem)[None, None])
    r = attributor.transform_test_rep(0, attributor.generate_test_rep(0, query))  # (1, D)
    parts = [
        attributor.generate_train_rep(0, (X[None], y[None])) @ r.squeeze(0)
        for X, y in loader(problem.X, problem.y, batch_size=batch_size)
    ]
    return -torch.cat(parts) / len(problem.X)


def cg(problem: Problem, max_iter: int, batch_size: int, linearised: bool = False) -> Tensor:
    task = _task(problem, linearised=linearised)
    attributor = IFAttributorCG(task, max_iter=max_iter, regularization=problem.damping)
    return _attribute(problem, attributor, batch_size)


def lissa(problem: Problem, batch_size: int, recursion_depth: int, scaling: float) -> Tensor:
    """Run its recursion; its `damping` is relative to `scaling`."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        attributor = IFAttributorLiSSA(
            _task(problem),
            batch_size=min(batch_size, len(problem.X)),
            recursion_depth=recursion_depth,
            damping=problem.damping / scaling,
            scaling=scaling,
        )
        return _attribute(problem, attributor, 512)


def trak(problem: Problem, proj_dim: int, batch_size: int, regularization: float) -> Tensor:
    model = problem.model()

    def margin(parameters: dict[str, Tensor], data: tuple[Tensor, Tensor]) -> Tensor:
        X, y = data
        return ((2 * y - 1) * functional_call(model, parameters, (X,)).squeeze(-1)).sum()

    def correct(parameters: dict[str, Tensor], data: tuple[Tensor, Tensor]) -> Tensor:
        return torch.sigmoid(margin(parameters, data))

    def target(parameters: dict[str, Tensor], data: tuple[Tensor, Tensor]) -> Tensor:
        X, weights = data
        return weighted_gap(functional_call(model, parameters, (X,)).squeeze(-1), weights)

    attributor = TRAKAttributor(
        AttributionTask(margin, model, problem.weights, target_func=target),
        correct,
        projector_kwargs={"proj_dim": proj_dim},
        regularization=regularization,
    )
    attributor.cache(loader(problem.X, problem.y, batch_size=batch_size))
    test = loader(
        problem.X_validation.unsqueeze(0), gap_weights(problem).unsqueeze(0), batch_size=1
    )
    return attributor.attribute(test).squeeze(1) / len(problem.X)


HESSIAN = "its curvature is the full Hessian, indefinite here: more steps do not help"
LINEARISED = "given the model's linear expansion, whose Hessian is the GGN"
# Tried, and the best agreement kept: CG 5 to 100 steps (top500 0.37, 0.80, 0.93, 0.92, 0.83 at 5,
# 20, 25, 30, 50), linearised 7 to 30; LiSSA scaling 5 to 50, batches of 512 to 4096, 200 to 800
# steps; TRAK 512 to 4096 dimensions, regularization 0.1 to 10.
METHODS = {
    "CG": Method(cg, {"max_iter": 25, "batch_size": 512}, HESSIAN),
    "CG linearised": Method(
        cg, {"max_iter": 10, "batch_size": 512, "linearised": True}, LINEARISED
    ),
    "LiSSA": Method(lissa, {"batch_size": 2048, "recursion_depth": 400, "scaling": 20.0}, HESSIAN),
    "TRAK": Method(
        trak,
        {"proj_dim": 2048, "batch_size": 1024, "regularization": 0.3},
        "random projection of the Jacobian; scores known up to scale",
    ),
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main("dattri", METHODS)
