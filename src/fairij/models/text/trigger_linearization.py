"""Trigger tokens linearised, with the whole Jacobian kept.

There are few parameters, so the Jacobian of every row fits in memory, and a product with it costs
little.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairij.data.rows import take_rows
from fairij.models.constant import ConstantLinearization, JacobianDefaults
from fairij.models.text.tokens import Tokens

if TYPE_CHECKING:
    from fairij.models.text.trigger_editable import TriggerEditable


@dataclass(frozen=True)
class DenseJacobian(JacobianDefaults):
    """``J`` as one array, ``(N, C, D)``."""

    array: Tensor
    single: bool  # outputs are (N,), not (N, 1)

    def times(self, r: Tensor) -> Tensor:
        moved = self.array @ r.to(self.array)
        return moved[:, 0] if self.single else moved

    def transposed_times(self, u: Tensor) -> Tensor:
        return u.reshape(-1).to(self.array) @ self.array.flatten(0, 1)

    def rows(self, index: Tensor) -> Tensor:
        return self.array[index]

    def row_squares(self) -> Tensor:
        return torch.linalg.vector_norm(self.array, dim=(1, 2)) ** 2

    def take(self, index: Tensor) -> DenseJacobian:
        return DenseJacobian(self.array[index], self.single)

    def held_bytes(self) -> int:
        return self.array.numel() * self.array.element_size()


@dataclass(frozen=True)
class TriggerLinearization(ConstantLinearization):
    """Products with a kept Jacobian; ``z`` is not linear, so other terms run the model again."""

    model: TriggerEditable = field(repr=False)
    tokens: Tokens = field(repr=False)
    mode = "per_row"

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return self.model.by_graphs(self.tokens).second_order(weights, direction)

    def moved(self, by: Tensor) -> TriggerLinearization:
        return self.model.at(by).per_row(self.tokens)  # J changes with theta

    def restrict(self, index: Tensor, *, keep: bool = False) -> TriggerLinearization:
        tokens = take_rows(self.tokens, index)
        return TriggerLinearization(
            self.outputs[index], self.jacobian.take(index), self.model, tokens
        )
