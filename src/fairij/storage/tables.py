"""Tables from files: CSV, JSON, Parquet, Arrow (Feather), or a query on a DuckDB file."""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import pandas as pd

from fairij.data.arrow_checks import Batches
from fairij.data.memory import TooLargeError, capped, check_size, limit
from fairij.data.parquet_checks import check_parquet
from fairij.errors import InvalidInputError
from fairij.storage.reading import library, reading

CHUNK = 2**20
CELL, OBJECT = 8, 256  # bytes that a cell takes in a table, and a value of JSON in Python
COPIES = 3  # of what is read: in DuckDB, in parts, joined
VECTORS = 32  # of 2,048 rows; what is fetched from DuckDB at a time
PathLike = str | os.PathLike[str]
KINDS: dict[str, str] = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".jsonl.gz"), "json"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather"), "arrow"),
    **dict.fromkeys((".duckdb", ".ddb"), "duckdb"),
}


def read_table(
    path: PathLike,
    *,
    query: str | None = None,
    columns: Sequence[str] | None = None,
    text_columns: Sequence[str] = (),
) -> pd.DataFrame:
    """Read the rows of a table file, or those that a query selects from a DuckDB file.

    Only ``columns`` are kept; the others may hold lists. ``text_columns`` of a CSV file stay text:
    "NA" is not missing, and "007" is not 7.
    """
    file = Path(path)
    kind = table_kind(file)
    if not file.is_file():
        why = ": it is a folder; name one file." if file.is_dir() else "; check the path."
        raise InvalidInputError(f"No table at {file}{why}")
    if (query is None) == (kind == "duckdb"):
        needs = f"A DuckDB file needs a query that selects the rows, got none for {file}."
        only = f"A query can be asked of a DuckDB file only; {file} is read whole."
        raise InvalidInputError(needs if query is None else only)
    with reading(file, kind):
        try:
            if query is not None:
                frame = _duckdb(file, query)
            elif kind == "csv":
                frame = _csv(file, text_columns)
            else:
                frame = {"json": _json, "parquet": _parquet, "arrow": _arrow}[kind](file)
        except UnicodeDecodeError:
            raise InvalidInputError(
                f"{file} cannot be read as {kind}: it is not text in UTF-8. Save it as UTF-8; "
                "spreadsheets offer it as a format."
            ) from None
        except PermissionError:
            raise InvalidInputError(f"{file} may not be read: check its permissions.") from None
    if columns is not None:
        require_columns(frame.columns, columns, where=str(file))
        frame = frame[list(columns)]
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    check_names(file, list(frame.columns))
    objects = ((name, column) for name, column in frame.items() if column.dtype == object)
    nested = [str(name) for name, column in objects if any(map(_is_nested, column))]
    check_cells(file, len(frame), nested)
    return frame.reset_index(drop=True)


def write_table(frame: pd.DataFrame, path: PathLike) -> None:
    """Write CSV or Parquet, by the ending of the name. Numbers are read back exactly."""
    file = Path(path)
    kind = table_kind(file)
    if kind == "parquet":
        library("pyarrow", "Parquet files")
        frame.to_parquet(file, index=False)
    elif kind == "csv":
        frame.to_csv(file, index=False, sep=_separator(file))
    else:
        raise InvalidInputError(f"A table is written as .csv or .parquet, got {file}.")


def table_kind(file: Path) -> str:
    """The format of a table, by the ending of its name."""
    name = file.name.lower()
    for ending in sorted(KINDS, key=len, reverse=True):
        if name.endswith(ending):
            return KINDS[ending]
    raise InvalidInputError(f"A table's name must end in one of {', '.join(KINDS)}; got {file}.")


def require_columns(columns: Iterable[Any], names: Sequence[str], *, where: str) -> None:
    """Raise unless all names are columns of a table; the message has similar names."""
    known = [str(column) for column in columns]
    missing = [name for name in names if name not in known]
    if not missing:
        return
    near = {name: ", ".join(map(repr, near_matches(name, known))) for name in missing[:5]}
    hints = [repr(name) + (f" (near: {others})" if others else "") for name, others in near.items()]
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    shown = ", ".join(known[:12]) + (f", ... ({len(known)} in all)" if len(known) > 12 else "")
    raise InvalidInputError(
        f"{where} must have the column(s) {', '.join(hints)}{more}; it has: {shown}."
    )


def near_matches(name: str, known: Sequence[str]) -> list[str]:
    """Known names that differ only by case or by a few letters."""
    folded = {other.casefold().strip(): other for other in reversed(known)}
    close = difflib.get_close_matches(name.casefold().strip(), list(folded), n=3, cutoff=0.6)
    return [folded[other] for other in close]


