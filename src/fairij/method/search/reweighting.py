"""Change the weight of every row instead of dropping some: at once, or in many small steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fairij.data.checks import check_scales, number_between, whole_number
from fairij.method.influence import gram_of, weights_to_move
from fairij.method.search.base import (
    MOVES,
    NOT_AGAIN,
    Account,
    Proposal,
    SearchContext,
    SearchDefaults,
    way_to_zero,
)


@dataclass(frozen=True)
class Reweight(SearchDefaults):
    """Lower the weight of each harmful row in proportion to its influence.

    ``theta + c (H + damping I)^-1 sum_n max(I_n, 0) g_n / N``. All scales together cost one solve.
    At scale 1 the surrogate would be zero if the model were linear.

    Examples
    --------
    >>> FairIJ(model, search=Reweight(scales=(0.5, 1.0))).search.scales
    (0.5, 1.0)
    """

    scales: tuple[float, ...] = tuple((np.arange(1, 41) / 20).round(2).tolist())
    tolerance: float | None = None

    name: ClassVar[str] = "reweight"

    def __post_init__(self) -> None:
        check_scales(self.scales)

    def count(self, context: SearchContext) -> int:
        return 1

    def account(self, k: int, scale: float, rows: int) -> Account:
        return Account(
            f"{MOVES} as if {k:,} of the {rows:,} training rows, those that push the gap up, had "
            f"counted less. {NOT_AGAIN}",
            "rows that count less in effect",
            f"{k:,}",
            f"{k / rows:.1%} of the training rows, at scale {scale:g}",
            *way_to_zero(scale),
        )

    def propose(self, context: SearchContext) -> Iterator[Proposal]:
        if len(context.order) == 0:
            return
        o = context.objective
        weights = torch.zeros_like(context.influence.scores)
        weights[context.order] = context.influence.scores[context.order]
        pull = o.model.vjp(o.slope * weights.view(-1, *[1] * (o.slope.ndim - 1)))
        solution = context.inverse.solve(pull, tolerance=self.tolerance)
        direction = solution.x
        fall = -float(context.gradient @ direction)
        if fall > 0:
            direction, error = direction * (abs(context.gap) / fall), float(solution.told[0])
            yield Proposal(len(context.order), direction, self.scales, error=error)


@dataclass(frozen=True)
class Path(SearchDefaults):
    """Many small steps, each of the least training loss for what it takes off the gap.

    ``d <- d + (H + damping I)^-1 G w``. ``G`` are the gradients of the gaps at ``theta + d``. ``w``
    is such that each step closes ``1 / steps`` of the gaps of hard predictions.

    Parameters
    ----------
    steps : int, default=20
        How many steps close the gap.
    beyond : float, default=0.2
        Extra steps, as a fraction of `steps`, to close what is left of the gap.
    past : float, default=0.3
        Extra steps along the last direction, as a fraction of `steps`, to compensate for
        overfitting. Scale 1.25 in the table is then 1.05 times the end at 1.2.
    refresh : int or None, default=5
        Steps between two computations of the curvature. None keeps the first one.
    tolerance : float, default=1e-2
        Error in energy of each step.
    cheapest_first : bool, default=False
        Close the cheapest gaps first; keep closed ones closed. Otherwise close all together.

    Examples
    --------
    >>> FairIJ(model, search=Path(steps=10)).search.steps
    10
    """

    steps: int = 20
    beyond: float = 0.2
    past: float = 0.3
    refresh: int | None = 5
    tolerance: float = 1e-2
    cheapest_first: bool = False

    name: ClassVar[str] = "path"
    row_by_row: ClassVar[bool] = False
    recomputes_gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole_number("steps", self.steps, 1)
        if self.refresh is not None:
            whole_number("refresh", self.refresh, 1, otherwise=" or None")
        number_between("beyond", self.beyond, 0, including_low=True)
        number_between("past", self.past, 0, including_low=True)

    @property
    def _length(self) -> int:
        return round(self.steps * (1 + self.beyond))

    @property
    def _further(self) -> int:
        return round(self.steps * self.past)

    def count(self, context: SearchContext) -> int:
        return self._length + self._further

    def account(self, k: int, scale: float, rows: int) -> Account:
        way = "of the way to a closed gap"
        return Account(
            f"{MOVES} in small steps, {scale:.0%} {way}. {NOT_AGAIN}",
            "how far the edit goes",
            f"{scale:.0%}",
            way,
            *way_to_zero(scale),
        )

    def propose(self, context: SearchContext) -> Iterator[Proposal]:
        if len(context.order) == 0:
            return
        inverse, moved = context.inverse, torch.zeros_like(context.objective.theta)
        gaps, gradients = context.gaps_at(moved)
        first, error = gaps, 0.0
        for step in range(1, self._length + 1):
            solution = inverse.solve(gradients, tolerance=self.tolerance)
            solved, error = solution.x, float(solution.told.max().clamp_min(error))
            share = min(1.0, step / self.steps)
            if self.cheapest_first:
                wanted = self._cheapest(first, gaps, share, gram_of(gradients, solved))
            else:
                wanted = self._together(first, gaps, share)
            moved = moved + solved @ weights_to_move(gradients, solved, wanted).to(solved)
            label = round(step / self.steps, 6)
            yield Proposal(len(context.order), moved, (1.0,), label, error)
            gaps, gradients = context.gaps_at(moved)
            if not bool(torch.isfinite(gaps).all() and torch.isfinite(gradients).all()):
                return
            if self.refresh is not None and step % self.refresh == 0 and step < self._length:
                del inverse  # frees its memory for the next one
                inverse = context.inverse_at(moved)
        for step in range(1, self._further + 1):
            label = round((self._length + step) / self.steps, 6)
            beyond = moved * (1 + step / self.steps)
            yield Proposal(len(context.order), beyond, (1.0,), label, error)

    def _together(self, first: Tensor, gaps: Tensor, share: float) -> Tensor:
        """Towards zero; a gap of a user's own that is below zero falls by its size again."""
        largest = (
            2 * first.abs().max() / self.steps
        )  # errors of a step are not corrected all at once
        return (first * (1 - first.sign() * share) - gaps).clamp(-largest, largest)

    def _cheapest(self, first: Tensor, gaps: Tensor, share: float, gram: Tensor) -> Tensor:
        total = float(first.sum())
        fall = float(gaps.sum()) - total * (1 - share)
        return cheapest_fall(gram, gaps.to(gram), min(max(fall, 0.0), 2 * abs(total) / self.steps))


def cheapest_fall(gram: Tensor, gaps: Tensor, fall: float) -> Tensor:
    """How each gap moves, ``(P,)``, so that their sum falls by ``fall`` at the least cost.

    A move by ``v`` costs ``v^T gram^-1 v`` of the training loss. No gap goes below zero: a gap that
    would is closed and held there, and the others fall farther.
    """
    held, units = gaps <= 0, torch.eye(len(gaps)).to(gram)
    while not bool(held.all()):
        basis = torch.cat(
            [units[:, held], (~held).to(gram)[:, None]], 1
        )  # one direction for all free gaps
        closed = gaps[held]
        asked = torch.cat([-closed, (closed.sum() - fall)[None]])
        moves = gram @ basis @ torch.linalg.solve(basis.T @ gram @ basis, asked)
        crossing = ~held & (moves < -gaps)
        if not bool(crossing.any()):
            return moves
        held = held | crossing
    return -gaps
