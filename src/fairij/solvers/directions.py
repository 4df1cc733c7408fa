"""Directions that conjugate gradients keep, and how much energy they leave to be found.

Along a direction ``p`` with ``p^T A p = 1`` a solve moves by its share ``p^T b``, and its energy
``b^T x`` grows by the share squared, up to ``b^T A^-1 b``. So what the last few steps gained says
how much was left before them, and how fast they fall says how much is left after them, whatever the
scale of a feature. The residual says it too, once it is
known how much energy a squared residual may hold: its `reach`, found in the same steps.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

ROUNDING = 4  # units in the last place of b that are no residual
SUREST, UNSURE = 1 / 64, 4.0  # at least and at most what is to come, of a window's gains
IDLE, PATIENCE = 1e-3, 6  # of what is tolerated: next to nothing; steps in a row that gain less


class Directions:
    """Stored directions ``P`` with ``P A P^T = I`` and their ``A P``; A is scaled and damped."""

    def __init__(self, like: Tensor, memory_limit: int, scale: Tensor | None = None) -> None:
        self._memory_limit = memory_limit
        # of each parameter, (D,) or (): A stands for ``diag(scale) (H + damping I) diag(scale)``
        self.scale = like.new_ones(()) if scale is None else scale
        self.reach = 0.0  # the most energy found left per squared residual; 0 if never seen
        capacity = memory_limit // (2 * like.element_size() * len(like))
        self._capacity = int(min(max(capacity, 2), len(like) + 1))
        self._P = like.new_empty(0, len(like))  # (m, D)
        self._AP = like.new_empty(0, len(like))
        self.count = 0  # ever made

    @property
    def room(self) -> int:
        """How many of them may be kept."""
        return self._capacity

    def used(self) -> tuple[Tensor, Tensor]:
        kept = min(self.count, self._capacity)
        return self._P[:kept], self._AP[:kept]

    def remember(self, p: Tensor, Ap: Tensor) -> None:
        place = self.count % self._capacity
        if place >= self._P.shape[0]:
            room = min(max(16, 2 * len(self._P)), self._capacity)
            for name in ("_P", "_AP"):
                old = getattr(self, name)
                grown = old.new_empty(room, old.shape[1])
                grown[: len(old)] = old
                setattr(self, name, grown)
        self._P[place], self._AP[place] = p, Ap
        self.count += 1

    def most_left(self, residual: Tensor, damping: float) -> Tensor:
        """At most how much energy residuals hold, ``r^T A^-1 r``, ``(K,)``, if ``H >= 0``.

        It is ``|P r|^2`` and that of the rest, ``s = r - A P^T P r``, which damping bounds:
        ``s^T A^-1 s <= |s|^2 / damping`` in unscaled parameters.
        """
        P, AP = self.used()
        shares = residual @ P.T
        rest = (residual - shares @ AP) / self.scale
        return shares.double().square().sum(1) + rest.double().square().sum(1) / damping

    def with_damping(self, before: float, after: float) -> Directions:
        """The same directions, conjugate at another damping; no products."""
        other = Directions(self._P.new_empty(self._P.shape[1]), self._memory_limit, self.scale)
        other.reach = self.reach * max(1.0, before / after)
        P, AP = self.used()
        if len(P) == 0:
            return other
        AP = AP + (after - before) * self.scale**2 * P
        gram = P.double() @ AP.double().T
        factor, failed = torch.linalg.cholesky_ex((gram + gram.T) / 2)
        if int(failed) == 0:
            solve = torch.linalg.solve_triangular
            other._P = solve(factor, P.double(), upper=False).to(P)
            other._AP = solve(factor, AP.double(), upper=False).to(P)
            other.count = len(P)
        return other


class Left:
    """How much energy is left of each right-hand side, ``(K,)`` in float64."""

    def __init__(
        self,
        directions: Directions,
        right: Tensor,
        shares: Tensor,
        window: int,
        tolerance: float,
    ) -> None:
        self._directions, self._window = directions, window
        self._little = IDLE * tolerance**2
        self._energy = shares.double().square().sum(1)  # found so far
        self._size = right.double().norm(dim=1)
        self._floor = ROUNDING * torch.finfo(right.dtype).eps * self._size
        self._squares = right.new_zeros(0)  # of the residuals
        self._steps: deque[tuple[Tensor, Tensor]] = deque(maxlen=window)  # squares before, gains
        self._idle = 0  # steps in a row that gained next to nothing

    def gained(self, shares: Tensor) -> None:
        """One more step, which took these shares of the residuals away."""
        gains = shares.double().square()
        self._energy = self._energy + gains
        self._idle = self._idle + 1 if bool((gains <= self._little * self._energy).all()) else 0
        self._steps.append((self._squares, gains))
        if len(self._steps) == self._window:
            before, recent = self._steps[0][0], sum(gain for _, gain in self._steps)
            reach = (recent / before)[before > self._floor**2]
            self._directions.reach = max(self._directions.reach, *reach.tolist())

    @property
    def stands_still(self) -> bool:
        """Whether so many steps gained next to nothing that rounding may be the reason."""
        return self._idle > 0 and self._idle % PATIENCE == 0

    def rounding(self, residual: Tensor) -> Tensor:
        """The error where no direction is left: what remains of the right-hand sides."""
        return residual.double().norm(dim=1) / self._size.clamp_min(torch.finfo(torch.float64).tiny)

    def measured(self, residual: Tensor) -> tuple[Tensor, int]:
        """The error of each right-hand side, from 0 to 1, and which of them to solve next."""
        size = residual.norm(dim=1).double()
        self._squares = size**2
        reach = self._directions.reach or torch.inf
        left = reach * self._squares
        if left.shape[0] <= self._window or reach == torch.inf:  # else each is rarely solved for
            left = torch.maximum(self._ahead(size), left)
        share = torch.where(left < torch.inf, left / (self._energy + left), 1.0)
        self.is_open = ~(size <= self._floor)  # also if it is NaN
        error = torch.where(self.is_open, share.sqrt(), 0.0)
        return error, int(torch.where(self.is_open, self._squares / self._energy, 0.0).argmax())

    def told_by(self, residual: Tensor, most: Tensor, which: Tensor) -> Tensor:
        """The errors of some right-hand sides by what is in truth left of them: ``most``, or less.

        Zero for those that are zero.
        """
        left = self._directions.reach * residual.double().square().sum(1)
        left, energy = torch.minimum(left, most), self._energy[which]
        return torch.where(energy > 0, left / (energy + left), 0.0).sqrt()

    def mixed(self, residual: Tensor, place: int) -> Tensor:
        """The residual at this place, with those like it: a direction that helps them all.

        One step of the power method towards the direction that the residuals share most of.
        """
        if residual.shape[0] == 1:
            return residual[0]
        alike = (residual @ residual[place]).double() / self._energy
        alike = alike.masked_fill(self._energy == 0, 0.0)
        if not bool(alike[place] > 0):
            return residual[place]
        return (alike / alike[place]).to(residual) @ residual

    def _ahead(self, like: Tensor) -> Tensor:
        """The gains to come if they go on falling as in the two halves of the window."""
        if len(self._steps) < self._window:
            return sum((gain for _, gain in self._steps), torch.zeros_like(like))
        gains = torch.stack([gain for _, gain in self._steps])
        early, late = gains[: self._window // 2].sum(0), gains[self._window // 2 :].sum(0)
        recent = early + late
        ahead = torch.where(late < early, late**2 / (early - late), torch.inf)
        return ahead.clamp(recent * SUREST, recent * UNSURE)
