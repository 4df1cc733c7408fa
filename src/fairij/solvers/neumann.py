"""Neumann: the truncated series ``sum_j (I - A / scale)^j b / scale``, ``A = H + damping I``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fairij.data.checks import whole_number
from fairij.errors import InvalidInputError, NotConvergedError
from fairij.method.curvature import Curvature, largest_eigenvalue
from fairij.solvers.base import InverseDefaults, Solution, SolverDefaults, check_damping, columns


@dataclass(frozen=True)
class Neumann(SolverDefaults):
    """Time N D per step, or batch D on sampled rows (LiSSA).

    Parameters
    ----------
    steps : int, default=1000
        Terms of the series.
    scale : float or "power", default="power"
        Above the largest eigenvalue of A. "power" finds it by power iteration.
    batch_size : int or None, default=None
        Rows sampled for each term. None for all rows.
    runs : int, default=1
        Independent series on sampled rows; their mean is taken.
    seed : int, default=0
        The seed of the samples.
    tolerance : float or None, default=0.1
        Raise if the error in energy is above it after all steps. None: return what was found.

    Examples
    --------
    >>> FairIJ(model, solver=Neumann(steps=200)).solver.steps
    200
    """

    steps: int = 1000
    scale: float | Literal["power"] = "power"
    batch_size: int | None = None
    runs: int = 1
    seed: int = 0
    tolerance: float | None = 0.1
    name = "neumann"

    def __post_init__(self) -> None:
        whole_number("steps", self.steps, 1)
        whole_number("runs", self.runs, 1)
        if self.scale != "power" and not (isinstance(self.scale, (int, float)) and self.scale > 0):
            raise InvalidInputError(f"`scale` must be positive or 'power', got {self.scale!r}.")

    def seeded(self, seed: int) -> Neumann:
        return replace(self, seed=seed)

    def prepare(self, curvature: Curvature, damping: float) -> NeumannInverse:
        damping = check_damping(damping)
        if isinstance(self.scale, str):
            # power iteration gives a lower bound; the eigenvalue of a sample can be larger still
            margin = 1.1 if self.batch_size is None else 3.0
            scale = margin * largest_eigenvalue(curvature) + damping
        else:
            scale = float(self.scale)
        return NeumannInverse(self, curvature, damping, scale)


class NeumannInverse(InverseDefaults):
    """The series at a known scale."""

    def __init__(
        self, settings: Neumann, curvature: Curvature, damping: float, scale: float
    ) -> None:
        self.damping, self.scale = damping, scale
        self._settings, self._curvature = settings, curvature

    def solve(self, b: Tensor, *, tolerance: float | None = None) -> Solution:
        right = columns(b)
        runs = 1 if self._settings.batch_size is None else self._settings.runs
        series = [self._series(right, self._settings.seed + run) for run in range(runs)]
        x = (torch.stack(series).mean(0) / self.scale).reshape(b.shape)
        steps = self._settings.steps * runs
        solution = Solution.of(x, b, self._curvature, self.damping, steps)
        if self._settings.tolerance is not None and self._settings.batch_size is None:
            reached = float(solution.residual.max())
            if reached > self._settings.tolerance:
                raise NotConvergedError(
                    f"The Neumann series has an error in energy of {reached:.2g} after {steps} "
                    f"terms, above its tolerance {self._settings.tolerance:g}: the damping "
                    f"({self.damping:g}) is small beside the scale ({self.scale:g}). Cures: more "
                    "`steps`, more `damping`, another solver, or tolerance=None to take it so."
                )
        return solution

    def _series(self, b: Tensor, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        x = b.clone()
        for step in range(self._settings.steps):
            curvature = self._sample(generator)
            product = torch.stack([curvature.product(v) for v in x.T], 1) + self.damping * x
            x = b + x - product / self.scale
            if step % 16 == 0:
                self._check(x, b, step)
        self._check(x, b, self._settings.steps)
        return x

    def _sample(self, generator: torch.Generator) -> Curvature:
        batch = self._settings.batch_size
        if batch is None:
            return self._curvature
        o = self._curvature.objective
        index = torch.randint(len(o.y), (batch,), generator=generator, device="cpu")
        return self._curvature.restrict(index.to(o.theta.device))

    def _check(self, x: Tensor, b: Tensor, step: int) -> None:
        # a converging series is bounded by the sum of (1 - damping / scale)^j
        bound = 10 * self.scale / self.damping * b.norm()
        if not bool(x.norm() <= bound):
            raise NotConvergedError(
                f"The Neumann series diverged at step {step}: scale {self.scale:g} is below the "
                "largest eigenvalue, or the curvature is indefinite. Cures: scale='power', a "
                "larger `scale`, or curvature='ggn'."
            )
