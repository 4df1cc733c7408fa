"""Rows made on the fly, more than would fit in memory, and models of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from fairij.data.sources import Source
from fairij.models.torch.training import mlp

FEATURES, BLOCK, VALIDATION = 100, 2**16, 20_000


class Generated(Source):
    """Rows computed from their number: a fixed block that is changed each time it repeats."""

    def __init__(self, rows: int, first: int = 0) -> None:
        self.shape, self._first = (rows, FEATURES), first
        rng = np.random.default_rng(0)
        self._base = rng.standard_normal((BLOCK, FEATURES), np.float32)
        self._weights = rng.standard_normal(FEATURES) / math.sqrt(FEATURES)

    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        stop, place = len(self) if stop is None else stop, start
        while place < stop:
            number, inside = divmod(self._first + place, BLOCK)
            last = min(place + size, stop, place + BLOCK - inside)
            rows = self._base[inside : inside + last - place]
            # a row repeats after a block, so its columns are shifted: no two rows are equal
            yield np.roll(rows, number % FEATURES, 1) + np.float32(1e-3 * math.sin(number))
            place = last

    def labels(self) -> np.ndarray:
        """Return labels (N,) that depend on a group, which the first column tells."""
        found = np.empty(len(self), np.int8)
        place = 0
        for table in self.chunks(BLOCK):
            noise = np.random.default_rng([1, self._first + place]).logistic(size=len(table))
            group = table[:, 0] > 0
            found[place : place + len(table)] = table @ self._weights * 3 + group + noise > 0.5
            place += len(table)
        return found


def validation() -> dict[str, Any]:
    """Return validation rows as keyword arguments of `FairIJ.fit`."""
    held = Generated(VALIDATION, first=2 * 10**9)
    X = np.concatenate(list(held.chunks(BLOCK)))
    groups = (X[:, 0] > 0).astype(int)
    return {"X_val": X, "y_val": held.labels(), "sensitive_features_val": groups}


def model_of(kind: str) -> Any:
    """Return a model fitted to other rows than those that are scored."""
    source = Generated(50_000, first=10**9)
    X, y = np.concatenate(list(source.chunks(BLOCK))), source.labels()
    if kind == "linear":
        return LogisticRegression().fit(X, y)
    torch.manual_seed(0)
    module = mlp(FEATURES, 32)
    optimiser = torch.optim.Adam(module.parameters(), 2e-3)
    rows, labels = torch.from_numpy(X), torch.from_numpy(y).float()
    for _ in range(3):
        for batch in torch.randperm(len(rows)).split(256):
            optimiser.zero_grad()
            z = module(rows[batch])[:, 0]
            nn.functional.binary_cross_entropy_with_logits(z, labels[batch]).backward()
            optimiser.step()
    return module
