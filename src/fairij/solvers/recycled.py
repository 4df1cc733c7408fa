"""A guide for conjugate gradients from the directions of solves with curvatures nearby.

Of directions with ``P A P^T = I``, ``M = K C K^T + P^T P`` with ``K = I - P^T A P`` is exact on
what they span. On the rest it is ``C``: diagonal, as the curvature's diagonal says if it is known,
else a multiple of the identity. For ``C > 0`` it is positive definite whatever ``P`` and ``A P``
are, so it may guide solves with another curvature.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairij.solvers.base import Solution

MOST = 60  # directions; more cost memory and hardly save products
OVERLAP = 1e-3  # what is left of an old direction, at least, beside the latest ones


@dataclass(frozen=True)
class Recycled:
    """Directions ``P`` of one or several solves, with their ``A P``."""

    P: Tensor  # (m, D)
    AP: Tensor  # (m, D)
    scale: Tensor  # () or (D,), the diagonal of C

    @classmethod
    def of(
        cls, P: Tensor, AP: Tensor, older: Recycled | None, room: int, like: Tensor
    ) -> Recycled | None:
        """The latest directions, and what the older ones add to them; ``room`` for so many.

        ``like`` is what ``C`` is a multiple of, () or (D,).
        """
        if len(P) == 0 or len(P) > room:
            return older
        scale = like * ((P[-1] @ AP[-1]) / (AP[-1] @ (like * AP[-1])))
        if older is not None:
            old_P, old_AP = older._beside(P, AP, min(room, MOST) - len(P))
            P, AP = torch.cat([P, old_P]), torch.cat([AP, old_AP])
        return cls(P, AP, scale)

    def _beside(self, P: Tensor, AP: Tensor, room: int) -> tuple[Tensor, Tensor]:
        """Made conjugate to the latest directions and to each other; ``(room, D)`` at most."""
        shares = self.P @ AP.T
        old_P, old_AP = self.P - shares @ P, self.AP - shares @ AP
        gram = old_P.double() @ old_AP.double().T
        values, vectors = torch.linalg.eigh((gram + gram.T) / 2)
        able = (values > OVERLAP).nonzero()[:, 0].flip(0)[: max(room, 0)]  # the largest first
        turned = (vectors[:, able] / values[able].sqrt()).T.to(P)
        return turned @ old_P, turned @ old_AP

    def solve(self, v: Tensor) -> Solution:
        """``M v``."""
        along = self.P @ v
        rest = self.scale * (v - along @ self.AP)
        x = rest - (self.AP @ rest) @ self.P + along @ self.P
        return Solution(x, 0, lambda: torch.full((1,), torch.nan))

    def with_damping(self, damping: float) -> Recycled:
        return self  # the damping of old directions differs too
