"""Sample rows with probability proportional to their curvature."""

from __future__ import annotations

from dataclasses import replace

import torch

from fairij.data.row_vectors import blocks
from fairij.method.curvature import Curvature

ALIKE = 0.1  # of the mean is added to every row, so that each can be sampled


def sampled(curvature: Curvature, rows: int, *, seed: int = 0) -> Curvature | None:
    """The curvature of about ``rows`` rows, in expectation that of all; None if it has no traces.

    Probabilities are proportional to the trace of each row's curvature (of its outputs alone if the
    size of its Jacobian is unknown). Weights are inverse to the probabilities.
    """
    o = curvature.objective
    squares = o.model.row_squares()
    shares = []
    for some in blocks(len(o.y)):
        traces = curvature.traces(some)
        if traces is None:
            return None
        shares.append(traces if squares is None else traces * squares[some])
    share = torch.cat(shares)
    total = float(share.double().sum())
    if not 0 < total < float("inf"):
        return None
    likely = (share + ALIKE * total / len(share)) * (rows / ((1 + ALIKE) * total))
    draws = torch.rand(len(share), generator=torch.Generator().manual_seed(seed), device="cpu")
    index = torch.nonzero(draws.to(likely) < likely)[:, 0]
    if len(index) == 0:
        return None
    weights = o.weights[index] / likely[index].clamp_max(1)
    some_rows = o.model.restrict(index, keep=True)
    made: Curvature = replace(
        curvature, objective=replace(o, model=some_rows, y=o.y[index], weights=weights)
    )
    return made
