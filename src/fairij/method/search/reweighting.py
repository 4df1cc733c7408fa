"""Lower the weight of every harmful row instead of dropping some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fairij.data.checks import check_scales
from fairij.method.search.base import (
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
            f"moved the parameters as if each of {k:,} of the {rows:,} training rows had "
            "counted less, in proportion to its influence, without training again.",
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
        direction = context.inverse.solve(pull, tolerance=self.tolerance).x
        fall = -float(context.gradient @ direction)
        if fall > 0:
            yield Proposal(len(context.order), direction * (abs(context.gap) / fall), self.scales)
