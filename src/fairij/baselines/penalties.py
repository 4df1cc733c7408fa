"""Three penalties: the gap of mean scores, its slope along paths, and a maximal correlation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fairij.baselines.base import Predictor, TradeOff, count_groups
from fairij.baselines.in_processing import Draw, InProcessing
from fairij.datasets.splits import Split
from fairij.errors import InvalidInputError
from fairij.models.torch.training import logits

STRENGTHS = TradeOff("strength", (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0))
# The grid of Mary et al., in standard deviations from the mean. A grid up to the most extreme
# scores sees single rows there as dependence: on Adult, strength 5 then gave a constant network.
SPREAD = 2.5


@dataclass(frozen=True)
class GapReg(InProcessing):
    """The gap of mean scores (Chuang & Mroueh 2021, equation 1).

    ``sum_y max_g E[f | g, y] - min_g E[f | g, y]``, ``f = sigmoid(z)``; one term for parity.

    Examples
    --------
    >>> from fairij.baselines import GapReg, Recipe
    >>> method = GapReg(strength=0.5, recipe=Recipe(epochs=1))
    >>> predictor = method.fit(net, splits.train, splits.validation)
    >>> predictor.needs_group
    False
    """

    name: ClassVar[str] = "gapreg"
    trade_off: ClassVar[TradeOff | None] = STRENGTHS

    def penalty(self, module: nn.Module, draw: Draw) -> Tensor:
        means = [torch.stack([f.mean() for f in groups]) for groups in draw.scores(module)]
        return torch.stack([mean.max() - mean.min() for mean in means]).sum()


@dataclass(frozen=True)
class FairMixup(InProcessing):
    """The slope of scores along paths between two groups (Chuang & Mroueh 2021).

    ``sum_y |E <grad_x f(x_t), x_1 - x_0>|`` at ``x_t = t x_0 + (1 - t) x_1``, t uniform.

    Row x_0 is of one group and x_1 of the other (with the same true label, for equalized odds),
    paired at random. One t is drawn per term and step. Without the absolute value, the mean over
    t is the gap of mean scores: the penalty smooths the whole path, not only its ends.

    Examples
    --------
    >>> from fairij.baselines import FairMixup, Recipe
    >>> method = FairMixup(strength=0.5, recipe=Recipe(epochs=1))
    >>> predictor = method.fit(net, splits.train, splits.validation)
    >>> predictor.needs_group
    False
    """

    name: ClassVar[str] = "fairmixup"
    trade_off: ClassVar[TradeOff | None] = STRENGTHS

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


@dataclass(frozen=True)
class HGR(InProcessing):
    """The maximal correlation of score and group (Mary et al. 2019).

    ``sum_y chi^2(f, s | y)``, ``f = sigmoid(z)``; one term for parity.

    ``chi^2 = sum_{c,g} h(c, g)^2 / (h(c) h(g)) - 1`` is an upper bound on the square of the
    Hirschfeld-Gebelein-Renyi correlation, with equality for two groups. The joint density h is
    smoothed over the score by a Gaussian kernel of Silverman's width, on a grid of standardised
    scores. It is exact in the group (Mary et al. smooth both, as their groups may be
    continuous). Draws have equally many rows per group, which are weighted by the true shares.

    Parameters
    ----------
    bins : int, default=50
        Points of the grid. The other parameters are those of `InProcessing`.

    Examples
    --------
    >>> from fairij.baselines import HGR, Recipe
    >>> method = HGR(strength=0.5, recipe=Recipe(epochs=1))
    >>> predictor = method.fit(net, splits.train, splits.validation)
    >>> predictor.needs_group
    False
    """

    bins: int = 50

    name: ClassVar[str] = "hgr"
    trade_off: ClassVar[TradeOff | None] = TradeOff(
        "strength", (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
    )

    def penalty(self, module: nn.Module, draw: Draw) -> Tensor:
        strata = zip(draw.scores(module), draw.shares, strict=True)
        terms = [chi_square(groups, shares, bins=self.bins) for groups, shares in strata]
        return torch.stack(terms).sum()


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
