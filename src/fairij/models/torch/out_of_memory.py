"""What to do if memory runs out: start again with smaller batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError, RuntimeError)
T = TypeVar("T")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; on a CPU only torch's message tells."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)


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
