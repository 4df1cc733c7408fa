"""A few rows whose curvature stands for that of all: the more of it a row has, the likelier."""

from __future__ import annotations

from dataclasses import replace

import torch

from fairij.data.row_vectors import blocks
from fairij.method.curvature import Curvature

ALIKE = 0.1  # of the mean share is given to every row, so that none is out of reach


def sampled(curvature: Curvature, rows: int, *, seed: int = 0) -> Curvature | None:
    """The curvature of about ``rows`` rows, in the mean that of all; None where there is none.

    A row is taken with a probability in proportion to the trace of its part of the curvature (of
    its outputs alone, where the size of its Jacobian is not at hand) and weighs the more the less
    likely it was.
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
    made: Curvature = replace(  # type: ignore[type-var]
        curvature, objective=replace(o, model=some_rows, y=o.y[index], weights=weights)
    )
    return made
