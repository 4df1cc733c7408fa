"""Small classifiers on tokens for tests, trained once."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "language"))

from tiny import biased_rows, classifier

from fairij.method.search import Grid
from fairij.mitigator import FairIJ

FILTERS = [
    pytest.mark.filterwarnings("ignore::fairij.errors.FairIJWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fitted(
    model: Any, X: Any, y: Any, X_val: Any, y_val: Any, s_val: Any, **options: Any
) -> FairIJ:
    fair = FairIJ(
        model, search=Grid(points=4), verbose=False, **({"selection": "lowest_gap"} | options)
    )
    return fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=s_val)


def trained(model: Any, X: Any, y: Any, steps: int = 60, rate: float = 5e-3) -> Any:
    """A short training of what is trainable."""
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], rate)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(**X).logits, torch.as_tensor(y))
        loss.backward()
        optimiser.step()
    return model.eval()


@cache
def trained_classifier() -> Any:
    """A classifier trained on ``biased_rows(200, 0)``; tests that change it must copy it."""
    X, y, _ = biased_rows(200, 0)
    return trained(classifier(), X, y)
