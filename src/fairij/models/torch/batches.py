"""Batches of rows for torch: a tensor, or a tuple or dict of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def mapped(function: Any, X: Any) -> Any:
    """Apply a function to every tensor."""
    if isinstance(X, Mapping):
        return {name: function(part) for name, part in X.items()}
    return tuple(function(part) for part in X) if isinstance(X, tuple) else function(X)


def parts_of(X: Any) -> list[Tensor]:
    return list(X.values()) if isinstance(X, Mapping) else list(X) if isinstance(X, tuple) else [X]


def row_shapes(X: Any) -> Any:
    return tuple(part.shape[1:] for part in parts_of(X) if isinstance(part, Tensor))


def sliced(X: Any, start: int, stop: int) -> Any:
    return mapped(lambda part: part[start:stop], X)
