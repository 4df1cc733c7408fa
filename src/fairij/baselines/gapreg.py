"""GapReg: the gap of mean scores as a penalty (Chuang & Mroueh 2021, equation 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fairij.baselines.base import TradeOff
from fairij.baselines.draws import Draw
from fairij.baselines.in_processing import InProcessing


@dataclass(frozen=True)
class GapReg(InProcessing):
    """``sum_y max_g E[f | g, y] - min_g E[f | g, y]``, ``f = sigmoid(z)``; one term for parity."""

    name: ClassVar[str] = "gapreg"
    trade_off: ClassVar[TradeOff | None] = TradeOff(
        "strength", (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    )

    def penalty(self, module: nn.Module, draw: Draw) -> Tensor:
        means = [torch.stack([f.mean() for f in groups]) for groups in draw.scores(module)]
        return torch.stack([mean.max() - mean.min() for mean in means]).sum()
