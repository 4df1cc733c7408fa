"""How many processes work together, and which of them this is."""

from __future__ import annotations

import torch.distributed as dist


def processes() -> int:
    """The number of processes that `torchrun` started and that have joined; else 1."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if processes() > 1 else 0
