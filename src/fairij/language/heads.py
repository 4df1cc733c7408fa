"""The paper's two heads on the vectors of a frozen encoder."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

HIDDEN = (768, 128)  # units of the paper's non-linear head


def linear_head(n_inputs: int, *, seed: int = 0) -> nn.Module:
    """One linear layer with one output (the paper's LC)."""
    return _seeded(lambda: nn.Sequential(nn.Linear(n_inputs, 1)), seed)


def nonlinear_head(n_inputs: int, *, hidden: tuple[int, ...] = HIDDEN, seed: int = 0) -> nn.Module:
    """Hidden layers with ReLU and one output (the paper's NC)."""

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        before = n_inputs
        for size in hidden:
            layers += [nn.Linear(before, size), nn.ReLU()]
            before = size
        return nn.Sequential(*layers, nn.Linear(before, 1))

    return _seeded(make, seed)


def _seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


HEADS = {"LC": linear_head, "NC": nonlinear_head}
