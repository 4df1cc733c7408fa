"""HGR: the maximal correlation of score and group as a penalty (Mary et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fairij.baselines.base import TradeOff
from fairij.baselines.draws import Draw
from fairij.baselines.in_processing import InProcessing

# The grid of Mary et al., in standard deviations from the mean. A grid up to the most extreme
# scores sees single rows there as dependence: on Adult, strength 5 then gave a constant network.
SPREAD = 2.5


@dataclass(frozen=True)
class HGR(InProcessing):
    """``sum_y chi^2(f, s | y)``, ``f = sigmoid(z)``; one term for parity.

    ``chi^2 = sum_{c,g} h(c, g)^2 / (h(c) h(g)) - 1`` is an upper bound on the square of the
    Hirschfeld-Gebelein-Renyi correlation, with equality for two groups. The joint density h is
    smoothed over the score by a Gaussian kernel of Silverman's width, on a grid of standardised
    scores. It is exact in the group (Mary et al. smooth both, as their groups may be
    continuous). Draws have equally many rows per group, which are weighted by the true shares.

    Parameters
    ----------
    bins : int, default=50
        Points of the grid. The other parameters are those of `InProcessing`.
    """

    bins: int = 50

    name: ClassVar[str] = "hgr"
    trade_off: ClassVar[TradeOff | None] = TradeOff(
        "strength", (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
    )

    def penalty(self, module: nn.Module, draw: Draw) -> Tensor:
        return torch.stack(
            [
                chi_square(groups, share, bins=self.bins)
                for groups, share in zip(draw.scores(module), draw.shares, strict=True)
            ]
        ).sum()


def chi_square(scores: list[Tensor], shares: Tensor, *, bins: int = 50) -> Tensor:
    """The relaxed dependence of scores (one vector per group) on the group; 0 if independent."""
    joint = joint_density(scores, shares, bins=bins)
    return (joint**2 / (joint.sum(0, keepdim=True) * joint.sum(1, keepdim=True))).sum() - 1


def joint_density(scores: list[Tensor], shares: Tensor, *, bins: int = 50) -> Tensor:
    """``P(score near c, group = g)`` (bins, G), which sums to one."""
    f, shares = torch.cat(scores), shares.to(scores[0])
    sizes = torch.tensor([len(of_group) for of_group in scores], device=f.device)
    code = torch.repeat_interleave(torch.arange(len(scores), device=f.device), sizes)
    weight = f.new_zeros(len(f), len(scores))  # of each row within each group, times its share
    weight[torch.arange(len(f), device=f.device), code] = (shares / sizes)[code]
    of_row = weight.sum(1)
    mean = of_row @ f
    scale = (of_row @ (f - mean) ** 2 + 1e-12).sqrt()
    width = (len(f) * 3 / 4) ** (-1 / 5)  # Silverman's, of one standardised variable
    centres = torch.linspace(-SPREAD, SPREAD, bins).to(f)
    distance = (centres[:, None] - ((f - mean) / scale)[None, :]) / width  # (bins, rows)
    density = torch.exp(-(distance**2) / 2) @ weight / (width * math.sqrt(2 * math.pi))
    joint = density + 1e-8 * shares  # so that no grid point is empty
    return joint / joint.sum()
