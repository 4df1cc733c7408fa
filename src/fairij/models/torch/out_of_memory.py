"""Results of many batches in one block, and what is done where memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

from fairij.data.file_vectors import new_rows
from fairij.errors import InvalidInputError

OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError, RuntimeError)
T = TypeVar("T")


def is_out_of_memory(error: BaseException) -> bool:
    """On a CPU torch says so in words only."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)


def retried(work: Callable[[], T], with_less: Callable[[], bool]) -> T:
    """The work, begun again each time that memory runs out and ``with_less`` finds some to save."""
    while True:
        try:
            return work()
        except OUT_OF_MEMORY as error:
            if not is_out_of_memory(error):
                raise
            met = error.with_traceback(None)  # what the frames of the work held is free now
        if not with_less():
            raise met
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def joined(parts: Iterator[Tensor], rows: int, *, in_file: bool = False) -> Tensor:
    """The parts one after the other, each copied out and let go before the next is made.

    A list of small results would lie between the large blocks that each batch gives back, and the
    heap would grow by such a block a batch. ``in_file``: see `fairij.data.file_vectors`.
    """
    first = next(parts)
    whole = new_rows(first, rows, in_file=in_file)
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
