"""Exact: build the matrix, factor it once by Cholesky, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairij.errors import InvalidInputError, NegativeCurvatureError
from fairij.method.curvature import Curvature, dense
from fairij.solvers.base import InverseDefaults, Solution, SolverDefaults, check_damping, columns


@dataclass(frozen=True)
class Exact(SolverDefaults):
    """``L L^T = H + damping I``. Time N D^2 + D^3 / 3 (N T^2 / 2 for T trees), memory D^2.

    Parameters
    ----------
    max_size : int, default=12000
        The largest D for which a ``(D, D)`` float64 matrix is built.

    Examples
    --------
    >>> FairIJ(model, solver=Exact()).solver
    Exact(max_size=12000)
    """

    max_size: int = 12_000
    name = "exact"

    def prepare(self, curvature: Curvature, damping: float) -> ExactInverse:
        size = len(curvature.objective.theta)
        if size > self.max_size:
            raise InvalidInputError(
                f"Exact(max_size={self.max_size}) will not build a matrix for {size} parameters "
                f"({8 * size**2 / 2**30:.1f} GiB): use ConjugateGradient, edit fewer parameters, "
                "or raise `max_size`."
            )
        return ExactInverse(dense(curvature), check_damping(damping), curvature.name)


class ExactInverse(InverseDefaults):
    """A Cholesky factor; solving is two triangular solves."""

    def __init__(self, matrix: Tensor, damping: float, name: str) -> None:
        self.damping = damping
        self._matrix = matrix
        self._name = name
        damped = matrix.clone()
        damped.diagonal().add_(damping)
        self._factor, failed = torch.linalg.cholesky_ex(damped)
        if int(failed) != 0:
            smallest = float(torch.linalg.eigvalsh(matrix)[0])
            raise NegativeCurvatureError(not_positive_definite(name, damping, smallest))

    def with_damping(self, damping: float) -> ExactInverse:
        return ExactInverse(self._matrix, check_damping(damping), self._name)

    def solve(self, b: Tensor, *, tolerance: float | None = None) -> Solution:
        right = columns(b).double()
        x = torch.cholesky_solve(right, self._factor)

        def measure() -> Tensor:
            off = right - self._matrix @ x - self.damping * x
            missed = (off * torch.cholesky_solve(off, self._factor)).sum(0)
            return (missed / (right * x).sum(0).clamp_min(1e-300)).clamp_min(0).sqrt()

        return Solution(x.to(b.dtype).view_as(b), 1, measure)


def not_positive_definite(name: str, damping: float, eigenvalue: float) -> str:
    """The message for an indefinite or singular matrix: what was met, and the cures."""
    cure = "look for extreme values among the features or weights"
    if name == "hessian":
        cure = "use curvature='ggn', which is never indefinite"
    return (
        f"The {name} with damping {damping:g} is not positive definite: it has curvature "
        f"{eigenvalue:.3g} in some direction. Likely causes: the model is not at a minimum of its "
        f"loss, or the matrix is singular and the damping too small. Cures: {cure}; or raise "
        f"`damping` above {max(-eigenvalue, 0) + damping:.3g}."
    )
