"""Arrow's data from files, checked before anything is made of it.

Arrow trusts the offsets, lengths and codes in its own format; a wrong one crashes the process or
reads what lies next to the data. And a compressed or repeated part may be much larger than the
file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from fairij.data.memory import check_size, limit
from fairij.errors import InvalidInputError

MAGIC = b"ARROW1"
OLD_FEATHER = b"FEA1"
CONTINUES = b"\xff\xff\xff\xff"  # the first bytes of a message
DICTIONARY, ROWS = 2, 3  # kinds of message
OFFSETS: dict[str, np.dtype[Any]] = {"string": np.dtype("<i4"), "large_string": np.dtype("<i8")}
VIEWS = ("string_view", "binary_view")
CELL = 8  # bytes of one cell in pandas, at the least


def checked(batch: Any) -> Any:
    """A record batch whose offsets, lengths, codes and texts are all valid."""
    try:
        batch.validate()
        for column in batch.columns:
            if not _is_plain_text(column):
                column.validate(full=True)
    except (ValueError, OSError) as error:
        raise InvalidInputError(
            f"The Arrow data must fit together, but {error}: the file was cut short or changed. "
            "Write it again."
        ) from None
    return batch


def _is_plain_text(column: Any) -> bool:
    """Whether a column of texts is surely valid: offsets that rise, and ASCII.

    Arrow's own check looks at each text alone, which takes several times as long.
    """
    kind = OFFSETS.get(str(column.type))
    if kind is None or len(column) == 0:
        return False
    _, offsets, data = column.buffers()
    if offsets is None or data is None:
        return False
    ends = np.frombuffer(offsets, kind)[column.offset : column.offset + len(column) + 1]
    first, last = int(ends[0]), int(ends[-1])
    if not 0 <= first <= last <= data.size or (ends[1:] < ends[:-1]).any():
        return False
    text = np.frombuffer(data, np.uint8)[first:last]
    return len(text) == 0 or bool(text.max() < 128)


def check_plain(schema: Any) -> None:
    """Raise if a column may repeat one value without end."""
    types: Any = import_module("pyarrow.types")
    for field in schema:
        if types.is_run_end_encoded(field.type):
            raise InvalidInputError(
                f"The column {field.name!r} must hold plain values, but is of Arrow's type "
                f"{field.type}: cast it, as in `table.cast(...)`, and write the file again."
            )


def cell_bytes(schema: Any) -> int:
    """The least bytes that one row takes in pandas."""
    types: Any = import_module("pyarrow.types")
    return sum(
        max(CELL, field.type.byte_width if types.is_fixed_size_binary(field.type) else 0)
        for field in schema
    )


def viewed_bytes(batch: Any) -> int:
    """The bytes of texts that are stored as views, which may all show the same place."""
    total = 0
    for column in batch.columns:
        if str(column.type) in VIEWS and len(column):
            views = np.frombuffer(column.buffers()[1], "<i4").reshape(-1, 4)[:, 0]
            total += int(views[column.offset : column.offset + len(column)].clip(0).sum())
    return total


class Batches:
    """The record batches of one Arrow file or stream, each checked when it is read.

    What the file declares is compared with the limit before Arrow reads a batch.
    """

    def __init__(self, file: Any, what: object) -> None:
        ipc: Any = import_module("pyarrow.ipc")
        start = file.read(8)
        check_version(start)
        file.seek(0)
        self._is_file = start.startswith(MAGIC)
        self._reader = (ipc.open_file if self._is_file else ipc.open_stream)(file)
        self.schema = self._reader.schema
        check_plain(self.schema)
        place = file.tell()
        check_declared(file, what, cell_bytes(self.schema))
        file.seek(place)
        self._what = what

    def __iter__(self) -> Iterator[Any]:
        viewed, most = 0, limit()
        for batch in map(checked, self._read()):
            viewed += viewed_bytes(batch)
            check_size(self._what, viewed, most=most)
            yield batch

    def _read(self) -> Iterator[Any]:
        if not self._is_file:
            yield from self._reader
            return
        for place in range(self._reader.num_record_batches):
            yield self._reader.get_batch(place)


def check_version(start: bytes) -> None:
    """Raise if a file begins as Feather's first version does."""
    if start[:4] == OLD_FEATHER:
        raise InvalidInputError(
            "The file is of Feather's first version, which is no longer read: write it again, as "
            "in `frame.to_feather(path)`."
        )


def check_declared(file: Any, what: object, cell: int, *, in_parts: bool = False) -> None:
    """Raise if an Arrow file or stream is larger, unpacked, than allowed.

    ``cell`` is the least memory of a row. With ``in_parts`` each batch alone must fit. The file is
    read at the places of its descriptions only.
    """
    file.seek(0, 2)
    end, most = file.tell(), limit()
    total = 0 if in_parts else end
    for rows, unpacked in map(partial(_declared, file), _messages(file, end)):
        total = rows * cell + unpacked + (0 if in_parts else total)
        check_size(what, total, most=most)
    file.seek(0)


