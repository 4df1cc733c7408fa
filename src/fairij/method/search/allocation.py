"""Which gaps to close first, where only their sum is asked for.

To close one gap of equalized odds often opens the other. The sum of both then falls most cheaply if
one of them is closed first. Along the curvature, gaps ``u`` cost about
``(u - c)^T Q (u - c) / 2``, with ``c`` where they would go if only the loss counted. `cheapest`
finds the gaps of the least cost whose absolute values sum to at most a total.
"""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 300  # at most, of an accelerated gradient method in as many dimensions as there are gaps
CLOSE = 1e-9  # a step of so little, beside the gaps, is none


def cheapest(centre: Tensor, cost: Tensor, total: float) -> Tensor:
    """``argmin_u (u - centre)^T cost (u - centre)`` with ``sum |u| <= total``, ``(P,)``."""
    found = ahead = within(centre, total)
    slope, before = float(torch.linalg.eigvalsh(cost)[-1]), 1.0
    for _ in range(STEPS):
        there = within(ahead - cost @ (ahead - centre) / slope, total)
        if bool((there - ahead).abs().max() <= CLOSE * centre.abs().max()):
            return there  # where such a step leads nowhere is the least cost
        momentum = (1 + (1 + 4 * before**2) ** 0.5) / 2
        ahead = there + (before - 1) / momentum * (there - found)
        found, before = there, momentum
    return found


def within(v: Tensor, total: float) -> Tensor:
    """The nearest vector whose absolute values sum to at most ``total``."""
    sizes = v.abs()
    if float(sizes.sum()) <= total:
        return v
    falling = sizes.sort(descending=True).values
    over = (falling.cumsum(0) - total) / torch.arange(1, len(v) + 1).to(v)
    kept = falling > over
    kept[0] = total > 0  # also where rounding hides so small a total
    least = over[int(kept.nonzero()[-1])] if total > 0 else falling[0]
    return v.sign() * (sizes - least).clamp_min(0)
