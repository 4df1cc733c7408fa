"""FairMixup: the slope of scores along paths between groups (Chuang & Mroueh 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fairij.baselines.base import Predictor, TradeOff, count_groups
from fairij.baselines.draws import Draw
from fairij.baselines.in_processing import InProcessing
from fairij.datasets.splits import Split
from fairij.errors import InvalidInputError
from fairij.models.torch.training import logits


@dataclass(frozen=True)
class FairMixup(InProcessing):
    """``sum_y |E <grad_x f(x_t), x_1 - x_0>|`` at ``x_t = t x_0 + (1 - t) x_1``, t uniform.

    Row x_0 is of one group and x_1 of the other (with the same true label, for equalized odds),
    paired at random. One t is drawn per term and step. Without the absolute value, the mean over
    t is the gap of mean scores: the penalty smooths the whole path, not only its ends. It takes
    two groups.
    """

    name: ClassVar[str] = "fairmixup"
    trade_off: ClassVar[TradeOff | None] = TradeOff(
        "strength", (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    )

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        if (n_groups := count_groups(train, validation)) != 2:
            raise InvalidInputError(f"`s` must hold two groups for FairMixup, got {n_groups}.")
        return super().fit(model, train, validation)

    def penalty(self, module: nn.Module, draw: Draw) -> Tensor:
        slopes = []
        for first, second in draw.strata:
            n = min(len(first), len(second))  # equal in training, but not on whole validation sets
            t = torch.rand((), generator=draw.generator)
            slopes.append(path_slope(module, first[:n], second[:n], t).mean().abs())
        return torch.stack(slopes).sum()


def path_slope(module: nn.Module, first: Tensor, second: Tensor, t: Tensor) -> Tensor:
    """``-d/dt f(t x_0 + (1 - t) x_1)`` of each pair (n,), differentiable in the parameters."""
    mixed = (t * first + (1 - t) * second).requires_grad_()
    with torch.enable_grad():
        total = torch.sigmoid(logits(module, mixed)).sum()
        (gradient,) = torch.autograd.grad(total, mixed, create_graph=True)
    return (gradient * (second - first)).sum(1)
