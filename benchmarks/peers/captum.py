"""captum: Arnoldi influence, a low-rank inverse of the full Hessian's leading part."""

from __future__ import annotations

import warnings

from captum.influence._core.arnoldi_influence_function import ArnoldiInfluenceFunction
from torch import Tensor, nn

from benchmarks.peers.harness import Method, gap_weights, loader, main, weighted_gap
from benchmarks.problem import Problem


def _gap(output: Tensor, weights: Tensor) -> Tensor:
    return weighted_gap(output.squeeze(-1), weights)


def arnoldi(problem: Problem, projection_dim: int, arnoldi_dim: int, batch_size: int) -> Tensor:
    """Multiply embeddings: of all training rows, and of the validation set as one test point.

    The loss is summed over rows, so its Hessian is N times that of the mean, and the damping too.
    """
    rows = len(problem.X)
    train = loader(problem.X, problem.y.unsqueeze(1), batch_size=batch_size)
    influence = ArnoldiInfluenceFunction(
        problem.model(),
        train,
        checkpoint="",
        checkpoints_load_func=lambda model, path: 1.0,  # the model is fitted already
        loss_fn=nn.BCEWithLogitsLoss(reduction="sum"),
        test_loss_fn=_gap,
        sample_wise_grads_per_batch=True,
        hessian_dataset=loader(problem.X, problem.y.unsqueeze(1), batch_size=8192),
        projection_dim=projection_dim,
        arnoldi_dim=arnoldi_dim,
        arnoldi_tol=1e-4,
        hessian_reg=rows * problem.damping,
        hessian_inverse_tol=1e-4,
    )
    query = problem.X_validation.unsqueeze(0), gap_weights(problem).unsqueeze(0)
    test = influence.compute_intermediate_quantities(query, test=True)  # (1, projection_dim)
    return -(influence.compute_intermediate_quantities(train) @ test.squeeze(0))


# Tried: 10 to 300 dimensions (top500 0.58, 0.75, 0.89, 0.94, 0.95 at 10, 50, 100, 200, 300).
METHODS = {
    "Arnoldi": Method(
        arnoldi,
        {"projection_dim": 200, "arnoldi_dim": 250, "batch_size": 32},
        "its curvature is the leading part of the full Hessian",
    ),
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main("captum", METHODS)
