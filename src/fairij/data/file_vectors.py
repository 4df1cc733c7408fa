"""Vectors with an entry a row that lie in files, where rows are too many for memory.

A file has no name and goes with its tensor, even if the process is killed. Pages that were touched
count as this process's memory until `release` gives them back; they are read again when needed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from math import prod
from weakref import WeakValueDictionary

import torch
from torch import Tensor

SMALLEST = 2**20  # bytes; what is smaller stays in memory
_maps: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()  # by the address of the tensor


def new_rows(like: Tensor, rows: int, *, in_file: bool) -> Tensor:
    """Room for as many rows like those of ``like``; in a file where it is wanted and can be."""
    shape = (rows, *like.shape[1:])
    size = prod(shape) * like.element_size()
    if in_file and size >= SMALLEST and like.device.type == "cpu" and _can_map():
        try:
            return _in_a_file(size, like.dtype).view(shape)
        except OSError:  # no folder for temporary files, or no room in it
            pass
    return like.new_empty(shape)


def lies_in_file(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.untyped_storage().data_ptr() in _maps


def release() -> None:
    """Give back the pages of all such vectors; what was written to them is kept by the system."""
    for pages in list(_maps.values()):
        pages.madvise(mmap.MADV_DONTNEED)


def _can_map() -> bool:
    return hasattr(os, "posix_fallocate") and hasattr(mmap, "MADV_DONTNEED")


def _in_a_file(size: int, dtype: torch.dtype) -> Tensor:
    with tempfile.TemporaryFile() as file:
        # the room is taken now: a disk that fills up later would end the process at a mere write
        os.posix_fallocate(file.fileno(), 0, size)
        pages = mmap.mmap(file.fileno(), size)
    tensor = torch.frombuffer(pages, dtype=dtype)
    _maps[tensor.untyped_storage().data_ptr()] = pages
    return tensor
