"""How much memory what is read from a file may take: a small file may say that it is large.

Readers compare declared sizes with the limit before they allocate anything. The limit is half of
the memory that is free, or the one given by `reading_at_most`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from fairij.errors import InvalidInputError

SHARE = 0.5  # of the memory that is free
UNKNOWN = 2**33  # where the system does not say what is free
STACKS = 2**27  # bytes of address space per thread
CONTAINERS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_given: ContextVar[int | None] = ContextVar("most bytes for what is read", default=None)


class TooLargeError(InvalidInputError, MemoryError):
    """What a file holds would take more memory than is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, parameter="max_memory")


@contextmanager
def reading_at_most(size: int | None) -> Iterator[None]:
    """Set the limit, in bytes, for all readers inside. None for that of the machine."""
    before = _given.set(size)
    try:
        yield
    finally:
        _given.reset(before)


def set_limit(size: int | None) -> None:
    """Set the limit from here on, as the command line does."""
    _given.set(size)


def limit() -> int:
    """The bytes that what is read from a file may take."""
    given = _given.get()
    return int(SHARE * free_memory()) if given is None else given


def free_memory() -> int:
    """The bytes of memory that are free, of the machine or of the container."""
    free = [UNKNOWN]
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = [1024 * int(next(x for x in lines if x.startswith("MemAvailable")).split()[1])]
    if free == [UNKNOWN]:
        with suppress(AttributeError, ValueError, OSError):  # not every system has these
            free = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2]
    for most, used in CONTAINERS:
        with suppress(OSError, ValueError):  # ValueError: it says "max"
            free.append(int(Path(most).read_text()) - int(Path(used).read_text()))
    return max(min(free), 2**26)


def check_size(what: object, size: int, *, most: int | None = None) -> None:
    """Raise if so many bytes are more than the limit."""
    most = limit() if most is None else most
    if size > most:
        raise TooLargeError(
            f"{what} would take {said(size)} of memory once it is read, more than the "
            f"{said(most)} that a file may take here. If the file is what you expect, allow more "
            "by --max-memory (in Python: `fairij.data.memory.reading_at_most`); of a table, give "
            "fewer rows or columns, or read it in chunks (--stream)."
        )


@contextmanager
def capped(size: int) -> Iterator[None]:
    """Let the process take only so many bytes more while something is read, where that can be set.

    It is for libraries that keep no account of all that they take. They end with an error then.
    """
    try:
        import resource

        status = Path("/proc/self/status").read_text()
    except (ImportError, OSError):  # not Linux
        yield
        return
    taken = 1024 * int(status.split("VmSize:")[1].split()[0])
    threads = STACKS * (os.cpu_count() or 1)  # address space that they reserve and hardly use
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = taken + size + threads
    if before != resource.RLIM_INFINITY:
        most = min(most, before)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def said(size: int) -> str:
    """A number of bytes for people."""
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6)):
        if size >= 10**power:
            return f"{size / 10**power:.3g} {unit}"
    return f"{size} bytes"
