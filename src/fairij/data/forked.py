"""Forked processes: the threads of their parent do not exist in them.

Libraries that split work among threads (OpenMP) would wait for those for ever. With one thread
they do not ask for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

_started_in = os.getpid()  # the process that loaded this module


def is_forked() -> bool:
    """Whether this process was forked from one that had loaded this library."""
    return os.getpid() != _started_in


@contextmanager
def one_thread_if_forked() -> Iterator[None]:
    """In a forked process, work with one thread. Any other process is left as it is."""
    if not is_forked():
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _controller(os.getpid()).limit(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@cache
def _controller(process: int) -> ThreadpoolController:
    """Finding the libraries takes a while, so it is done once for each process."""
    return ThreadpoolController()
