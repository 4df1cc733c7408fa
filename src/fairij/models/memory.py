"""Results of many batches in one block, and what running out of memory looks like."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fairij.errors import InvalidInputError

OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError, RuntimeError)


def is_out_of_memory(error: BaseException) -> bool:
    """On a CPU torch says so in words only."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)


def joined(parts: Iterator[Tensor], rows: int) -> Tensor:
    """The parts one after the other, each copied out and let go before the next is made.

    A list of small results would lie between the large blocks that each batch gives back, and the
    heap would grow by such a block a batch.
    """
    first = next(parts)
    whole = first.new_empty((rows, *first.shape[1:]))
    whole[: len(first)] = first
    place = len(first)
    del first
    for part in parts:
        whole[place : place + len(part)] = part
        place += len(part)
    if place != rows:  # the rest of the block was never written
        raise InvalidInputError(
            f"The model must return one row of outputs per data point: {rows} rows were given and "
            f"{place} came back."
        )
    return whole
