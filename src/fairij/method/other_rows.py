"""Constraints on rows of their own: their gaps at edits, signed and hard, and gradients of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import n_rows, processes, speaking_of
from fairij.errors import InvalidInputError
from fairij.fairness.constraints import CONSTRAINTS, Constraint
from fairij.fairness.counterfactual import Counterfactual, Sides
from fairij.fairness.decisions import Decided, Decision, TopShare
from fairij.models.base import Editable, Evaluator, Linearization
from fairij.models.losses import Loss

GROUPS = "gap[groups]"
"""The column of the gap between groups, if there are gaps on other rows as well."""


@dataclass(frozen=True)
class OtherRows:
    """One `Counterfactual`, as a model takes its rows."""

    asked: Counterfactual
    constraint: Constraint
    loss: Loss
    temperature: float
    fitted: Callable[[], Linearization]
    evaluator: Callable[[], Evaluator]

    @property
    def column(self) -> str:
        return f"gap[{self.asked.name}]"

    def signed_at(self, move: Tensor) -> list[tuple[float, Callable[[], Tensor]]]:
        """Each gap with a sign at ``theta_0 + move``, and what makes its gradient."""
        there = self.fitted().moved(move)
        z = there.outputs
        found = []
        for side in self.asked.sides:
            at = torch.as_tensor(side.rows, device=z.device)
            parts = self.constraint.signed_gradients(
                z[at], _no_labels(z[at]), side.groups, self.loss, self.temperature
            )
            for soft, _, slope in parts:
                found.append((soft, _gradient(there, at, slope)))
        return found

    def along(self, direction: Tensor, scales: tuple[float, ...]) -> NDArray[np.float64]:
        """The mean over kinds of the gaps at ``theta_0 + c direction``, for each scale."""
        steps = torch.tensor(scales, dtype=torch.float64)
        z = self.evaluator().along(direction, steps)
        gaps = [[self._gap(one, side) for side in self.asked.sides] for one in z]
        return np.array(gaps).mean(1)

    def _gap(self, z: Tensor, side: Sides) -> float:
        z = z[torch.as_tensor(side.rows, device=z.device)]
        if not bool(torch.isfinite(z).all()):
            return float("inf")
        of_pairs = self.constraint.part_gradients(
            z, _no_labels(z), side.groups, self.loss, self.temperature
        )
        return max(gap for gap, _ in of_pairs)


def other_rows(
    editable: Editable,
    asked: tuple[Counterfactual, ...],
    loss: Loss,
    temperature: float,
    decision: Decision,
) -> tuple[OtherRows, ...]:
    """The constraints on rows of their own, checked."""
    if asked and isinstance(decision.threshold, TopShare):
        raise InvalidInputError(
            "`threshold` must be a number where `constraints` has a Counterfactual, because a "
            f"share of its rows has no meaning; got {decision.threshold!r}."
        )
    if asked and processes() > 1:
        raise InvalidInputError(
            "`constraints` must be gaps between groups where several processes share the rows; "
            f"got {asked[0]!r}: fit in one process."
        )
    name = "demographic_parity" if loss.is_classification else "mean_prediction"
    constraint = Decided.by(decision, CONSTRAINTS[name])
    return tuple(_one(editable, one, constraint, loss, temperature) for one in asked)


def _one(
    editable: Editable,
    asked: Counterfactual,
    constraint: Constraint,
    loss: Loss,
    temperature: float,
) -> OtherRows:
    given, named = n_rows(asked.X), len(asked.values)
    if given != named:
        raise InvalidInputError(
            "`swapped` of Counterfactual must have one value per row of its `X`: expected "
            f"{given}, got {named}."
        )
    assert asked.sides  # raises if pairs or kinds do not fit

    @cache
    def fitted() -> Linearization:
        with speaking_of("Counterfactual.X"):
            return editable.linearize(asked.X)

    evaluator = cache(lambda: editable.evaluator(asked.X))
    return OtherRows(asked, constraint, loss, temperature, fitted, evaluator)


def with_other_gaps(
    found: dict[str, NDArray[Any]],
    others: tuple[OtherRows, ...],
    direction: Tensor,
    scales: tuple[float, ...],
) -> dict[str, NDArray[Any]]:
    """Columns of candidates with the gaps on other rows; ``gap`` becomes the sum of all gaps."""
    return summed(found, {one.column: one.along(direction, scales) for one in others})


def summed(
    found: dict[str, NDArray[Any]], gaps: Mapping[str, NDArray[np.float64]]
) -> dict[str, NDArray[Any]]:
    """The columns with these gaps next to that of the groups, and all of them added."""
    if not gaps:
        return found
    whole = found["gap"] + np.sum(list(gaps.values()), axis=0)
    return {**found, "gap": whole, GROUPS: found["gap"], **gaps}


def _no_labels(z: Tensor) -> Tensor:
    return torch.zeros(len(z), dtype=z.dtype, device=z.device)


def _gradient(there: Linearization, at: Tensor, slope: Tensor) -> Callable[[], Tensor]:
    def pull() -> Tensor:
        weights = torch.zeros_like(there.outputs)
        weights[at] = slope.to(weights)
        return there.vjp(weights)

    return pull
