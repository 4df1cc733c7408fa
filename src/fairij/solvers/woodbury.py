"""Woodbury: the exact inverse of a damped curvature estimated from B sampled rows.

With ``G (B, D)`` rows of a root of H and ``A`` the damping plus L2 term (diagonal),
``(A + G^T G / B)^-1 = A^-1 - A^-1 G^T (B I + G A^-1 G^T)^-1 G A^-1``. With rows of the empirical
Fisher this is the inverse that the paper's equation 10 means. With rows of the GGN it is the better
approximation of the Hessian's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairij.data.checks import whole_number
from fairij.errors import SolverError
from fairij.method.curvature import Curvature
from fairij.solvers.base import (
    InverseDefaults,
    Solution,
    SolverDefaults,
    check_damping,
    columns,
    energy_error,
)


@dataclass(frozen=True)
class Woodbury(SolverDefaults):
    """Time B^2 D, memory B D.

    Parameters
    ----------
    rows : int, default=1000
        B, the number of training rows sampled without replacement.
    seed : int, default=0
        The seed of the samples.
    checked_rows : int or None, default=None
        Rows on which the error of an answer is measured, drawn at random. None: all of them. A
        measurement takes five products with the curvature of these rows, which is most of the time
        of a fit of a large language model.

    Examples
    --------
    >>> FairIJ(model, solver=Woodbury(rows=500)).solver.rows
    500
    """

    rows: int = 1000
    seed: int = 0
    checked_rows: int | None = None
    name = "woodbury"

    def __post_init__(self) -> None:
        whole_number("rows", self.rows, 1)
        if self.checked_rows is not None:
            whole_number("checked_rows", self.checked_rows, 1, otherwise=", or None")

    def seeded(self, seed: int) -> Woodbury:
        return replace(self, seed=seed)

    def prepare(self, curvature: Curvature, damping: float) -> WoodburyInverse:
        o = curvature.objective
        generator = torch.Generator().manual_seed(self.seed)
        index = torch.randperm(len(o.y), generator=generator, device="cpu")[: self.rows]
        chunks = index.to(o.theta.device).split(256)
        G = torch.cat([curvature.root_rows(chunk) for chunk in chunks]) / len(index) ** 0.5
        if self.checked_rows is not None and self.checked_rows < len(o.y):
            other = torch.randperm(len(o.y), generator=generator, device="cpu")
            curvature = curvature.restrict(other[: self.checked_rows].to(o.theta.device))
        return WoodburyInverse(curvature, G, check_damping(damping))


class WoodburyInverse(InverseDefaults):
    """The factor of ``I + G A^-1 G^T``, G already divided by the root of B."""

    def __init__(self, curvature: Curvature, G: Tensor, damping: float) -> None:
        self.damping = damping
        self._curvature, self._G = curvature, G
        self._shift = damping + curvature.objective.l2  # () or (D,)
        inner = ((G / self._shift) @ G.T).double()
        inner.diagonal().add_(1.0)
        self._factor, failed = torch.linalg.cholesky_ex(inner)
        if int(failed) != 0:
            raise SolverError(
                f"Woodbury's inner matrix could not be factored at damping {damping:g}: sampled "
                "rows hold values too large for this precision. Raise `damping`, or give the "
                "model in float64."
            )

    def with_damping(self, damping: float) -> WoodburyInverse:
        return WoodburyInverse(self._curvature, self._G, check_damping(damping))

    def solve(self, b: Tensor, *, tolerance: float | None = None) -> Solution:
        shift = self._shift if self._shift.ndim == 0 else self._shift[:, None]
        scaled = columns(b).to(self._G) / shift
        inner = torch.cholesky_solve((self._G @ scaled).double(), self._factor).to(scaled)
        x = (scaled - (self._G.T @ inner) / shift).reshape(b.shape)
        return Solution.of(x, b, self._curvature, self.damping, steps=1)

    def measured_error(self, curvature: Curvature, damping: float, b: Tensor, x: Tensor) -> Tensor:
        """Measured on ``checked_rows``, if they were asked for."""
        return energy_error(self._curvature, damping, b, x)
