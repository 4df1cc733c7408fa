"""Guides for conjugate gradients: the curvature of a sample of rows, and its exact inverse.

With ``R = diag(m)^1/2 J`` of n rows, ``(c I + R^T R)^-1 v = (v - R^T (c I + R R^T)^-1 R v) / c``.
If the model knows ``J J^T`` without forming J, a solve costs one product with each of ``J`` and
``J^T``. With many parameters and few rows this is far cheaper than conjugate gradients.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fairij.data.row_vectors import blocks
from fairij.method.curvature import Curvature
from fairij.models.torch.batches import OUT_OF_MEMORY, is_out_of_memory
from fairij.solvers.base import InverseDefaults, Solution, check_damping

ALIKE = 0.1  # of the mean is added to every row, so that each can be sampled
BYTES = 32  # per entry of R R^T and its factor, with what is needed to make them


class RowSpaceInverse(InverseDefaults):
    """``(H + (damping + ridge) I)^-1`` for a curvature of few rows with one output each."""

    def __init__(
        self,
        curvature: Curvature,
        damping: float,
        root: Tensor,
        products: Tensor,
        ridge: float = 0.0,
    ) -> None:
        self.damping, self.ridge = check_damping(damping), ridge
        self._curvature, self._root, self._products = curvature, root, products
        self._shift = self.damping + ridge + curvature.objective.l2  # the same for every parameter
        inner = products.to(torch.float64, copy=True)
        inner.diagonal().add_(self._shift)
        self._factor, failed = torch.linalg.cholesky_ex(inner)
        self.is_sound = int(failed) == 0

    @classmethod
    def of(
        cls, curvature: Curvature, damping: float, *, memory_limit: int, distrust: float = 0.0
    ) -> RowSpaceInverse | None:
        """None if the model does not know ``J J^T``, or if it takes too much memory.

        ``distrust``: ridge as a fraction of mean row curvature; stops single rows dominating.
        """
        o = curvature.objective
        if o.l2.ndim > 0 or BYTES * len(o.y) ** 2 > memory_limit:
            return None
        try:
            traces, products = curvature.traces(slice(None)), o.model.row_products()
            if traces is None or products is None:
                return None
            root = traces.sqrt()  # for one output the trace is the curvature itself
            products = root[:, None] * products * root
            ridge = distrust * float(products.diagonal().mean())
            found = cls(curvature, damping, root, products, ridge)
        except OUT_OF_MEMORY as error:
            if not is_out_of_memory(error):
                raise
            return None
        return found if found.is_sound else None

    def with_damping(self, damping: float) -> RowSpaceInverse | None:
        other = RowSpaceInverse(self._curvature, damping, self._root, self._products, self.ridge)
        return other if other.is_sound else None

    def solve(self, b: Tensor, *, tolerance: float | None = None) -> Solution:
        """Solve for one right-hand side, ``(D,)``."""
        model = self._curvature.objective.model
        among_rows = (self._root * model.jvp(b)).double()
        weights = torch.cholesky_solve(among_rows[:, None], self._factor)[:, 0]
        x = (b - model.vjp(self._root * weights.to(b))) / self._shift
        return Solution.of(x, b, self._curvature, self.damping + self.ridge, steps=1)


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
