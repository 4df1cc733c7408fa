"""The loss that the model was trained on, as a weighted sum over rows.

``L(theta) = sum_n w_n l(z_n, y_n) / W + theta^T diag(l2) theta / 2``, ``W = sum_n w_n``. Dropping a
row sets its ``w_n`` to zero and leaves ``W`` alone, as in the paper's weighted risk (equation 2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.row_vectors import blocks, by_blocks
from fairij.models.base import Linearization
from fairij.models.losses import Loss


@dataclass(frozen=True)
class Objective:
    """The training loss at the fitted parameters, and its derivatives through the outputs."""

    model: Linearization
    y: Tensor  # (N,)
    loss: Loss
    weights: Tensor  # (N,), sums to one
    theta: Tensor  # (D,)
    l2: Tensor  # () or (D,): weight decay

    @cached_property
    def slope(self) -> Tensor:
        """``w_n l'(z_n) / W``, shaped like the outputs: the whole data term of ``g_n``."""
        return by_blocks(self.slope_of, self.model.outputs)

    def slope_of(self, rows: slice) -> Tensor:
        """The slopes of some rows, not kept."""
        z, y, w = self.model.outputs[rows], self.y[rows], self.weights[rows]
        return scale_rows(self.loss.slope(z, y), w)

    @property
    def value(self) -> float:
        z, y, w = self.model.outputs, self.y, self.weights
        data = sum((w[b] * self.loss.value(z[b], y[b])).sum() for b in blocks(len(z)))
        return float(data + (self.l2 * self.theta**2).sum() / 2)

    @cached_property
    def gradient(self) -> Tensor:
        """``grad L``, shape ``(D,)``; zero at a stationary point."""
        return self.model.vjp(self.slope) + self.l2 * self.theta

    def restrict(self, index: Tensor) -> Objective:
        """The loss of some rows alone, rescaled to stand for all of them."""
        weights = self.weights[index] * (len(self.weights) / len(index))
        return replace(self, model=self.model.restrict(index), y=self.y[index], weights=weights)

    def moved(self, by: Tensor) -> Objective:
        """The same loss at ``theta + by``."""
        return replace(self, model=self.model.moved(by), theta=self.theta + by)


def scale_rows(values: Tensor, weights: Tensor) -> Tensor:
    """``weights[n] * values[n]`` for values of shape ``(N,)`` or ``(N, C)``."""
    return values * weights.view(-1, *[1] * (values.ndim - 1))


def as_tensor(weight: NDArray[np.float64] | None) -> Tensor | None:
    """Weights of rows as a tensor, if there are any."""
    return None if weight is None else torch.as_tensor(weight)


def normalised_weights(sample_weight: Tensor | None, rows: int, like: Tensor) -> Tensor:
    """Sample weights that sum to one; equal weights of any size are as none."""
    if sample_weight is None or bool(sample_weight.min() == sample_weight.max()):
        return torch.full((1,), 1 / rows, dtype=like.dtype, device=like.device).expand(rows)
    # by a power of two, which changes no digit: neither the sum nor float32 may overflow
    power = -torch.frexp(sample_weight.max()).exponent
    weights = torch.ldexp(torch.ldexp(sample_weight, power // 2), power - power // 2).to(like)
    return weights / weights.sum()
