"""Tables read whole, or in chunks if the rows do not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fairij.data.arrow_source import ArrowSource
from fairij.data.sources import Source
from fairij.errors import InvalidInputError
from fairij.storage.reading import library, reading
from fairij.storage.tables import check_cells, check_names, read_table, table_kind

FORMATS = {"parquet": "parquet", "arrow": "ipc"}  # Arrow's own names for them
PANDAS_INDEX = "__index_level_"
FIRST_ROWS = 32


@dataclass(frozen=True)
class Whole:
    """A table in memory."""

    frame: pd.DataFrame

    @property
    def columns(self) -> list[str]:
        return list(self.frame.columns)

    def read(self, names: Sequence[str]) -> pd.DataFrame:
        return self.frame[list(names)]

    def features(
        self, names: Sequence[str], prepare: Callable[[pd.DataFrame], Any]
    ) -> tuple[pd.DataFrame, Any]:
        """The columns, and the columns as the model takes them."""
        frame = self.read(names)
        return frame, prepare(frame)


@dataclass(frozen=True)
class Streamed:
    """A file whose features are read in chunks; other columns are read whole."""

    data: Any  # a `pyarrow.dataset.Dataset`
    columns: list[str]

    def read(self, names: Sequence[str]) -> pd.DataFrame:
        return pd.DataFrame({name: ArrowSource(self.data, [name]).column(name) for name in names})

    def features(
        self, names: Sequence[str], prepare: Callable[[pd.DataFrame], Any]
    ) -> tuple[ArrowSource, Source]:
        source = ArrowSource(self.data, list(names))
        return source, PreparedSource(source, prepare)


class PreparedSource(Source):
    """Rows of a source, prepared for the model chunk by chunk."""

    def __init__(self, source: Source, prepare: Callable[[pd.DataFrame], Any]) -> None:
        self._source, self._prepare = source, prepare
        first = prepare(next(source.chunks(FIRST_ROWS)))
        self.shape = (len(source), *first.shape[1:])
        self.columns = tuple(first.columns) if isinstance(first, pd.DataFrame) else None

    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        return map(self._prepare, self._source.chunks(size, start, stop))


def open_table(path: Path, query: str | None = None, *, stream: bool = False) -> Whole | Streamed:
    if not stream:
        return Whole(read_table(path, query=query))
    kind = table_kind(path)
    if kind not in FORMATS or query is not None:
        raise InvalidInputError(
            f"--stream reads Parquet and Arrow files, without a query; {path} is {kind}."
        )
    if not path.is_file():
        raise InvalidInputError(f"No table at {path}; check the path.")
    dataset, types = (
        library(name, "Parquet and Arrow files") for name in ("pyarrow.dataset", "pyarrow.types")
    )
    with reading(path, kind):
        data = dataset.dataset(str(path), format=FORMATS[kind])
        rows = data.count_rows()
        names = [name for name in data.schema.names if not name.startswith(PANDAS_INDEX)]
    check_names(path, names)
    check_cells(path, rows, [n for n in names if types.is_nested(data.schema.field(n).type)])
    return Streamed(data, names)
