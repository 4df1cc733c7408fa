"""Trigger tokens judged quickly: many edits are estimated, and the model runs for a single one."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fairij.data.rows import take_rows
from fairij.models.base import Evaluator, EvaluatorDefaults
from fairij.models.text.trigger_linearization import TriggerLinearization


@dataclass
class ScreeningEvaluator(EvaluatorDefaults):
    """Estimates many scales by a parabola; runs the model for a single one.

    The parabola is ``z + c J d + s^2 b``. Here ``b`` is what the linear estimate missed in an
    earlier run of the model, and ``s`` is the size of this step relative to that run. The run with
    the nearest ``J d`` is used: edits that drop more or fewer rows go nearly the same way.
    """

    linear: TriggerLinearization
    exact: Evaluator
    runs: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # (J d, b), the latest first
    estimates: bool = field(default=True, init=False)

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        z = self.linear.along(direction, scales)
        if not direction.any():
            return z
        if len(scales) > 1:
            return self._bent(z)
        found = self.exact.along(direction, scales)
        self._learn(z[0], found[0])
        return found

    def confirm(self, direction: Tensor, scale: float, *, everywhere: bool) -> Tensor:
        """One edit, run on all rows or only where the label is in doubt.

        A label is in doubt if a second step of the same size could change it.
        """
        model, steps = self.linear.model, torch.tensor([scale], dtype=torch.float64)
        if everywhere:
            return self.along(direction, steps)
        z = self.linear.along(direction, steps)
        bent = self._bent(z)[0].clone()
        index = torch.nonzero(_in_doubt(bent, z[0] - self.linear.outputs))[:, 0]
        if len(index) == len(bent):
            return self.along(direction, steps)
        if len(index):
            theta = model.theta + scale * direction.to(model.theta)
            bent[index] = model.run(take_rows(self.linear.tokens, index), theta)
        self._learn(z[0], bent)
        return bent[None]

    def _learn(self, z: Tensor, found: Tensor) -> None:
        """Remember how far the model's outputs lie from the linear estimate ``z``."""
        if torch.isfinite(found).all() and torch.isfinite(z).all():
            self.runs.insert(0, (z - self.linear.outputs, found - z))

    def _bent(self, z: Tensor) -> Tensor:
        """Linear estimates of some scales, ``(S, N)`` or ``(S, N, C)``, bent as the nearest run."""
        if not self.runs:
            return z
        moved = z - self.linear.outputs
        before, bends = (torch.stack(parts) for parts in zip(*self.runs, strict=True))
        dots = moved.flatten(1) @ before.flatten(1).T  # (scales, runs)
        sizes = before.flatten(1).square().sum(1).clamp_min(torch.finfo(z.dtype).tiny)
        nearest = (sizes - 2 * dots).argmin(1)
        shares = dots.gather(1, nearest[:, None])[:, 0] / sizes[nearest]
        return z + (shares**2).view(-1, *[1] * (z.ndim - 1)) * bends[nearest]


def _in_doubt(z: Tensor, moved: Tensor) -> Tensor:
    """Which rows, ``(N,)``, would change their label if their outputs moved as far again."""
    if z.ndim == 1:
        return ~(z.abs() > moved.abs())
    first, second = z.topk(2, -1).values.unbind(-1)
    return ~(first - second > 2 * moved.abs().amax(-1))
