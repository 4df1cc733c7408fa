"""Rows that are read as they are needed: arrays on disk and data loaders.

A `Source` knows its number of rows and gives them in order, chunk by chunk, as often as asked. A
chunk is an array, frame or tensor, or a tuple or dict of those. Labels, weights and groups are
single columns, which are read completely.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from fairij.errors import InvalidInputError

Name = str | int
READ_ROWS = 65_536


class Source(ABC):
    """A table of N rows in order that is not in memory."""

    shape: tuple[int, ...]  # (N, F), or (N,) if rows have no one width
    columns: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """Rows ``start`` to ``stop`` in order, in tables of at most ``size`` rows each."""

    def column(self, name: Name) -> NDArray[Any]:
        """One column of the data that is not among the features."""
        raise InvalidInputError(
            f"This {type(self).__name__} has no columns besides the features: give the values of "
            f"{name!r} as an array."
        )

    def take(self, index: Any) -> Any:
        """Some rows in memory, in the order of ``index``; the source is read once."""
        wanted = row_numbers(index)
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
        """Some rows, ascending, as a source."""
        return Subset(self, index)


class ArraySource(Source):
    """An array on disk, or any other array.

    Parameters
    ----------
    array : array
        For example a `np.memmap`, or ``np.load(path, mmap_mode="r")``.

    Examples
    --------
    >>> np.save("rows.npy", X)
    >>> source = ArraySource(np.load("rows.npy", mmap_mode="r"))  # is not read into memory
    >>> len(source)
    600
    """

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
            # a copy, so that the system may free the pages of the file
            yield np.array(self.array[first : min(first + size, stop)])


class LoaderSource(Source):
    """A `torch.utils.data.DataLoader` that gives the same rows in the same order each time.

    Parameters
    ----------
    loader : DataLoader
    features : int, str or sequence of those, default=None
        The part of a batch that the model takes: a place in a tuple, a key of a dict, or several.
        None for the whole batch.

    Examples
    --------
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> rows = TensorDataset(torch.as_tensor(X), torch.as_tensor(y))
    >>> len(LoaderSource(DataLoader(rows, batch_size=100), features=0))
    600
    """

    def __init__(
        self, loader: DataLoader[Any], features: Name | Sequence[Name] | None = None
    ) -> None:
        if not isinstance(loader, DataLoader):
            raise InvalidInputError(
                "`LoaderSource` needs a `torch.utils.data.DataLoader`, got "
                f"{type(loader).__name__}: put a data set into one. Rows in memory need no source."
            )
        batches: Any = loader.batch_sampler  # if the user gave one, `sampler` says nothing
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
        self.shape = (rows, *getattr(first, "shape", ())[1:])

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
            several = isinstance(batch, (tuple, list))
            found = f"{len(batch)} parts" if several else type(batch).__name__
            found = f"the keys {list(batch)}" if isinstance(batch, Mapping) else found
            raise InvalidInputError(
                f"A batch of the DataLoader must hold {features!r}, got {found}."
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


def row_numbers(index: Any) -> NDArray[np.int64]:
    """Rows by number, from numbers or from one bool per row."""
    rows = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    return np.flatnonzero(rows) if rows.dtype == bool else rows


def table_rows(table: Any) -> int:
    """The number of rows of a chunk."""
    parts = table.values() if isinstance(table, Mapping) else table
    return table_rows(next(iter(parts))) if isinstance(table, (Mapping, tuple)) else len(table)


def part_of_table(table: Any, rows: Any) -> Any:
    """Some rows of a chunk, by their numbers or a slice."""
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
