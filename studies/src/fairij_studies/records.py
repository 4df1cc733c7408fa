"""Records of a study: one JSON object a line, appended unit by unit, whole or not at all.

A unit's lines are written by one call and each says how many there are, so that after a crash the
end of the file tells by itself which lines belong to a unit that was not written to its end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from fairij.errors import InvalidInputError

UNIT, LINES = "unit", "unit_lines"


def identity(key: Mapping[str, Any]) -> str:
    """A unit's key as text that does not depend on the order of its fields."""
    return json.dumps(dict(key), sort_keys=True, allow_nan=False)


def check_plain(records: Sequence[Mapping[str, Any]]) -> None:
    """Raise unless all values can be written: plain, and finite where they are numbers."""
    json.dumps(list(records), default=_plain, allow_nan=False)


def append_unit(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Append one unit's records by a single write, and wait until they are on the disk."""
    lines = [
        json.dumps({**r, LINES: len(records)}, default=_plain, allow_nan=False) for r in records
    ]
    content = "".join(f"{line}\n" for line in lines).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_records(path: Path) -> list[dict[str, Any]]:
    """All records of whole units; nothing where there is no file yet."""
    return _whole_units(path)[0]


def cut_torn_end(path: Path) -> int:
    """Cut off what an interrupted append left at the end; returns how many bytes that was."""
    if not path.exists():
        return 0
    _, end = _whole_units(path)
    torn = path.stat().st_size - end
    if torn:
        with path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())
    return torn


def record_frame(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame([dict(record) for record in records])


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Keep a second run out of the same folder, where the system has file locks."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # not on this system: the user has to see to it
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise InvalidInputError(
            f"`folder` must not be in use by another run of a study, but {folder} is. Wait for it "
            "to end, or give another folder."
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def _whole_units(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The records of whole units, and the byte at which the last of them ends."""
    records: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    place = end = 0
    content = path.read_bytes() if path.exists() else b""
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        record = _parsed(line)
        place += len(line)
        if record is None:
            if place < len(content):
                raise InvalidInputError(
                    f"Line {number} of {path} must be one record in JSON, but is not, and is not "
                    "the last one either: the file was damaged otherwise than by an interrupted "
                    "run. Restore it, or move it away to start anew."
                )
            break
        if waiting and waiting[0][UNIT] != record[UNIT]:
            raise InvalidInputError(
                f"Line {number} of {path} begins another unit before {waiting[0][UNIT]} has all "
                f"its {waiting[0][LINES]} lines. Restore the file, or move it away."
            )
        waiting.append(record)
        if len(waiting) == record[LINES]:
            records.extend(waiting)
            waiting, end = [], place
    return records, end


def _parsed(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and {UNIT, LINES} <= set(record) else None


def _plain(value: Any) -> Any:
    """A numpy or torch scalar as Python's own."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"A record must hold plain values, got {type(value).__name__}: {value!r}.")
