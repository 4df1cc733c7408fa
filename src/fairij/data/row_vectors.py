"""Tensors with one entry per row, made and read block by block, in memory or in a file.

A file has no name, and is deleted with its tensor, even if the process is killed. Pages that were
touched count as memory of this process until `release` gives them back.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import prod
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from fairij.errors import InvalidInputError

BLOCK_ROWS = 2**16
SMALLEST = 2**20  # bytes; smaller vectors stay in memory
CAN_MAP = hasattr(os, "posix_fallocate") and hasattr(mmap, "MADV_DONTNEED")
_maps: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()  # by the address of the tensor


def new_rows(like: Tensor, rows: int, *, in_file: bool) -> Tensor:
    """An empty tensor of ``rows`` rows like those of ``like``; in a file if asked and possible."""
    shape = (rows, *like.shape[1:])
    size = prod(shape) * like.element_size()
    if in_file and size >= SMALLEST and like.device.type == "cpu" and CAN_MAP:
        # an error says that there is no folder for temporary files, or no space in it
        with suppress(OSError), tempfile.TemporaryFile() as file:
            # reserve the space now: if the disk fills up later, a write would kill the process
            os.posix_fallocate(file.fileno(), 0, size)
            pages = mmap.mmap(file.fileno(), size)
            tensor = torch.frombuffer(pages, dtype=like.dtype)
            _maps[tensor.untyped_storage().data_ptr()] = pages
            return tensor.view(shape)
    return like.new_empty(shape)


def lies_in_file(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.untyped_storage().data_ptr() in _maps


def release() -> None:
    """Give back the memory of all tensors in files; the system keeps what was written."""
    for pages in list(_maps.values()):
        pages.madvise(mmap.MADV_DONTNEED)


def blocks(rows: int) -> Iterator[slice]:
    """Yield row slices of bounded size."""
    for start in range(0, rows, BLOCK_ROWS):
        yield slice(start, start + BLOCK_ROWS)
        release()


def by_blocks(function: Callable[[slice], Tensor], like: Tensor) -> Tensor:
    """Apply a function block by block; the result is in a file if ``like`` is."""
    in_file = lies_in_file(like)
    if len(like) <= BLOCK_ROWS and not in_file:
        return function(slice(0, len(like)))
    return joined((function(some) for some in blocks(len(like))), len(like), in_file=in_file)


def joined(parts: Iterator[Tensor], rows: int, *, in_file: bool = False) -> Tensor:
    """The parts one after the other; each is freed before the next: a list would fill the heap."""
    first = next(parts)
    whole = new_rows(first, rows, in_file=in_file)
    whole[: len(first)] = first
    place = len(first)
    del first
    for part in parts:
        whole[place : place + len(part)] = part
        place += len(part)
    if place != rows:  # the rest was never written
        raise InvalidInputError(
            f"The model must return one row of outputs per data point: {rows} rows were given and "
            f"{place} came back."
        )
    return whole
