"""Matrix products of linear layers on a CPU, by the faster of torch's two libraries.

For float32, torch calls MKL, which uses AVX-512 on Intel's CPUs alone. oneDNN, which torch brings
for convolutions, uses it on every CPU that has it, and is up to twice as fast on those of other
makers that compute 512 bits at once (AMD's since Zen 5). Its sums differ by rounding. Where it is
missing or would not help, torch decides.
"""

from __future__ import annotations

from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

CPU = Path("/proc/cpuinfo")
MOST = 2**22  # numbers in a scratch that is kept
WORTH = 2**22  # multiplications; below, calling it costs more than it saves


class Scratch:
    """Room for what one product needs and no other keeps.

    A system hands out new memory page by page, which can take as long as filling it.
    """

    def __init__(self) -> None:
        self._room: Tensor | None = None

    def like(self, tensor: Tensor, *shape: int) -> Tensor:
        """An uninitialised tensor; it is used again by the next call."""
        size = prod(shape)
        if tensor.device.type != "cpu" or size > MOST:
            return tensor.new_empty(shape)
        if self._room is None or self._room.numel() < size or self._room.dtype != tensor.dtype:
            self._room = tensor.new_empty(size)
        return self._room[:size].view(shape)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, scratch: Scratch | None = None
) -> Tensor:
    """``x W^T + b``, without derivatives; in the scratch if there is one."""
    onednn = _onednn() if _pays() else None
    if onednn is None or not _suits(x, weight.shape[0]):
        if scratch is None:
            return F.linear(x, weight, bias)
        room = scratch.like(x, x.shape[0], weight.shape[0])
        if bias is None:
            return torch.mm(x, weight.T, out=room)
        return torch.addmm(bias, x, weight.T, out=room)
    found: Tensor = onednn(x, weight, bias, "none", [], "")
    return found


def gathered(left: Tensor, right: Tensor) -> Tensor:
    """``left^T right``, summed over rows."""
    onednn = _onednn() if _pays() else None
    if onednn is None or not _suits(right, left.shape[1]):
        return left.T @ right
    found: Tensor = onednn(left.T, right.T, None, "none", [], "")
    return found


def _suits(rows: Tensor, columns: int) -> bool:
    able = rows.device.type == "cpu" and rows.dtype == torch.float32 and rows.ndim == 2
    return able and rows.numel() * columns >= WORTH


@cache
def _pays() -> bool:
    """Whether oneDNN is faster: not beside AVX-512 in MKL, or in two halves (AMD's Zen 4)."""
    try:
        lines = CPU.read_text().splitlines()
    except OSError:  # another system
        return True
    about = {name.strip(): value.strip() for name, _, value in (n.partition(":") for n in lines)}
    maker, family = about.get("vendor_id"), about.get("cpu family")
    return maker != "GenuineIntel" and (maker, family) != ("AuthenticAMD", "25")


@cache
def _onednn() -> Any:
    """Its linear layer; None where it is missing or the CPU has no AVX-512."""
    if not torch.backends.mkldnn.is_available():
        return None
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return None
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)
