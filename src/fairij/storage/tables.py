"""Tables from files: CSV, Parquet, Arrow (Feather), or a query on a DuckDB file.

Every file that cannot be read, or is not a plain table, gives one clear error.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from fairij.errors import InvalidInputError

STREAM = b"\xff\xff\xff\xff"  # how Arrow's streaming format begins
PathLike = str | os.PathLike[str]
KINDS: dict[str, str] = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".duckdb": "duckdb",
    ".ddb": "duckdb",
}


def read_table(path: PathLike, *, query: str | None = None) -> pd.DataFrame:
    """The rows of a table file; of a DuckDB file those that ``query`` selects, read-only."""
    file = Path(path)
    kind = table_kind(file)
    if not file.is_file():
        raise InvalidInputError(
            f"No table at {file}"
            + (": it is a folder; name one file." if file.is_dir() else "; check the path.")
        )
    if (query is None) == (kind == "duckdb"):
        raise InvalidInputError(
            f"A DuckDB file needs a query that selects the rows, got none for {file}."
            if query is None
            else f"A query can be asked of a DuckDB file only; {file} is read whole."
        )
    try:
        frame = _duckdb(file, query) if query is not None else READERS[kind](file)
    except (InvalidInputError, MemoryError):
        raise
    except UnicodeDecodeError:
        raise InvalidInputError(
            f"{file} cannot be read as {kind}: it is not text in UTF-8. Save it as UTF-8, which "
            "spreadsheets offer as a format of its own."
        ) from None
    except PermissionError:
        raise InvalidInputError(f"{file} may not be read: check its permissions.") from None
    except Exception as error:  # every reader has its own kinds of error
        raise InvalidInputError(f"{file} cannot be read as {kind}: {_first_line(error)}") from None
    return _checked(file, frame)


def write_table(frame: pd.DataFrame, path: PathLike) -> None:
    """Write CSV or Parquet, by the name's ending; numbers read back exactly."""
    file = Path(path)
    kind = table_kind(file)
    if kind == "parquet":
        _library("pyarrow", "Parquet files")
        frame.to_parquet(file, index=False)
    elif kind == "csv":
        frame.to_csv(file, index=False, sep="\t" if file.suffix == ".tsv" else ",")
    else:
        raise InvalidInputError(f"A table is written as .csv or .parquet, got {file}.")


def table_kind(file: Path) -> str:
    name = file.name.lower()
    for ending in sorted(KINDS, key=len, reverse=True):
        if name.endswith(ending):
            return KINDS[ending]
    raise InvalidInputError(f"A table's name must end in one of {', '.join(KINDS)}; got {file}.")


def require_columns(columns: Iterable[Any], names: Sequence[str], *, where: str) -> None:
    """Raise unless all names are among the columns of a table; the message has the nearest ones."""
    known = [str(column) for column in columns]
    missing = [name for name in names if name not in known]
    if not missing:
        return
    hints = []
    for name in missing[:5]:
        near = near_matches(name, known)
        hints.append(f"{name!r}" + (f" (near: {', '.join(map(repr, near))})" if near else ""))
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    shown = ", ".join(known[:12]) + (f", ... ({len(known)} in all)" if len(known) > 12 else "")
    raise InvalidInputError(
        f"{where} must have the column(s) {', '.join(hints)}{more}; it has: {shown}."
    )


def near_matches(name: str, known: Sequence[str]) -> list[str]:
    """Names that one may have meant: alike but for case, or a few letters off."""
    folded = {other.casefold().strip(): other for other in reversed(known)}
    close = difflib.get_close_matches(name.casefold().strip(), list(folded), n=3, cutoff=0.6)
    return [folded[other] for other in close]


def _csv(file: Path) -> pd.DataFrame:
    separator = "\t" if file.suffix.lower() == ".tsv" else ","
    opened: Any = gzip.open if file.name.lower().endswith(".gz") else open
    with opened(file, "rt", encoding="utf-8-sig", newline="") as text:
        header = next(csv.reader(text, delimiter=separator), [])
    check_names(file, header)  # pandas would rename repeated columns without a word
    if len(header) == 1 and ";" in header[0]:
        raise InvalidInputError(
            f"The columns of {file} must be parted by commas, but its first line has semicolons: "
            "save it anew with commas."
        )
    return pd.read_csv(file, sep=separator, encoding="utf-8-sig", low_memory=False)


def _parquet(file: Path) -> pd.DataFrame:
    _library("pyarrow", "Parquet files")
    return pd.read_parquet(file, engine="pyarrow")


def _arrow(file: Path) -> pd.DataFrame:
    _library("pyarrow", "Arrow and Feather files")
    with file.open("rb") as opened:
        is_stream = opened.read(4) == STREAM  # as Hugging Face's datasets are kept
    if is_stream:
        with import_module("pyarrow.ipc").open_stream(file.read_bytes()) as stream:
            return stream.read_all().to_pandas()
    frame: pd.DataFrame = import_module("pyarrow.feather").read_table(file).to_pandas()
    return frame


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
}


def _duckdb(file: Path, query: str) -> pd.DataFrame:
    """The rows of a query that may read this file and nothing else."""
    duckdb = _library("duckdb", "DuckDB files")
    locked = {"enable_external_access": "false", "autoload_known_extensions": "false"}
    with duckdb.connect(str(file), read_only=True, config=locked) as connection:
        frame: pd.DataFrame = connection.execute(query).df()
    return frame


def _library(name: str, purpose: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InvalidInputError(
            f"{purpose} need the package {name}: pip install {name}, or give a CSV file."
        ) from None


def _checked(file: Path, frame: pd.DataFrame) -> pd.DataFrame:
    check_names(file, [str(column) for column in frame.columns])
    nested = [str(name) for name, column in frame.items() if _is_nested(column)]
    check_cells(file, len(frame), nested)
    return frame.set_axis([str(column) for column in frame.columns], axis=1).reset_index(drop=True)


def _is_nested(column: pd.Series[Any]) -> bool:
    def is_nested(value: Any) -> bool:
        return isinstance(value, (list, dict)) or getattr(value, "ndim", 0) > 0

    return column.dtype == object and any(map(is_nested, column))


def check_cells(file: Path, rows: int, nested: list[str]) -> None:
    """Raise where there are no rows, or columns of lists and records."""
    if rows == 0:
        raise InvalidInputError(f"{file} must have at least one row below its header, got none.")
    if nested:
        raise InvalidInputError(
            f"{file} must hold one number or text a cell, but {nested[0]!r} holds lists or records."
        )


def check_names(file: Path, names: list[str]) -> None:
    if not names:
        raise InvalidInputError(f"{file} must start with a line of column names, but it is empty.")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InvalidInputError(
            f"Column names must be distinct, but {file} has {repeated[0]!r} "
            f"{names.count(repeated[0])} times: rename one."
        )


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".") + "."
