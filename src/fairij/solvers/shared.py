"""Conjugate gradients whose directions serve several fits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairij.method.curvature import Curvature
from fairij.solvers.base import check_damping
from fairij.solvers.conjugate_gradient import ConjugateGradient, ConjugateInverse, Directions

Key = tuple[tuple[str, Any], tuple[Tensor, ...]]


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
        inverse, key = super().prepare(curvature, damping), key_of(curvature)
        if self._known:
            known, at, directions = self._known["latest"]
            if is_same(known, key):
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


def key_of(curvature: Curvature) -> Key:
    """Identifies a curvature: its kind, its loss, and tensors that change whenever the data do.

    For the Jacobian this is ``J^T u`` with one random ``u``.
    """
    o = curvature.objective
    z = o.model.outputs
    draws = torch.randn(z.shape, generator=torch.Generator().manual_seed(0), device="cpu")
    tensors = (o.theta, z, o.y, o.weights, o.l2, o.model.vjp(draws.to(z)))
    return (curvature.name, o.loss), tensors


def is_same(left: Key, right: Key) -> bool:
    return left[0] == right[0] and all(
        a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
        for a, b in zip(left[1], right[1], strict=True)
    )
