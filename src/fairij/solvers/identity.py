"""Identity: take the curvature to be 1 in every direction; a baseline for the other solvers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairij.method.curvature import Curvature
from fairij.solvers.base import InverseDefaults, Solution, SolverDefaults, check_damping


@dataclass(frozen=True)
class Identity(SolverDefaults):
    """``x = b``: influence is the plain inner product of gradients.

    Examples
    --------
    >>> FairIJ(model, solver=Identity()).solver
    Identity()
    """

    name = "identity"

    def prepare(self, curvature: Curvature, damping: float) -> IdentityInverse:
        return IdentityInverse(curvature, check_damping(damping))


@dataclass(frozen=True)
class IdentityInverse(InverseDefaults):
    """Returns the right-hand side."""

    curvature: Curvature
    damping: float

    def solve(self, b: Tensor, *, tolerance: float | None = None) -> Solution:
        return Solution.of(b, b, self.curvature, self.damping, steps=0)
