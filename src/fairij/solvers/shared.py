"""Conjugate gradients whose directions serve several fits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairij.method.curvature import Curvature
from fairij.solvers.base import check_damping
from fairij.solvers.conjugate_gradient import ConjugateGradient, ConjugateInverse, Directions


@dataclass(frozen=True)
class SharedConjugateGradient(ConjugateGradient):
    """Conjugate gradients for several fits of the same model to the same rows.

    The curvature depends on neither constraint nor selection. So give one such solver to all fits:
    each starts from the directions of the fit before it, at its first damping. Another model,
    loss, labels, weights or rows start over. The directions stay in memory as long as the solver.
    A fit with a checkpoint shares nothing, as it must not depend on earlier fits.
    """

    _known: dict[str, tuple[Key, float, Directions]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def prepare(self, curvature: Curvature, damping: float) -> ConjugateInverse:
        inverse, key = super().prepare(curvature, damping), Key.of(curvature)
        if self._known:
            known, at, directions = self._known["latest"]
            if known.fits(key):
                inverse.directions = directions.with_damping(check_damping(damping) - at)
        self._known["latest"] = (key, inverse.damping, inverse.directions)
        return inverse

    @property
    def unshared(self) -> ConjugateGradient:
        return ConjugateGradient(*self._settings)

    @property
    def _settings(self) -> tuple[Any, ...]:
        settings = self.tolerance, self.max_steps, self.memory_limit, self.on_failure
        return (*settings, self.sample_rows)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """A copy has the settings and no directions."""
        return type(self), self._settings


@dataclass(frozen=True)
class Key:
    """Identifies a curvature: its kind, its loss, and tensors that change whenever the data do.

    For the Jacobian this is ``J^T u`` with one random ``u``.
    """

    kind: str
    loss: Any
    numbers: tuple[Tensor, ...]

    @classmethod
    def of(cls, curvature: Curvature) -> Key:
        o = curvature.objective
        z = o.model.outputs
        draws = torch.randn(z.shape, generator=torch.Generator().manual_seed(0), device="cpu")
        numbers = (o.theta, z, o.y, o.weights, o.l2, o.model.vjp(draws.to(z)))
        return cls(curvature.name, o.loss, numbers)

    def fits(self, other: Key) -> bool:
        return (self.kind, self.loss) == (other.kind, other.loss) and all(
            a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
            for a, b in zip(self.numbers, other.numbers, strict=True)
        )
