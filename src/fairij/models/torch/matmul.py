"""Matrix products of linear layers on a CPU, by the faster of torch's two libraries.

For float32, torch calls MKL, which uses AVX-512 on Intel's CPUs alone. oneDNN, which torch brings
for convolutions, uses it on every CPU that has it, and is up to twice as fast on those of other
makers. Its sums differ by rounding. Where it is missing or would not help, torch decides.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

WORTH = 2**22  # multiplications; below, calling it costs more than it saves


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x W^T + b``, without derivatives."""
    onednn = _onednn()
    if onednn is None or not _suits(x, len(weight)):
        return F.linear(x, weight, bias)
    found: Tensor = onednn(x, weight, bias, "none", [], "")
    return found


def gathered(left: Tensor, right: Tensor) -> Tensor:
    """``left^T right``, summed over rows."""
    onednn = _onednn()
    if onednn is None or not _suits(right, left.shape[1]):
        return left.T @ right
    found: Tensor = onednn(left.T, right.T, None, "none", [], "")
    return found


def _suits(rows: Tensor, columns: int) -> bool:
    able = rows.device.type == "cpu" and rows.dtype == torch.float32 and rows.ndim == 2
    return able and rows.numel() * columns >= WORTH


@cache
def _onednn() -> Any:
    """Its linear layer; None where it is missing or the CPU has no AVX-512."""
    if not torch.backends.mkldnn.is_available():
        return None
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return None
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)
