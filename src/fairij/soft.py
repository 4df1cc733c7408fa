"""Searches that change the weight of every row instead of dropping some.

They answer the same question as dropping rows, "what if the model had seen these rows less",
without the step between the last row that is dropped and the first that is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fairij.errors import InvalidInputError
from fairij.influence import weights_to_move
from fairij.scene import Proposal, Scene


@dataclass(frozen=True)
class Reweight:
    """Lower the weight of each harmful row in proportion to its influence.

    ``theta + c (H + damping I)^-1 sum_n max(I_n, 0) g_n / N``. The sum is one vector, so all scales
    together cost one solve. Scale 1 is where the surrogate would be zero if the model were linear.
    """

    scales: tuple[float, ...] = tuple((np.arange(1, 41) / 20).round(2).tolist())
    tolerance: float | None = None

    name: ClassVar[str] = "reweight"
    drops: ClassVar[bool] = False
    stops_early: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_scales(self.scales)

    def count(self, scene: Scene) -> int:
        return 1

    def propose(self, scene: Scene) -> Iterator[Proposal]:
        if len(scene.order) == 0:
            return
        o = scene.objective
        weights = torch.zeros_like(scene.influence.scores)
        weights[scene.order] = scene.influence.scores[scene.order]
        pull = o.model.vjp(o.slope * weights.view(-1, *[1] * (o.slope.ndim - 1)))
        direction = scene.inverse.solve(pull, tolerance=self.tolerance).x
        fall = -float(scene.gradient @ direction)
        if fall > 0:
            yield Proposal(len(scene.order), direction * (abs(scene.gap) / fall), self.scales)


@dataclass(frozen=True)
class Path:
    """Many small steps, each the cheapest one by the training loss for what it takes off the gap.

    ``d <- d + (H + damping I)^-1 G w``, where ``G`` are the gradients of the gaps at ``theta + d``,
    made anew, and ``w`` such that each step closes ``1 / steps`` of the gaps of hard predictions.
    Where the empirical Fisher equals H, a step lowers each row's weight by its influence there.
    The curvature is made anew every ``refresh`` steps.

    Parameters
    ----------
    steps : to the end of which the gap would be closed
    beyond : further steps, as a share of ``steps``, which go for what is left of it
    refresh : steps between two curvatures; None to keep the first one
    tolerance : relative residual of each step
    """

    steps: int = 20
    beyond: float = 0.2
    refresh: int | None = 5
    tolerance: float = 1e-2

    name: ClassVar[str] = "path"
    drops: ClassVar[bool] = False
    stops_early: ClassVar[bool] = False

    def __post_init__(self) -> None:
        wholes = [n for n in (self.steps, self.refresh) if n is not None]
        if not all(n >= 1 and float(n).is_integer() for n in wholes):
            raise InvalidInputError(
                "`steps` and `refresh` must be whole numbers of at least 1 (or `refresh` None), "
                f"got {self.steps} and {self.refresh}."
            )
        if not 0 <= self.beyond < np.inf:
            raise InvalidInputError(
                f"`beyond` must be a share of `steps` of at least 0, got {self.beyond}."
            )

    @property
    def _length(self) -> int:
        return round(self.steps * (1 + self.beyond))

    def count(self, scene: Scene) -> int:
        return self._length

    def propose(self, scene: Scene) -> Iterator[Proposal]:
        if len(scene.order) == 0:
            return
        inverse, moved = scene.inverse, torch.zeros_like(scene.objective.theta)
        gaps, gradients = scene.gaps_at(moved)
        first = gaps
        largest = 2 * first.abs().max() / self.steps  # a step that misjudged is not made up at once
        for step in range(1, self._length + 1):
            # to zero; what a user's own constraint has below zero falls by as much again
            wanted = first * (1 - first.sign() * min(1.0, step / self.steps)) - gaps
            wanted = wanted.clamp(-largest, largest)
            solved = inverse.solve(gradients, tolerance=self.tolerance).x
            moved = moved + solved @ weights_to_move(gradients, solved, wanted).to(solved)
            yield Proposal(len(scene.order), moved, (1.0,), label=round(step / self.steps, 6))
            gaps, gradients = scene.gaps_at(moved)
            if not bool(torch.isfinite(gaps).all() and torch.isfinite(gradients).all()):
                return
            if self.refresh is not None and step % self.refresh == 0 and step < self._length:
                del inverse  # what it keeps makes room for what the next one keeps
                inverse = scene.inverse_at(moved)


def check_scales(scales: tuple[float, ...]) -> None:
    if np.ndim(scales) != 1 or not len(scales) or not all(0 < scale < np.inf for scale in scales):
        raise InvalidInputError(
            f"`scales` must be one or more positive multipliers of the edit (1 is the jackknife's "
            f"own), got {scales}."
        )
