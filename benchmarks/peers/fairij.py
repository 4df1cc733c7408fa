"""fairij itself, with the functions that `FairIJ` uses: linearise, gradient, solve, one jvp."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.peers.harness import Method, main
from benchmarks.problem import Problem
from fairij.fairness import encode_groups, get_constraint
from fairij.method.curvature import make_curvature
from fairij.method.influence import influence
from fairij.method.objective import Objective, normalised_weights
from fairij.models import adapt
from fairij.models.losses import get_loss
from fairij.solvers import ConjugateGradient

LOSS = get_loss("binary_cross_entropy")


def scores(problem: Problem, *, memory_limit: int = 2**28, **cg: float) -> Tensor:
    model = adapt(problem.model(), memory_limit=memory_limit)
    rows = model.linearize(problem.X_validation)
    groups = encode_groups(problem.group_validation)
    ((_, weights),) = get_constraint("demographic_parity").part_gradients(
        rows.outputs, torch.zeros_like(rows.outputs), groups, LOSS, 1.0
    )
    gradient = rows.vjp(weights)
    objective = Objective(
        model.linearize(problem.X),
        problem.y,
        LOSS,
        normalised_weights(None, len(problem.y), model.theta),
        model.theta,
        torch.zeros(()),
    )
    solver = ConjugateGradient(on_failure="return", **cg)  # type: ignore[arg-type]
    inverse = solver.prepare(make_curvature("ggn", objective), problem.damping)
    return influence(objective, inverse, gradient).scores


METHODS = {
    "GGN CG": Method(scores, {"max_steps": 1}, "the fewest steps with top500 >= 0.97"),
    "GGN CG default": Method(scores, {}, "what FairIJ uses, guided by a sample"),
    "GGN CG tight": Method(scores, {"tolerance": 1e-4}),
    "GGN CG plain": Method(
        scores,
        {"sample_rows": 0, "max_steps": 7},
        "no sample; the fewest steps with top500 >= 0.97",
    ),
    "GGN CG plain default": Method(scores, {"sample_rows": 0}, "no sample"),
    "GGN CG plain tight": Method(scores, {"sample_rows": 0, "tolerance": 1e-4}, "no sample"),
}

if __name__ == "__main__":
    main("fairij", METHODS)
