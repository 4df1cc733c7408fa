"""Curvatures of the training loss as linear operators: ``H v``, some rows of a root, or dense.

All include the loss's L2 term; damping is the solver's. With ``J`` the Jacobian of the outputs:

* `GGN`: ``J^T diag(l'') J``, positive semi-definite, equal to the true Fisher for these losses;
* `EmpiricalFisher`: ``sum_n g_n g_n^T``, a poorer approximation of the Hessian;
* `Hessian`: the GGN plus ``sum_n l'_n (second derivative of z_n)``, indefinite at most minima.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from fairij.errors import InvalidInputError
from fairij.method.objective import Objective, scale_rows
from fairij.models.base import Some


@dataclass(frozen=True)
class Curvature(ABC):
    """``sum_n w_n J_n^T R_n R_n^T J_n + diag(l2)``, a symmetric ``(D, D)`` matrix.

    Known by its products, and by a root ``R_n`` for each row.
    """

    objective: Objective
    name: ClassVar[str]

    @abstractmethod
    def product(self, v: Tensor) -> Tensor:
        """``H v`` for ``v`` of shape ``(D,)``."""

    @abstractmethod
    def roots(self, rows: Some) -> Tensor:
        """``R_n`` of some rows, shape ``(B, C, E)``."""

    def root_rows(self, index: Tensor) -> Tensor:
        """Rows ``G`` whose ``G^T G``, averaged over data points, is H without its L2 term."""
        o = self.objective
        rows = torch.einsum("bcd,bce->bed", o.model.rows(index), self.roots(index))
        # scaled so that the average over all rows carries the weights
        scale = (o.weights[index] * len(o.weights)).sqrt()
        return (rows * scale[:, None, None]).flatten(0, 1)

    def middle(self, rows: Some = slice(None)) -> Tensor:
        """``m (B, C, C)`` of some rows, with ``H = sum_n J_n^T m_n J_n + diag(l2)``."""
        root = self.roots(rows).double()
        scaled = root * self.objective.weights[rows].double().view(-1, 1, 1)
        return scaled @ root.mT

    def diagonal(self) -> Tensor | None:
        """The diagonal, ``(D,)``, without second derivatives of z, to scale parameters by.

        None if the model gives none, or has more parameters than rows: damping then decides most
        directions alike, and a scale of its own for each parameter would spoil that.
        """
        o = self.objective
        _ = o.model.outputs  # a pass of its own, before the one for the diagonal
        found = o.model.diagonal(self.middle) if len(o.y) > len(o.theta) else None
        return None if found is None else found + o.l2

    def restrict(self, index: Tensor) -> Self:
        """The same curvature of a sample of the rows."""
        return replace(self, objective=self.objective.restrict(index))

    def traces(self, rows: slice) -> Tensor | None:
        """The trace of ``m_n`` of some rows, (B,); None if a row's may be indefinite."""
        return self.objective.weights[rows] * self.roots(rows).square().sum((-1, -2))


class GGN(Curvature):
    """``J^T diag(w l'') J + diag(l2)``: the generalised Gauss-Newton matrix."""

    name = "ggn"

    def roots(self, rows: Some) -> Tensor:
        o = self.objective
        return o.loss.curve_root(o.model.outputs[rows])

    def product(self, v: Tensor) -> Tensor:
        o = self.objective
        z = o.model.outputs

        def middle(moved: Tensor, rows: Some) -> Tensor:
            return scale_rows(o.loss.curve(z[rows], moved), o.weights[rows])

        return o.model.sandwich(v, middle) + o.l2 * v


class EmpiricalFisher(Curvature):
    """``sum_n w_n g_n g_n^T + diag(l2)``, with the gradients of the observed labels (eq. 10)."""

    name = "empirical_fisher"

    def roots(self, rows: Some) -> Tensor:
        o = self.objective
        slope = o.loss.slope(o.model.outputs[rows], o.y[rows])
        return slope.reshape(len(slope), -1, 1)

    def product(self, v: Tensor) -> Tensor:
        o = self.objective
        slope = o.loss.slope(o.model.outputs, o.y)

        def middle(moved: Tensor, rows: Some) -> Tensor:
            along = slope[rows] * moved
            inner = along if along.ndim == 1 else along.sum(-1, keepdim=True)
            return scale_rows(slope[rows] * inner, o.weights[rows])

        return o.model.sandwich(v, middle) + o.l2 * v


class Hessian(GGN):
    """``GGN + sum_n w_n l'_n d^2 z_n``: the true second derivative of the loss."""

    name = "hessian"

    def product(self, v: Tensor) -> Tensor:
        o = self.objective
        return super().product(v) + o.model.second_order(o.slope, v)

    def root_rows(self, index: Tensor) -> Tensor:
        raise InvalidInputError(
            "The full Hessian has no real root to sample rows from, as it may be indefinite; "
            "use curvature='ggn' or 'empirical_fisher' with this solver."
        )

    def traces(self, rows: slice) -> None:
        return None


CurvatureName = Literal["ggn", "empirical_fisher", "hessian"]
CURVATURES: dict[str, type[Curvature]] = {
    kind.name: kind for kind in (GGN, EmpiricalFisher, Hessian)
}


def make_curvature(name: str, objective: Objective) -> Curvature:
    if name not in CURVATURES:
        raise InvalidInputError(f"`curvature` must be one of {sorted(CURVATURES)}, got {name!r}.")
    return CURVATURES[name](objective)


def dense(curvature: Curvature, *, chunk_bytes: int = 2**28) -> Tensor:
    """The whole matrix in float64: by the model's own fast way, from root rows, or by columns."""
    o = curvature.objective
    n, d = len(o.y), len(o.theta)
    fast = o.model.gram(curvature.middle())
    if fast is not None:
        fast.diagonal().add_(o.l2)
        return fast
    matrix = torch.zeros(d, d, dtype=torch.float64, device=o.theta.device)
    if isinstance(curvature, Hessian):
        for i, unit in enumerate(torch.eye(d, dtype=o.theta.dtype, device=o.theta.device)):
            matrix[i] = curvature.product(unit)
        return (matrix + matrix.T) / 2
    outputs = o.model.outputs[0].numel()
    chunk = max(1, chunk_bytes // (8 * d * outputs))
    for index in torch.arange(n, device=o.theta.device).split(chunk):
        rows = curvature.root_rows(index).double()
        matrix.addmm_(rows.T, rows, alpha=1 / n)
    matrix.diagonal().add_(o.l2)
    return matrix


def largest_eigenvalue(curvature: Curvature, *, steps: int = 20, seed: int = 0) -> float:
    """The largest eigenvalue in absolute size, from below, by power iteration."""
    theta = curvature.objective.theta
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(len(theta), generator=generator, device="cpu").to(theta)
    size = v.norm()
    for _ in range(steps):
        v = curvature.product(v / size)
        size = v.norm()
        if size == 0:
            return 0.0
    return float(size)
