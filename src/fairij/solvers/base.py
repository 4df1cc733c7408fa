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


@dataclass(frozen=True)
class Solution:
    """``x``, the steps it took, and its relative residual, measured when asked for."""

    x: Tensor  # (D,) or (D, K)
    steps: int
    measure: Callable[[], Tensor]

    @cached_property
    def residual(self) -> Tensor:
        """``|b - (H + damping I) x| / |b|`` of each right-hand side, shape ``(K,)``.

        For approximate solvers too this is against the whole curvature, so it says what the
        approximation costs.
        """
        return self.measure()

    @classmethod
    def of(cls, x: Tensor, b: Tensor, curvature: Curvature, damping: float, steps: int) -> Solution:
        """A solution whose residual is measured by a product with the curvature."""
        return cls(x, steps, lambda: relative_residual(curvature, damping, b, x))


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


def relative_residual(curvature: Curvature, damping: float, b: Tensor, x: Tensor) -> Tensor:
    """``|b - (H + damping I) x| / |b|`` of each column; zero where b is."""
    columns_b, columns_x = columns(b), columns(x)
    product = torch.stack([curvature.product(v) for v in columns_x.T.to(b)], 1)
    off = (columns_b - product - damping * columns_x).norm(dim=0)
    return off / columns_b.norm(dim=0).clamp_min(torch.finfo(b.dtype).tiny)


def columns(v: Tensor) -> Tensor:
    """``(D,)`` or ``(D, K)`` as ``(D, K)``."""
    return v[:, None] if v.ndim == 1 else v
