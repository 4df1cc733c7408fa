"""Models that are linear in their parameters: the Jacobian is the same everywhere.

``z(theta) = z(theta_hat) + J (theta - theta_hat)`` is exact. A family provides ``J`` as a
`Jacobian`: the features of a linear model, or the leaf of each tree that a row falls into.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fairij.data.row_vectors import blocks
from fairij.models.base import (
    EvaluatorDefaults,
    JacobianDefaults,
    LinearizationDefaults,
    Middle,
    Some,
)


class Jacobian(Protocol):
    """A constant ``J``, never formed as a dense ``(N, D)`` matrix."""

    def times(self, r: Tensor) -> Tensor:
        """``J r``, shape ``(N,)`` or ``(N, C)``."""

    def transposed_times(self, u: Tensor) -> Tensor:
        """``J^T u``, shape ``(D,)``; ``u`` is shaped like the outputs."""

    def rows(self, index: Tensor) -> Tensor:
        """Some rows, dense, shape ``(B, C, D)``."""

    def take(self, index: Tensor) -> Jacobian:
        """The Jacobian of some rows."""

    # As in `Linearization`. `JacobianDefaults` has an answer for each of these.

    def gram(self, middle: Tensor) -> Tensor | None: ...

    def diagonal(self, middle: Callable[[Some], Tensor]) -> Tensor | None: ...

    def row_squares(self) -> Tensor | None: ...

    def held_bytes(self) -> int | None: ...


@dataclass(frozen=True)
class ConstantLinearization(LinearizationDefaults, EvaluatorDefaults):
    """`Linearization` and `Evaluator` of a model that is linear in its parameters."""

    outputs: Tensor
    jacobian: Jacobian
    mode = "constant"

    def jvp(self, direction: Tensor) -> Tensor:
        return self.jacobian.times(direction)

    def vjp(self, weights: Tensor) -> Tensor:
        return self.jacobian.transposed_times(weights)

    def sandwich(self, direction: Tensor, middle: Middle) -> Tensor:
        moved = self.jacobian.times(direction)
        return self.jacobian.transposed_times(middle(moved, slice(0, len(moved))))

    def rows(self, index: Tensor) -> Tensor:
        return self.jacobian.rows(index)

    def gram(self, middle: Tensor) -> Tensor | None:
        return self.jacobian.gram(middle)

    def diagonal(self, middle: Callable[[Some], Tensor]) -> Tensor | None:
        return self.jacobian.diagonal(middle)

    def row_squares(self) -> Tensor | None:
        return self.jacobian.row_squares()

    def held_bytes(self) -> int | None:
        return self.jacobian.held_bytes()

    def second_order(self, weights: Tensor, direction: Tensor) -> Tensor:
        return torch.zeros_like(direction)

    def restrict(self, index: Tensor, *, keep: bool = False) -> ConstantLinearization:
        return ConstantLinearization(self.outputs[index], self.jacobian.take(index))

    def moved(self, by: Tensor) -> ConstantLinearization:
        return ConstantLinearization(self.outputs + self.jacobian.times(by), self.jacobian)

    def with_outputs(self, outputs: Tensor) -> ConstantLinearization:
        return ConstantLinearization(outputs, self.jacobian)

    def along(self, direction: Tensor, scales: Tensor) -> Tensor:
        moved = self.jacobian.times(direction)
        steps = scales.to(moved).view(-1, *[1] * moved.ndim)
        return self.outputs + steps * moved


@dataclass(frozen=True)
class FeatureJacobian(JacobianDefaults):
    """``J r = X R^T + b`` with ``r = (R, b)``; ``R`` is ``(C, F)``, ``b`` is ``(C,)`` or absent."""

    X: Any  # (N, F), a tensor or a scipy CSR matrix
    n_outputs: int
    intercept: bool

    def split(self, r: Tensor) -> tuple[Tensor, Tensor]:
        """``R`` ``(C, F)`` and ``b`` ``(C,)``, which is zero without an intercept."""
        size = self.n_outputs * self.X.shape[1]
        b = r[size:] if self.intercept else r.new_zeros(self.n_outputs)
        return r[:size].view(self.n_outputs, -1), b

    def times(self, r: Tensor) -> Tensor:
        R, b = self.split(r)
        z = _product(self.X, R.T) + b  # (N, C)
        return z[:, 0] if self.n_outputs == 1 else z

    def transposed_times(self, u: Tensor) -> Tensor:
        u = u.view(len(u), self.n_outputs)
        R = _product(self.X.T, u).T.reshape(-1)
        return torch.cat([R, u.sum(0)]) if self.intercept else R

    def rows(self, index: Tensor) -> Tensor:
        features = self.X[index.numpy()]
        if not isinstance(features, Tensor):
            features = torch.from_numpy(features.toarray())
        unit = torch.eye(self.n_outputs, dtype=features.dtype)
        rows = torch.einsum("bf,ce->bcef", features, unit).flatten(2)  # (B, C, C F)
        if not self.intercept:
            return rows
        return torch.cat([rows, unit.expand(len(index), -1, -1)], -1)

    def diagonal(self, middle: Callable[[Some], Tensor]) -> Tensor | None:
        """``sum_n m_n[c, c] x_nf^2``."""
        n, features = self.X.shape
        total = torch.zeros(self.n_outputs, features + 1, dtype=torch.float64)
        for block in blocks(n):
            some = slice(block.start, min(block.stop, n))
            m = middle(some).diagonal(dim1=1, dim2=2).contiguous()  # (B, C)
            X = self.X[some]
            squares = X.double().square() if isinstance(X, Tensor) else X.astype(float).power(2)
            total[:, :features] += _product(squares.T, m).T
            total[:, features] += m.sum(0)
        R = total[:, :features].reshape(-1)
        return torch.cat([R, total[:, features]]) if self.intercept else R

    def take(self, index: Tensor) -> FeatureJacobian:
        return FeatureJacobian(self.X[index.numpy()], self.n_outputs, self.intercept)

    def held_bytes(self) -> int:
        if isinstance(self.X, Tensor):
            return self.X.numel() * self.X.element_size()
        return 2 * int(self.X.data.nbytes)  # the values, and about as much for their places


def _product(X: Any, B: Tensor) -> Tensor:
    if isinstance(X, Tensor):
        return X @ B
    return torch.from_numpy(np.ascontiguousarray(X @ B.numpy()))
