"""Batches of rows: tensors, tuples or dicts of them; smaller ones if memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from fairij.data.rows import parts_of

OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError, RuntimeError)
T = TypeVar("T")


def mapped(function: Callable[[Any], Any], X: Any) -> Any:
    """Apply a function to every tensor."""
    if isinstance(X, Mapping):
        return {name: function(part) for name, part in X.items()}
    return tuple(function(part) for part in X) if isinstance(X, tuple) else function(X)


def row_shapes(X: Any) -> Any:
    return tuple(part.shape[1:] for part in parts_of(X).values() if isinstance(part, Tensor))


def sliced(X: Any, start: int, stop: int) -> Any:
    return mapped(lambda part: part[start:stop], X)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def flatten(pieces: Iterable[Tensor]) -> Tensor:
    return torch.cat([piece.detach().reshape(-1) for piece in pieces])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; on a CPU only torch's message tells."""
    known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return known or "can't allocate memory" in str(error) or "not enough memory" in str(error)


def retried(work: Callable[[], T], with_less: Callable[[], bool]) -> T:
    """Do the work; each time memory runs out, repeat it if ``with_less`` can free some."""
    while True:
        try:
            return work()
        except OUT_OF_MEMORY as error:
            if not is_out_of_memory(error):
                raise
            met = error.with_traceback(None)  # frees what the frames of the work hold
        if not with_less():
            raise met
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