def opened_text(file: Path, cell: int) -> io.TextIOWrapper:
    """A text file, unpacked if it is packed. It ends with an error where it becomes too large."""
    opened: Any = gzip.open if file.name.lower().endswith(".gz") else open
    counted = Counted(opened(file, "rb"), file, cell)
    return io.TextIOWrapper(io.BufferedReader(counted, CHUNK), encoding="utf-8-sig", newline="")


class Counted(io.RawIOBase):
    """A binary file that may give only so many bytes and cells as memory may take.

    ``cell`` is what a cell takes beyond its text; commas and lines are counted as cells.
    """

    def __init__(self, file: BinaryIO, path: Path, cell: int) -> None:
        self._file, self._path, self._cell = file, path, cell
        self._total, self._most = 0, limit()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(len(buffer))
        cells = sum(map(content.count, (b",", b"\t", b"\n")))
        self._total += len(content) + cells * self._cell
        check_size(self._path, self._total, most=self._most)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()


def _separator(file: Path) -> str:
    return "\t" if file.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def _csv(file: Path, text_columns: Sequence[str]) -> pd.DataFrame:
    separator = _separator(file)
    with opened_text(file, CELL) as text:
        header = next(csv.reader(text, delimiter=separator), [])
    check_names(file, header)  # pandas renames repeated columns without telling
    if len(header) == 1 and ";" in header[0]:
        raise InvalidInputError(
            f"The columns of {file} must be separated by commas, but its first line has "
            "semicolons: save it again with commas."
        )

    def read(**options: Any) -> pd.DataFrame:
        with opened_text(file, CELL) as text:
            return pd.read_csv(text, sep=separator, **options)

    frame = read(low_memory=False)
    kept = [name for name in text_columns if name in frame]
    if kept:
        frame[kept] = read(usecols=kept, dtype=str, na_filter=False)[kept].to_numpy()
    return frame


def _json(file: Path) -> pd.DataFrame:
    """A list of records, or one record per line."""
    with opened_text(file, OBJECT) as text:
        if file.name.lower().endswith(".json"):
            return pd.DataFrame(json.load(text))
        return pd.DataFrame([json.loads(line) for line in text if line.strip()])


def _parquet(file: Path) -> pd.DataFrame:
    library("pyarrow", "Parquet files")
    check_parquet(file)
    return pd.read_parquet(file, engine="pyarrow")


def _arrow(file: Path) -> pd.DataFrame:
    """An Arrow file (Feather) or stream, as Hugging Face's datasets are."""
    pyarrow = library("pyarrow", "Arrow and Feather files")
    with pyarrow.OSFile(str(file)) as opened:
        batches = Batches(opened, file)
        try:
            table = pyarrow.Table.from_batches(list(batches), batches.schema)
        except pyarrow.ArrowMemoryError as error:
            raise ValueError(f"a part of it is too large ({error})") from None
    return cast("pd.DataFrame", table.to_pandas())


def _duckdb(file: Path, query: str) -> pd.DataFrame:
    """The rows of a query that can read this file and nothing else.

    A view in the file may have rows without end, so they are fetched in parts and counted.
    """
    duckdb, most = library("duckdb", "DuckDB files"), limit()
    locked = {"enable_external_access": "false", "autoload_known_extensions": "false"}
    locked |= {"memory_limit": f"{most}B", "max_temp_directory_size": "0B"}
    with duckdb.connect(str(file), read_only=True, config=locked) as connection:
        try:
            connection.execute("set enable_progress_bar = false")  # it is printed among results
            with capped(COPIES * most):  # DuckDB keeps no account of long texts
                connection.execute(query)
                return _fetched(connection, file, most)
        except (MemoryError, duckdb.OutOfMemoryException) as error:
            if isinstance(error, TooLargeError):
                raise
    check_size(file, most + 1, most=most)
    raise AssertionError


def _fetched(connection: Any, file: Path, most: int) -> pd.DataFrame:
    parts: list[pd.DataFrame] = []
    size = 0
    while len(part := connection.fetch_df_chunk(VECTORS)) or not parts:
        size += int(part.memory_usage(deep=True).sum())
        check_size(file, size, most=most)
        parts.append(part)
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def _is_nested(value: Any) -> bool:
    return isinstance(value, (list, dict)) or getattr(value, "ndim", 0) > 0


def check_cells(file: Path, rows: int, nested: list[str]) -> None:
    """Raise if there are no rows, or if columns hold lists or records."""
    if rows == 0:
        raise InvalidInputError(f"{file} must have at least one row below its header, got none.")
    if nested:
        raise InvalidInputError(
            f"{file} must hold one number or text per cell, but {nested[0]!r} holds lists or "
            "records."
        )


def check_names(file: Path, names: list[str]) -> None:
    """Raise if there are no column names, or if one is repeated."""
    if not names:
        raise InvalidInputError(f"{file} must start with a line of column names, but it is empty.")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InvalidInputError(
            f"Column names must be distinct, but {file} has {repeated[0]!r} "
            f"{names.count(repeated[0])} times: rename one."
        )
