"""Rows that are read as they are needed: memory-mapped arrays, Arrow data sets, data loaders.

A `Source` knows how many rows it has and gives them in order, a chunk at a time, as often as asked.
Labels, weights and groups are one column each and are read whole.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from fairij.errors import InvalidInputError

Name = str | int


class Source(ABC):
    """A table of N rows in order, held elsewhere."""

    shape: tuple[int, ...]  # (N, F), or (N,) where rows have no one width
    columns: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """Rows ``start`` to ``stop`` in order, in tables of at most ``size`` rows each."""
        ...

    def column(self, name: Name) -> NDArray[Any]:
        """One column of the data that is not among the features."""
        raise InvalidInputError(
            f"This {type(self).__name__} has no columns beside the features: give the values of "
            f"{name!r} as an array."
        )

    def take(self, index: Any) -> Any:
        """Some rows in memory, in the order of ``index``; the source is read once."""
        wanted = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
        if wanted.dtype == bool:
            wanted = np.flatnonzero(wanted)
        order = np.argsort(wanted, kind="stable")
        found, place = [], 0
        first, last = (int(wanted.min()), int(wanted.max()) + 1) if len(wanted) else (0, 1)
        for table in self.chunks(READ_ROWS, first, last):
            rows = wanted[order[np.searchsorted(wanted[order], first + place) :]] - first - place
            found.append(part_of_table(table, rows[rows < table_rows(table)]))
            place += table_rows(table)
        table = joined_tables(found)
        if (order[1:] > order[:-1]).all():
            return table
        return part_of_table(table, np.argsort(order, kind="stable"))

    def hashed(self, size: int) -> Iterator[Any]:
        """What a fingerprint of all rows is made from: the rows, ``size`` at a time."""
        return self.chunks(size)

    def subset(self, index: NDArray[np.int64]) -> Source:
        """Some rows, ascending, still held elsewhere."""
        return Subset(self, index)


READ_ROWS = 65_536
COLUMN_BUFFER = 2**16  # bytes of a Parquet file read at a time for each column
IPC_SUFFIXES = (".arrow", ".feather", ".ipc")
PARQUET_SUFFIXES = (".parquet", ".pq")
# those of Arrow are made from these; a damaged file may ask for more memory than there is
ARROW_ERRORS = (OSError, ValueError, LookupError, TypeError, RuntimeError, MemoryError)


class ArraySource(Source):
    """An array on disk (`np.memmap`, or `np.load(path, mmap_mode="r")`), or any array."""

    def __init__(self, array: Any) -> None:
        if getattr(array, "ndim", 0) < 1:
            raise InvalidInputError(
                f"`ArraySource` needs an array with one row per data point, got {array!r}."
            )
        self.array = array
        self.shape = tuple(int(n) for n in array.shape)

    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        stop = len(self) if stop is None else stop
        for first in range(start, stop, size):
            # a copy: pages of the file that were read are then the system's to forget
            yield np.array(self.array[first : min(first + size, stop)])


class ArrowSource(Source):
    """Parquet or Arrow files, one or a folder of them, or a `pyarrow.dataset.Dataset`.

    Parameters
    ----------
    data : a path, several, or a data set
    features : the columns that the model takes, in order
    """

    def __init__(self, data: Any, features: Sequence[str]) -> None:
        arrow: Any = import_module("pyarrow.dataset")
        self.columns = _feature_names(features)
        try:
            self._data = (
                data
                if isinstance(data, arrow.Dataset)
                else arrow.dataset(_paths(data), format=_format(data))
            )
            whole = self._data.get_fragments()
            self._fragments = [
                part
                for fragment in whole
                for part in getattr(fragment, "split_by_row_group", lambda f=fragment: [f])()
            ]
            self._names = list(self._data.schema.names)
            counts = [_fragment_rows(fragment) for fragment in self._fragments]
        except InvalidInputError:
            raise
        except ARROW_ERRORS as error:
            raise InvalidInputError(f"The data set {data} cannot be read: {error}") from None
        self._check(self.columns)
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(int).tolist()
        self.shape = (self._starts[-1], len(self.columns))

    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        assert self.columns is not None
        stop = len(self) if stop is None else stop
        yield from self._batches(list(self.columns), size, start, stop)

    def column(self, name: Name) -> NDArray[Any]:
        self._check((str(name),))
        if len(self) == 0:
            raise InvalidInputError(
                f"The data set must have at least one row for its column {name!r} to be read, got "
                "0 rows: look for files that were left empty."
            )
        parts = self._batches([str(name)], READ_ROWS, 0, len(self))
        return np.concatenate([part.iloc[:, 0].to_numpy() for part in parts])

    def _batches(self, columns: list[str], size: int, start: int, stop: int) -> Iterator[Any]:
        """Rows ``start`` to ``stop`` of some columns."""
        batches = self._read(columns, size, start, stop)
        while True:
            try:
                batch = next(batches, None)
            except ARROW_ERRORS as error:
                raise InvalidInputError(f"The data set cannot be read: {error}") from None
            if batch is None:
                return
            yield batch

    def _read(self, columns: list[str], size: int, start: int, stop: int) -> Iterator[Any]:
        for fragment, (first, last) in zip(self._fragments, pairwise(self._starts), strict=True):
            if last <= start or first >= stop:
                continue
            place = first
            for batch in _fragment_batches(fragment, columns, size):
                low, high = max(start - place, 0), min(stop - place, batch.num_rows)
                place += batch.num_rows
                if low < high:
                    yield batch.slice(low, high - low).to_pandas(ignore_metadata=True)
                if place >= stop:
                    return

    def _check(self, names: tuple[str, ...]) -> None:
        missing = [name for name in names if name not in self._names]
        if missing or not names:
            raise InvalidInputError(
                f"The data set has no column {missing[0]!r}; it has "
                f"{', '.join(map(repr, self._names[:20]))}."
                if missing
                else "`features` must name at least one column."
            )


class LoaderSource(Source):
    """A `torch.utils.data.DataLoader` that gives its rows in order, the same each time.

    Parameters
    ----------
    features : what in a batch the model takes: a place in a tuple, a key of a dict, or several;
        None for the whole batch
    """

    def __init__(
        self, loader: DataLoader[Any], features: Name | Sequence[Name] | None = None
    ) -> None:
        if not isinstance(loader, DataLoader):
            raise InvalidInputError(
                "`LoaderSource` needs a `torch.utils.data.DataLoader`, got "
                f"{type(loader).__name__}: put a data set into one, or give rows in memory as they "
                "are."
            )
        batches: Any = loader.batch_sampler  # where a user gives one, `sampler` says nothing
        in_order = isinstance(loader.sampler, SequentialSampler) and (
            batches is None
            or (type(batches) is BatchSampler and isinstance(batches.sampler, SequentialSampler))
        )
        drops = loader.drop_last or getattr(batches, "drop_last", False)
        if isinstance(loader.dataset, IterableDataset) or not in_order or drops:
            raise InvalidInputError(
                "A DataLoader must give all its rows in the same order each time: use a data set "
                "with a length, shuffle=False, drop_last=False and no batch_sampler of its own."
            )
        self._loader, self._features = loader, features
        rows = len(loader.dataset)  # type: ignore[arg-type]
        if rows == 0:
            raise InvalidInputError(
                "A DataLoader must give at least one row, got a data set of 0 rows: look for a "
                "filter or a file that leaves none."
            )
        first = self._of(next(iter(loader)))
        width = tuple(first.shape[1:]) if hasattr(first, "shape") else ()
        self.shape = (rows, *width)

    def _of(self, batch: Any) -> Any:
        features = self._features
        if features is None:
            return batch
        try:
            if isinstance(features, (str, int)):
                return batch[features]
            if isinstance(batch, Mapping):
                return {name: batch[name] for name in features}
            return tuple(batch[int(name)] for name in features)
        except (KeyError, IndexError, TypeError, ValueError):
            raise InvalidInputError(
                f"A batch of the DataLoader must hold {features!r}, got {_described(batch)}."
            ) from None

    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        stop, place = len(self) if stop is None else stop, 0
        for batch in self._loader:
            table = self._of(batch)
            rows = table_rows(table)
            for low in range(max(start - place, 0), min(stop - place, rows), size):
                high = min(low + size, stop - place, rows)
                yield part_of_table(table, slice(low, high))
            place += rows
            if place >= stop:
                return

    def column(self, name: Name) -> NDArray[Any]:
        try:
            return np.concatenate([np.asarray(batch[name]) for batch in self._loader])
        except (KeyError, IndexError, TypeError):
            raise InvalidInputError(f"A batch of the DataLoader must hold {name!r}.") from None


class Subset(Source):
    """Some rows of another source, ascending."""

    def __init__(self, source: Source, index: NDArray[np.int64]) -> None:
        self._source, self._index = source, np.asarray(index)
        self.shape = (len(self._index), *source.shape[1:])
        self.columns = source.columns

    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        index = self._index[start : len(self) if stop is None else stop]
        if len(index) == 0:
            return
        place, last = int(index[0]), int(index[-1]) + 1
        for table in self._source.chunks(size, place, last):
            rows = table_rows(table)
            low, high = np.searchsorted(index, [place, place + rows])
            if low < high:
                yield part_of_table(table, index[low:high] - place)
            place += rows

    def column(self, name: Name) -> NDArray[Any]:
        return self._source.column(name)[self._index]


def as_source(X: Any) -> Any:
    """Files and loaders as a `Source`; Arrow tables as frames; everything else as it is."""
    if isinstance(X, np.memmap):
        return ArraySource(X)
    kind = type(X)
    if kind.__name__ == "Table" and kind.__module__.startswith("pyarrow"):
        return X.to_pandas()
    if kind.__name__ == "Column" and kind.__module__.startswith("datasets"):
        return list(X)
    return LoaderSource(X) if isinstance(X, DataLoader) else X


def named_column(X: Any, values: Any) -> Any:
    """``values``, or the column of that name where ``X`` is a source."""
    if isinstance(X, Source) and isinstance(values, (str, int)):
        return X.column(values)
    return values


def table_rows(table: Any) -> int:
    if isinstance(table, (Mapping, tuple)):
        return table_rows(next(iter(table.values() if isinstance(table, Mapping) else table)))
    return len(table)


def part_of_table(table: Any, rows: Any) -> Any:
    """Some rows of a chunk, by place or slice."""
    if isinstance(table, Mapping):
        return {name: part_of_table(part, rows) for name, part in table.items()}
    if isinstance(table, tuple):
        return tuple(part_of_table(part, rows) for part in table)
    if isinstance(table, Tensor) and not isinstance(rows, slice):
        rows = torch.as_tensor(rows, device=table.device)
    return table.iloc[rows] if hasattr(table, "iloc") else table[rows]


def joined_tables(tables: list[Any]) -> Any:
    """Chunks one after the other."""
    first = tables[0]
    if len(tables) == 1:
        return first
    if isinstance(first, Mapping):
        return {name: joined_tables([table[name] for table in tables]) for name in first}
    if isinstance(first, tuple):
        return tuple(joined_tables([table[i] for table in tables]) for i in range(len(first)))
    if isinstance(first, pd.DataFrame):
        return pd.concat(tables, ignore_index=True)
    return torch.cat(tables) if isinstance(first, Tensor) else np.concatenate(tables)


def _fragment_rows(fragment: Any) -> int:
    groups = getattr(fragment, "row_groups", None)  # `count_rows` would count the whole file
    return fragment.count_rows() if groups is None else sum(group.num_rows for group in groups)


def _fragment_batches(fragment: Any, columns: list[str], size: int) -> Iterator[Any]:
    """The rows of a fragment in order, without reading ahead: that would hold several chunks."""
    if not _is_plain_parquet(fragment):
        yield from fragment.to_batches(
            columns=columns,
            batch_size=size,
            batch_readahead=0,
            fragment_readahead=0,
            use_threads=False,
        )
        return
    # a scan of a data set would hold a whole row group, which may be the whole file
    parquet: Any = import_module("pyarrow.parquet")
    with fragment.open() as opened:
        file = parquet.ParquetFile(
            opened, metadata=fragment.metadata, pre_buffer=False, buffer_size=COLUMN_BUFFER
        )
        groups = [group.id for group in fragment.row_groups]
        for batch in file.iter_batches(size, groups, columns, use_threads=False):
            yield batch.select(columns)  # it gives columns as they lie in the file


def _is_plain_parquet(fragment: Any) -> bool:
    """Whether it is Parquet, and the data set's maker asked for no options of reading."""
    arrow: Any = import_module("pyarrow.dataset")
    return bool(getattr(fragment, "format", None) == arrow.ParquetFileFormat())


