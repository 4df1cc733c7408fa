"""Lower bounds that no tool can beat: the passes over the data that the scores need."""

from __future__ import annotations

from time import process_time
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, jvp
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.measure import measure
from benchmarks.problem import Problem, gap


def forward(problem: Problem) -> Tensor:
    """Outputs of all training rows, (N,)."""
    with torch.no_grad():
        return problem.model()(problem.X).squeeze(1)


def forward_backward(problem: Problem) -> list[Tensor]:
    """The gradient of the mean training loss."""
    model = problem.model()
    loss = binary_cross_entropy_with_logits(model(problem.X).squeeze(1), problem.y)
    return list(torch.autograd.grad(loss, list(model.parameters())))


def gradient_and_jvp(problem: Problem) -> Tensor:
    """Scores with H = I, (N,): the gradient of M and one jvp over the training rows, no solve."""
    model = problem.model()
    value = gap(model(problem.X_validation).squeeze(1), problem.group_validation)
    theta = {name: parameter.detach() for name, parameter in model.named_parameters()}
    r = dict(zip(theta, torch.autograd.grad(value, list(model.parameters())), strict=True))
    with torch.no_grad():
        z, slope = jvp(lambda p: functional_call(model, p, (problem.X,)), (theta,), (r,))
    return (-slope * (torch.sigmoid(z) - problem.y.unsqueeze(1)) / len(z)).squeeze(1)


FLOORS = {
    "forward": forward,
    "forward + backward": forward_backward,
    "grad M + one jvp": gradient_and_jvp,
}


def run(problem: Problem) -> list[dict[str, Any]]:
    """Return one row per floor: the best of many short runs on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = []
    try:
        for name, work in FLOORS.items():
            work(problem.head(512))
            measured = measure(lambda work=work: work(problem), repeats=10, clock=process_time)
            rows.append(
                {"name": name, "seconds": measured.seconds, "peak_mb": measured.peak_mb}
                | {"spearman": None, "top500": None, "settings": {}, "note": "floor"}
            )
    finally:
        torch.set_num_threads(threads)
    return rows
