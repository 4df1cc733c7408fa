"""What to do if memory runs out: start again with smaller batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

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
