"""The Jacobian of a linear model: its features, dense or sparse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairij.models.constant import JacobianDefaults


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
