"""The paper's two heads on the vectors of a frozen encoder."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

HIDDEN = (768, 128)  # units of the paper's non-linear head


def linear_head(n_inputs: int, *, seed: int = 0) -> nn.Module:
    """One linear layer with one output (the paper's LC)."""
    return nonlinear_head(n_inputs, hidden=(), seed=seed)


def nonlinear_head(n_inputs: int, *, hidden: tuple[int, ...] = HIDDEN, seed: int = 0) -> nn.Module:
    """Hidden layers with ReLU and one output (the paper's NC)."""
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for before, size in pairwise((n_inputs, *hidden)):
            layers += [nn.Linear(before, size), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear((n_inputs, *hidden)[-1], 1))


HEADS = {"LC": linear_head, "NC": nonlinear_head}