def _feature_names(features: Any) -> tuple[str, ...]:
    if isinstance(features, (str, bytes)) or not isinstance(features, Iterable):
        raise InvalidInputError(
            "`features` must name the columns that the model takes, in order, as in "
            f"['age', 'wage']; got {features!r}."
        )
    return tuple(features)


def _paths(data: Any) -> Any:
    return [os.fspath(path) for path in data] if isinstance(data, (list, tuple)) else str(data)


def _format(data: Any) -> str:
    """Arrow's name for the format of a file, of several or of those in a folder, by suffix."""
    names = [str(path) for path in data] if isinstance(data, (list, tuple)) else _files(str(data))
    ipc = [name for name in names if name.endswith(IPC_SUFFIXES)]
    others = [name for name in names if name.endswith(PARQUET_SUFFIXES)]
    if ipc and others:
        raise InvalidInputError(
            "The files of a data set must be of one format, but there are Arrow files "
            f"({ipc[0]!r}) beside Parquet files ({others[0]!r}): give those of one format."
        )
    return "ipc" if ipc else "parquet"


def _files(path: str) -> list[str]:
    """A file's own path, or those of the files that Arrow finds in a folder."""
    if not os.path.isdir(path):
        return [path]
    found: list[str] = []
    for folder, inner, names in os.walk(path):
        inner[:] = [name for name in inner if not name.startswith((".", "_"))]
        found += [os.path.join(folder, n) for n in names if not n.startswith((".", "_"))]
    return sorted(found)


def _described(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"the keys {list(batch)}"
    return f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else type(batch).__name__
