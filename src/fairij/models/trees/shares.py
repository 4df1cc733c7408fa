"""What the leaves of averaged trees may hold: numbers, or shares of classes.

Shares are at least 0 and sum to one in each leaf. Where an edit asks for other numbers, the leaf
gets the nearest shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

LEAST = 1e-6  # below it, log-odds go on as a straight line: a logarithm of 0 is infinite
NEAR = 1e-9  # of what counts as a sum of one
NOTHING = 1e-12  # smaller shares are 0, so that rounding makes none of them negative


class Content(Protocol):
    """What leaves hold, ``(L, C)``, and how outputs follow from its mean over trees, ``(N, C)``."""

    @property
    def columns(self) -> int:
        """How many numbers a leaf holds, C."""

    def room(self, mean: Tensor) -> Tensor:
        """How far a block of leaves with this mean moves at a time, shaped like it, ``(K, C)``."""

    def nearest(self, asked: Tensor) -> Tensor:
        """The nearest content; what may stand in a leaf already stays to the last bit."""

    def free(self, asked: Tensor) -> Tensor:
        """Which entries move if what is asked for moves, ``(L, C)``."""

    def along(self, moved: Tensor, free: Tensor) -> Tensor:
        """How the nearest content moves, ``(L, C)``; symmetric in ``moved``."""

    def outputs(self, mean: Tensor) -> Tensor:
        """``z``, ``(N,)`` or ``(N, C)``."""

    def slope(self, mean: Tensor) -> Tensor:
        """``dz/dp`` (of the last column if there is one output), shaped like z."""

    def bend(self, mean: Tensor) -> Tensor:
        """``d^2 z / dp^2``, shaped like z."""


class Numbers:
    """One number in each leaf, without bounds; the output is its mean."""

    columns = 1

    def room(self, mean: Tensor) -> Tensor:
        return torch.ones_like(mean)

    def nearest(self, asked: Tensor) -> Tensor:
        return asked

    def free(self, asked: Tensor) -> Tensor:
        return torch.ones_like(asked, dtype=torch.bool)

    def along(self, moved: Tensor, free: Tensor) -> Tensor:
        return moved

    def outputs(self, mean: Tensor) -> Tensor:
        return mean[:, 0]

    def slope(self, mean: Tensor) -> Tensor:
        return torch.ones_like(mean[:, 0])

    def bend(self, mean: Tensor) -> Tensor:
        return torch.zeros_like(mean[:, 0])


@dataclass(frozen=True)
class Shares:
    """Shares of classes that sum to one; the outputs are log-odds of their means.

    ``z = log(p_1 / p_0)`` for two classes, ``z_c = log p_c`` for more.
    """

    columns: int

    def room(self, mean: Tensor) -> Tensor:
        return 4 * mean * (1 - mean)

    def nearest(self, asked: Tensor) -> Tensor:
        outside = self._outside(asked)
        if not bool(outside.any()):
            return asked
        found, some = asked.clone(), asked[outside]
        nearest = (some - self._shift(some)).clamp_min(0)
        found[outside] = torch.where(nearest < NOTHING, 0.0, nearest)
        return found

    def free(self, asked: Tensor) -> Tensor:
        outside, free = self._outside(asked), torch.ones_like(asked, dtype=torch.bool)
        some = asked[outside]
        free[outside] = some - self._shift(some) > -NEAR
        return free

    def along(self, moved: Tensor, free: Tensor) -> Tensor:
        moved = torch.where(free, moved, 0.0)
        mean = moved.sum(1, keepdim=True) / free.sum(1, keepdim=True)
        return torch.where(free, moved - mean, 0.0)

    def outputs(self, mean: Tensor) -> Tensor:
        low = mean.clamp_min(LEAST)
        log = low.log() - (low - mean) / LEAST
        return log[:, 1] - log[:, 0] if self.columns == 2 else log

    def slope(self, mean: Tensor) -> Tensor:
        slope = 1 / mean.clamp_min(LEAST)
        return slope.sum(1) if self.columns == 2 else slope  # p_0 = 1 - p_1

    def bend(self, mean: Tensor) -> Tensor:
        bend = torch.where(mean > LEAST, -(mean.clamp_min(LEAST) ** -2), 0.0)
        return bend[:, 1] - bend[:, 0] if self.columns == 2 else bend

    def _outside(self, asked: Tensor) -> Tensor:
        """The leaves whose numbers are no shares."""
        off = (asked.sum(1) - 1).abs()
        return (asked < 0).any(1) | (off > NEAR)

    def _shift(self, asked: Tensor) -> Tensor:
        """What is taken off all numbers of a leaf so that those above 0 have the sum, (L, 1)."""
        falling = asked.sort(1, descending=True).values
        over = falling.cumsum(1) - 1
        count = torch.arange(1, asked.shape[1] + 1, dtype=asked.dtype)
        last = (falling * count > over).sum(1, keepdim=True)
        return over.gather(1, last - 1) / last
