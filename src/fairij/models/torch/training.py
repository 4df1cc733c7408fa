"""The paper's tabular model and how it is trained: a plain loop over small batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional as F


def mlp(inputs: int, hidden: int = 100, outputs: int = 1) -> nn.Sequential:
    """One hidden layer of SELU units."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.SELU(), nn.Linear(hidden, outputs))


def train_mlp(
    X: ArrayLike,
    y: ArrayLike,
    X_val: ArrayLike,
    y_val: ArrayLike,
    *,
    hidden: int = 100,
    epochs: int = 100,
    batch_size: int = 256,
    learning_rate: float = 1e-4,
    seed: int = 0,
    on_epoch: Callable[[int, int], None] | None = None,
) -> nn.Sequential:
    """Adam on binary cross-entropy, keeping the epoch with the best validation accuracy.

    The defaults are the paper's: 100 SELU units, rate 1e-4, batches of 256, up to 100 epochs.
    """
    features, labels, features_val, labels_val = (
        torch.as_tensor(np.asarray(part), dtype=torch.float32) for part in (X, y, X_val, y_val)
    )
    with torch.random.fork_rng(devices=[]), _one_thread():
        torch.manual_seed(seed)
        module = mlp(features.shape[1], hidden)
        optimiser = torch.optim.Adam(module.parameters(), learning_rate)
        best, best_state = -1.0, module.state_dict()
        for epoch in range(epochs):
            for batch in torch.randperm(len(features)).split(batch_size):
                optimiser.zero_grad()
                F.binary_cross_entropy_with_logits(
                    module(features[batch])[:, 0], labels[batch]
                ).backward()
                optimiser.step()
            accuracy = _accuracy(module, features_val, labels_val)
            if accuracy > best:
                best, best_state = accuracy, copy.deepcopy(module.state_dict())
            if on_epoch is not None:
                on_epoch(epoch + 1, epochs)
    module.load_state_dict(best_state)
    return module.eval()


def _accuracy(module: nn.Module, X: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float(((module(X)[:, 0] > 0) == (y > 0.5)).float().mean())


@contextmanager
def _one_thread() -> Iterator[None]:
    """Batches this small gain nothing from more threads, and lose much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
