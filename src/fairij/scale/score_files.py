"""Files of scores that are written chunk by chunk and appear when they are complete."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from fairij.errors import InvalidInputError

Array = NDArray[np.float64]
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ScoreWriter(Protocol):
    """A file to which scores are appended."""

    def write(self, scores: Array) -> None: ...

    def close(self) -> None: ...


class _Numpy:
    """Uses plain writes: with a memory map, a full disk would kill the process."""

    def __init__(self, path: Path, rows: int) -> None:
        self._file = path.open("xb")
        try:
            header = {"descr": "<f8", "fortran_order": False, "shape": (rows,)}
            np.lib.format.write_array_header_1_0(self._file, header)
            self._file.flush()
            _reserve(self._file.fileno(), self._file.tell() + 8 * rows)
        except BaseException:
            self._file.close()
            raise

    def write(self, scores: Array) -> None:
        self._file.write(np.ascontiguousarray(scores, "<f8").data)

    def close(self) -> None:
        self._file.close()


def _reserve(descriptor: int, size: int) -> None:
    """Reserve the space now, so that a full disk shows before the scores are computed."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in FULL:
            raise  # with any other error the file system cannot reserve: the writes will show


class _Parquet:
    def __init__(self, path: Path, rows: int) -> None:
        pyarrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
        self._table = pyarrow.table
        schema = pyarrow.schema([("row", pyarrow.int64()), ("influence", pyarrow.float64())])
        self._file = parquet.ParquetWriter(path, schema)
        self._place = 0

    def write(self, scores: Array) -> None:
        rows = np.arange(self._place, self._place + len(scores))
        self._file.write_table(self._table({"row": rows, "influence": scores}))
        self._place += len(scores)

    def close(self) -> None:
        self._file.close()


WRITERS: dict[str, Callable[[Path, int], ScoreWriter]] = {".npy": _Numpy, ".parquet": _Parquet}


class _Explaining:
    """A writer whose errors name the file and the cure."""

    def __init__(self, target: Path, temporary: Path, rows: int) -> None:
        self._target = target
        with _explained(target):
            self._inner = WRITERS[target.suffix](temporary, rows)

    def write(self, scores: Array) -> None:
        with _explained(self._target):
            self._inner.write(scores)

    def close(self) -> None:
        with _explained(self._target):
            self._inner.close()


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno or errno.EIO,
            f"The scores cannot be written: {error.strerror or error}. Free some space there, or "
            "give `out` in a folder that can be written; nothing half-written is left",
            str(target),
        ) from error


@contextmanager
def score_file(target: Path, rows: int) -> Iterator[ScoreWriter]:
    """A file of scores in the order of the rows; it gets its name when it is complete."""
    if target.suffix not in WRITERS:
        raise InvalidInputError(
            f"`out` must end in one of {', '.join(WRITERS)}, got {target.name!r}."
        )
    with _explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    writer: _Explaining | None = None
    try:
        writer = _Explaining(target, temporary, rows)
        yield writer
        writer.close()
        with _explained(target):
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(temporary, target)
    except BaseException:
        if writer is not None:
            with suppress(OSError):
                writer.close()
        temporary.unlink(missing_ok=True)
        raise
