"""The paper's IHVP-WoodFisher recurrence (equation 11), exactly as it is printed.

``o_{n+1} = o_n - o_n (g_{n+1} . o_n) / (N + g_{n+1} . o_n)`` never leaves the line through
``o_1 = g_1``, so the answer is ``v - gamma g_1`` with a small gamma. It acts like an identity,
and damping plays no part. A closed form in scalars costs two Jacobian-vector products. For what
equation 10 means, see `Woodbury` on the empirical Fisher.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairij.data.checks import whole_number
from fairij.method.curvature import Curvature
from fairij.method.objective import Objective
from fairij.solvers.base import InverseDefaults, Solution, SolverDefaults, check_damping, columns


@dataclass(frozen=True)
class PrintedWoodFisher(SolverDefaults):
    """Two passes over the sampled rows.

    Parameters
    ----------
    rows : int, default=1000
        B, the iterations of the recurrence.
    seed : int, default=0
        The seed of the order in which training rows are visited.

    Examples
    --------
    >>> FairIJ(model, solver=PrintedWoodFisher(rows=500)).solver.rows
    500
    """

    rows: int = 1000
    seed: int = 0
    name = "printed_woodfisher"

    def __post_init__(self) -> None:
        whole_number("rows", self.rows, 1)

    def visited(self, n: int) -> Tensor:
        """The training rows that the recurrence visits, in order."""
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randperm(n, generator=generator, device="cpu")[: self.rows]

    def seeded(self, seed: int) -> PrintedWoodFisher:
        return replace(self, seed=seed)

    def prepare(self, curvature: Curvature, damping: float) -> PrintedInverse:
        index = self.visited(len(curvature.objective.y)).to(curvature.objective.theta.device)
        return PrintedInverse(curvature, index, check_damping(damping))


class PrintedInverse(InverseDefaults):
    """``v - gamma g_1``."""

    def __init__(self, curvature: Curvature, index: Tensor, damping: float) -> None:
        self.damping = damping
        self._curvature = curvature
        o = curvature.objective
        self._n = len(o.y)
        self._objective: Objective = o.restrict(index)
        self._slope = o.loss.slope(o.model.outputs[index], o.y[index])
        first = torch.zeros_like(self._slope)
        first[0] = self._slope[0]
        self._g1 = self._objective.model.vjp(first)
        self._inner = self._dots(self._g1).double()  # g_n . g_1

    def with_damping(self, damping: float) -> PrintedInverse:
        """Itself: damping plays no part in the printed recurrence."""
        return self

    def solve(self, b: Tensor, *, tolerance: float | None = None) -> Solution:
        right = columns(b)
        dots = torch.stack([self._dots(v) for v in right.T]).double()  # (K, B): g_n . v
        alpha = 1.0
        gamma = torch.zeros_like(dots[:, 0])
        for n in range(1, len(self._slope)):
            below = self._n + alpha * self._inner[n]
            gamma = gamma + alpha * (dots[:, n] - gamma * self._inner[n]) / below
            alpha = float(alpha * self._n / below)
        x = (right - torch.outer(self._g1, gamma.to(right))).reshape(b.shape)
        return Solution.of(x, b, self._curvature, self.damping, steps=len(self._slope))

    def _dots(self, v: Tensor) -> Tensor:
        """``g_n . v`` for every visited point."""
        along = self._slope * self._objective.model.jvp(v)
        return along if along.ndim == 1 else along.sum(-1)
