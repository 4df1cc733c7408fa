from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from torch import nn

from fairij.datasets import Split
from fairij.models.torch.training import train_mlp


@dataclass(frozen=True)
class Trial:
    model: nn.Module
    train: Split
    validation: Split
    test: Split


def make_split(n: int, seed: int, groups: int = 2) -> Split:
    """Rows whose group leaks into the features and sways the label."""
    rng = np.random.default_rng(seed)
    s = rng.choice(groups, n, p=[0.35, 0.65] if groups == 2 else None)
    X = rng.normal(size=(n, 4))
    X[:, 0] += 1.2 * s
    X[:, 3] += 0.8 * s
    y = X @ [1.2, 1.0, -0.7, 0.0] - 0.8 + rng.logistic(size=n) > 0
    return Split(X.astype(np.float32), y.astype(np.float32), s.astype(np.int64))


def make_trial(n: int, groups: int = 2) -> Trial:
    train, validation, test = (make_split(n, seed, groups) for seed in (0, 1, 2))
    model = train_mlp(
        train.X,
        train.y,
        validation.X,
        validation.y,
        hidden=8,
        epochs=20,
        batch_size=64,
        learning_rate=1e-2,
    )
    return Trial(model, train, validation, test)


@pytest.fixture(scope="session")
def trial() -> Trial:
    return make_trial(1200)


@pytest.fixture(scope="session")
def three_groups() -> Trial:
    return make_trial(900, groups=3)
