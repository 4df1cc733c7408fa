"""The records of a study: a Parquet file, and a journal of JSON lines while the study runs.

A running study appends each unit to the journal by one write. Every line says how many lines its
unit has, so an interrupted write is recognised and cut off. At the end of a run the journal is
folded into the Parquet file and deleted. Both files are read, so nothing is lost if the run is
killed. A folder that holds only ``results.jsonl`` is read as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from fairij.errors import InvalidInputError

RESULTS, JOURNAL = "results.parquet", "results.jsonl"
UNIT, LINES = "unit", "unit_lines"
Record = dict[str, Any]


def identity(key: Mapping[str, Any]) -> str:
    """Return a unit's key as text that does not depend on the order of its fields."""
    return json.dumps(dict(key), sort_keys=True, allow_nan=False)


def check_plain(records: Sequence[Mapping[str, Any]]) -> None:
    """Raise unless all values are plain, and finite where they are numbers."""
    json.dumps(list(records), default=_plain, allow_nan=False)


def has_records(folder: Path) -> bool:
    """Return whether a folder was written by a study."""
    return any((folder / name).is_file() for name in (RESULTS, JOURNAL))


def read_records(folder: Path) -> list[Record]:
    """Return all records of complete units, in the order in which they were written."""
    stored = _stored(folder / RESULTS)
    known = {_whose(record) for record in stored}
    # a run that was killed while folding leaves the same units in both files
    return stored + [r for r in read_journal(folder / JOURNAL) if _whose(r) not in known]


def fold_journal(folder: Path) -> None:
    """Move the journal's records into the Parquet file; do nothing without a journal.

    Without pyarrow the journal stays, and is read as it is.
    """
    if (folder / JOURNAL).is_file() and find_spec("pyarrow") is not None:
        records = read_records(folder)
        if records:
            from fairij_studies.parquet import write_table

            write_table(folder / RESULTS, records)
        (folder / JOURNAL).unlink()


def append_unit(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Append one unit's records to a journal by a single write, and wait for the disk."""
    lines = [
        json.dumps({**r, LINES: len(records)}, default=_plain, allow_nan=False) for r in records
    ]
    content = "".join(f"{line}\n" for line in lines).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_journal(path: Path) -> list[Record]:
    """Return the records of all complete units; none if there is no file."""
    return _complete_units(path)[0]


def cut_torn_end(path: Path) -> int:
    """Cut off what an interrupted append left at the end; return the number of bytes."""
    if not path.exists():
        return 0
    _, end = _complete_units(path)
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
    """Keep a second run out of the same folder, if the system has file locks."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # this system has no file locks
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


def _stored(path: Path) -> list[Record]:
    if not path.is_file():
        return []
    from fairij_studies.parquet import read_table  # loads pyarrow, which a journal does not need

    return read_table(path)


def _whose(record: Record) -> tuple[bool, str]:
    return record["quick"], record[UNIT]


def _complete_units(path: Path) -> tuple[list[Record], int]:
    """Return the records of complete units, and the byte at which the last of them ends."""
    records: list[Record] = []
    waiting: list[Record] = []
    place = end = 0
    content = path.read_bytes() if path.exists() else b""
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        record = _parsed(line)
        place += len(line)
        if record is None:
            if place < len(content):
                raise InvalidInputError(
                    f"Line {number} of {path} must be one record in JSON, but it is not. It is not "
                    "the last line, so an interrupted run did not cause this. Restore the file, or "
                    "move it away to start again."
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


def _parsed(line: bytes) -> Record | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and {UNIT, LINES} <= set(record) else None


def _plain(value: Any) -> Any:
    """Return a numpy or torch value as Python's own."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"A record must hold plain values, got {type(value).__name__}: {value!r}.")
