"""Conjugate gradients whose directions serve several fits."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fairij.curvature import Curvature
from fairij.solvers.base import check_damping
from fairij.solvers.conjugate_gradient import ConjugateGradient, ConjugateInverse, Directions

Key = tuple[str, tuple[Tensor, ...]]


@dataclass(frozen=True)
class SharedConjugateGradient(ConjugateGradient):
    """Conjugate gradients for several fits of the same model to the same rows.

    The curvature depends on neither constraint nor selection, so what one fit has paid for serves
    the next: give one such solver to all of them. A model with other parameters, outputs, labels
    or weights begins anew. The directions stay in memory as long as the solver does.
    """

    _known: list[tuple[Key, float, Directions]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def prepare(self, curvature: Curvature, damping: float) -> ConjugateInverse:
        key, directions = _key(curvature), None
        for known, at, found in self._known:
            if _same(known, key):
                directions = found.with_damping(check_damping(damping) - at)
        self._known.clear()
        inverse = super().prepare(curvature, damping)
        if directions is not None:
            inverse.directions = directions
        self._known.append((key, inverse.damping, inverse.directions))
        return inverse

    def __reduce__(self) -> tuple[type, tuple[float | str, ...]]:
        """A copy has the settings and knows nothing yet."""
        settings = self.tolerance, self.max_steps, self.memory_limit, self.on_failure
        return type(self), (*settings, self.sample_rows)


def _key(curvature: Curvature) -> Key:
    """What a curvature is known by: a model that has these outputs is taken for the same one."""
    o = curvature.objective
    return curvature.name, (o.theta, o.model.outputs, o.y, o.weights, o.l2)


def _same(first: Key, second: Key) -> bool:
    return first[0] == second[0] and all(
        a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
        for a, b in zip(first[1], second[1], strict=True)
    )
