"""The paper's two heads on a frozen encoder's vector."""

from __future__ import annotations

import torch
from torch import nn

HIDDEN = (768, 128)  # of the non-linear head, the paper's


def linear_head(n_inputs: int, *, seed: int = 0) -> nn.Module:
    """LC: one linear layer, one output."""
    return _seeded(lambda: nn.Sequential(nn.Linear(n_inputs, 1)), seed)


def nonlinear_head(n_inputs: int, *, hidden: tuple[int, ...] = HIDDEN, seed: int = 0) -> nn.Module:
    """NC: two hidden layers with ReLU, one output."""

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        before = n_inputs
        for size in hidden:
            layers += [nn.Linear(before, size), nn.ReLU()]
            before = size
        return nn.Sequential(*layers, nn.Linear(before, 1))

    return _seeded(make, seed)


def _seeded(make, seed: int) -> nn.Module:  # type: ignore[no-untyped-def]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


HEADS = {"LC": linear_head, "NC": nonlinear_head}
