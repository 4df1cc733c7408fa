"""What every solver offers: settings, checked at once, that make an inverse of ``H + damping I``.

``solver.prepare(curvature, damping)`` does the work that is needed once. ``inverse.solve(b)`` takes
one right-hand side ``(D,)`` or several ``(D, K)``, and always says how far off its answer is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from fairij.data.checks import check_damping as check_damping
from fairij.method.curvature import Curvature

PROBES = 4  # steps that look for what a solution lacks


@dataclass(frozen=True)
class Solution:
    """``x``, the steps it took, and its error, measured when asked for."""

    x: Tensor  # (D,) or (D, K)
    steps: int
    measure: Callable[[], Tensor]
    measuring_costs: bool = False  # whether it takes products with the curvature

    @cached_property
    def residual(self) -> Tensor:
        """``|x - A^-1 b|_A / |A^-1 b|_A`` of each right-hand side, ``(K,)``; 0 is exact.

        ``A = H + damping I`` has the whole curvature, for approximate solvers too, and
        ``|v|_A^2 = v^T A v`` does not depend on the scale of features. Iterative and approximate
        solvers give an estimate.
        """
        return self.measure()

    @property
    def told(self) -> Tensor:
        """`residual` if it costs nothing, or was measured already; else NaN."""
        if self.measuring_costs and "residual" not in vars(self):
            return torch.full((columns(self.x).shape[1],), torch.nan)
        return self.residual

    @classmethod
    def of(cls, x: Tensor, b: Tensor, curvature: Curvature, damping: float, steps: int) -> Solution:
        """A solution whose error is measured by a few products with the curvature."""
        return cls(x, steps, lambda: energy_error(curvature, damping, b, x), measuring_costs=True)


class InverseDefaults(Protocol):
    """What an inverse need not offer: to be inherited by every inverse."""

    @property
    def products(self) -> int | None:
        """How many products with the curvature were made so far; None if not counted."""
        return None

    def with_damping(self, damping: float) -> Inverse | None:
        """The inverse at another damping from work already done; None if there is no such way."""
        return None

    def near(self, curvature: Curvature, damping: float) -> Inverse | None:
        """The inverse of a curvature that is little different, guided by work already done.

        None if there is no such way.
        """
        return None

    def measured_error(self, curvature: Curvature, damping: float, b: Tensor, x: Tensor) -> Tensor:
        """The error in energy of each column of ``x``, by a few products with the curvature."""
        return energy_error(curvature, damping, b, x)


class Inverse(InverseDefaults, Protocol):
    """``(H + damping I)^-1``, or an approximation of it."""

    @property
    def damping(self) -> float: ...

    def solve(self, b: Tensor, *, tolerance: float | None = None) -> Solution:
        """Solve for ``b`` of shape ``(D,)`` or ``(D, K)``."""
        ...


class SolverDefaults(Protocol):
    """What a solver need not offer: to be inherited by every solver."""

    @property
    def unshared(self) -> Any:
        """The same settings for a curvature that is met only once."""
        return self

    def stopped_after(self, steps: int) -> Any:
        """The same settings for a curvature that is met only once, and solved with loosely.

        A solver that goes step by step returns what it has after so many; others, themselves.
        """
        return self.unshared

    def seeded(self, seed: int) -> Any:
        """The same settings with this seed; solvers without randomness return themselves."""
        return self


class Solver(SolverDefaults, Protocol):
    """Settings of a way to solve ``(H + damping I) x = b``."""

    @property
    def name(self) -> str: ...

    def prepare(self, curvature: Curvature, damping: float) -> Inverse: ...


def energy_error(curvature: Curvature, damping: float, b: Tensor, x: Tensor) -> Tensor:
    """``|x - A^-1 b|_A / |A^-1 b|_A`` of each column, ``A = H + damping I``; zero where b is.

    Both sizes are estimated from below, by what a few steps of conjugate gradients from ``x`` find.
    """
    diagonal = curvature.diagonal()
    shift = 1.0 if diagonal is None else (diagonal + damping).to(b)
    pairs = zip(columns(b).T, columns(x).T.to(b), strict=True)
    return torch.stack([_error(curvature, damping, shift, *pair) for pair in pairs])


def _error(
    curvature: Curvature, damping: float, shift: Tensor | float, b: Tensor, x: Tensor
) -> Tensor:
    """The error of one column, in float64."""
    tiny = torch.finfo(torch.float64).tiny
    residual = b - curvature.product(x) - damping * x
    scaled = residual / shift
    direction, size = scaled, _dot(residual, scaled)
    found = torch.zeros_like(size)  # the energy that x lacks
    for _ in range(PROBES):
        product = curvature.product(direction) + damping * direction
        step = size / _dot(direction, product).clamp_min(tiny)
        found = found + step * size
        x, residual = x + step.to(x) * direction, residual - step.to(x) * product
        before, scaled = size, residual / shift
        size = _dot(residual, scaled)
        direction = scaled + (size / before.clamp_min(tiny)).to(x) * direction
    energy = _dot(b, x).square() / _dot(x, b - residual).clamp_min(tiny)
    return (found / energy.clamp_min(tiny)).sqrt()


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return left.double() @ right.double()


def columns(v: Tensor) -> Tensor:
    """``(D,)`` or ``(D, K)`` as ``(D, K)``."""
    return v[:, None] if v.ndim == 1 else v