def _declared(file: Any, message: tuple[int, int]) -> tuple[int, int]:
    """The rows of a message, and the bytes that its compressed parts say that they take."""
    start, size = message
    file.seek(start)
    described = Flat(file.read(size))
    kind = described.number(1, "<B", 0)
    if kind not in (DICTIONARY, ROWS):
        return 0, 0
    batch = described.table(2)
    batch = batch.table(1) if kind == DICTIONARY else batch
    unpacked = 0
    for at, length in batch.buffers(2) if batch.has(3) else ():
        if length >= 8:
            file.seek(start + size + at)
            unpacked += max(int.from_bytes(file.read(8), "little", signed=True), 0)
    return max(batch.number(0, "<q", 0), 0), unpacked


def _messages(file: Any, end: int) -> Iterator[tuple[int, int]]:
    """Where the description of each message begins, and its length."""
    file.seek(0)
    if file.read(len(MAGIC)) == MAGIC:
        yield from _listed(file, end)
        return
    at = 0
    while at + 8 <= end:
        file.seek(at)
        mark, size = struct.unpack("<4si", file.read(8))
        start = at + 8
        if mark != CONTINUES:  # as Arrow wrote before 0.15
            (size,), start = struct.unpack("<i", mark), at + 4
        if size <= 0:
            return
        file.seek(start)
        at = start + size + max(Flat(file.read(size)).number(3, "<q", 0), 0)
        yield start, size


def _listed(file: Any, end: int) -> Iterator[tuple[int, int]]:
    """The messages that the end of an Arrow file lists."""
    tail = len(MAGIC) + 4
    file.seek(max(end - tail, 0))
    (size,) = struct.unpack("<i", file.read(4))
    if not 0 < size <= end - tail:
        raise InvalidInputError("The Arrow data must end with a list of its parts; it was cut.")
    file.seek(end - tail - size)
    footer, described = Flat(file.read(size)), 0
    for field in (2, 3):  # dictionaries, record batches
        for at, length, body in footer.blocks(field):
            file.seek(max(at, 0))
            skipped = 8 if file.read(4) == CONTINUES else 4
            if not (0 <= at <= end and 0 < length - skipped <= end and 0 <= body <= end):
                raise InvalidInputError("The Arrow data lists a part that is not there.")
            described += length
            if described > end:  # each description is read once, so they cannot be longer
                raise InvalidInputError("The Arrow data lists one of its parts several times.")
            yield at + skipped, length - skipped


class Flat:
    """One table of Arrow's descriptions (a flat buffer), read without ever leaving it."""

    def __init__(self, content: bytes, at: int | None = None) -> None:
        self._content = content
        self._at = self._get("<I", 0) if at is None else at
        self._fields = self._at - self._get("<i", self._at)

    def _get(self, kind: str, at: int) -> int:
        if not 0 <= at <= len(self._content) - struct.calcsize(kind):
            raise InvalidInputError("The Arrow data must fit together, but a part lies outside.")
        return struct.unpack_from(kind, self._content, at)[0]

    def _place(self, field: int) -> int:
        """Where a field is; 0 if it is not there. Fields are counted from 0."""
        at = 4 + 2 * field
        inside = at < self._get("<H", self._fields)
        offset = self._get("<H", self._fields + at) if inside else 0
        return self._at + offset if offset else 0

    def has(self, field: int) -> bool:
        return self._place(field) != 0

    def number(self, field: int, kind: str, default: int) -> int:
        place = self._place(field)
        return self._get(kind, place) if place else default

    def table(self, field: int) -> Flat:
        place = self._place(field)
        return Flat(self._content, place + self._get("<I", place) if place else -1)

    def _vector(self, field: int, width: int) -> range:
        place = self._place(field)
        if not place:
            return range(0)
        start = place + self._get("<I", place)
        count = self._get("<I", start)
        if count * width > len(self._content):
            raise InvalidInputError("The Arrow data must fit together, but a list is too long.")
        return range(start + 4, start + 4 + count * width, width)

    def buffers(self, field: int) -> Iterator[tuple[int, int]]:
        """Where the listed buffers begin, and their lengths."""
        return ((self._get("<q", at), self._get("<q", at + 8)) for at in self._vector(field, 16))

    def blocks(self, field: int) -> Iterator[tuple[int, int, int]]:
        """Where the listed messages begin, and how long their descriptions and bodies are."""
        for at in self._vector(field, 24):
            yield self._get("<q", at), self._get("<i", at + 8), self._get("<q", at + 16)
