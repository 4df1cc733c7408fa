"""Rows of Parquet or Arrow files, read as they are needed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.data.arrow_checks import CELL, check_declared, check_plain, checked
from fairij.data.memory import check_size, limit
from fairij.data.sources import READ_ROWS, Name, Source
from fairij.errors import FairIJError, InvalidInputError

COLUMN_BUFFER = 2**16  # bytes of a Parquet file read at a time for each column
IPC_SUFFIXES = (".arrow", ".feather", ".ipc")
PARQUET_SUFFIXES = (".parquet", ".pq")
# the bases of Arrow's errors; a damaged file may ask for more memory than there is
ARROW_ERRORS = (OSError, ValueError, LookupError, TypeError, RuntimeError, MemoryError)


class ArrowSource(Source):
    """Parquet or Arrow files, or a `pyarrow.dataset.Dataset`.

    Parameters
    ----------
    data : path, sequence of paths or Dataset
        A file, a folder of files, several files, or a data set.
    features : sequence of str
        The columns that the model takes, in order.

    Examples
    --------
    >>> pd.DataFrame(X, columns=["a", "b", "c"]).to_parquet("rows.parquet")
    >>> len(ArrowSource("rows.parquet", features=["a", "b", "c"]))
    600
    """

    def __init__(self, data: Any, features: Sequence[str]) -> None:
        arrow: Any = import_module("pyarrow.dataset")
        self.columns = _feature_names(features)
        paths = [str(path) for path in data] if isinstance(data, (list, tuple)) else str(data)
        form = None if isinstance(data, arrow.Dataset) else _format(paths)
        try:
            whole = data if form is None else arrow.dataset(paths, format=form)
            self._fragments = [
                part
                for fragment in whole.get_fragments()
                for part in getattr(fragment, "split_by_row_group", lambda f=fragment: [f])()
            ]
            self._names = list(whole.schema.names)
            check_plain(whole.schema)
            self._check_files()
            counts = [_fragment_rows(fragment) for fragment in self._fragments]
            if min(counts, default=0) < 0:
                raise ValueError("it says that it has fewer rows than none")
        except FairIJError:
            raise
        except ARROW_ERRORS as error:
            raise InvalidInputError(f"The data set {data} cannot be read: {error}") from None
        self._check(self.columns)
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(int).tolist()
        self.shape = (self._starts[-1], len(self.columns))

    def _check_files(self) -> None:
        """Raise if an Arrow file says that it is larger, unpacked, than memory may be."""
        for fragment in self._fragments:
            if _is_ipc(fragment):
                with fragment.open() as opened:
                    check_declared(opened, getattr(fragment, "path", "it"), 0, in_parts=True)

    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        assert self.columns is not None
        stop = len(self) if stop is None else stop
        yield from self._batches(list(self.columns), size, start, stop)

    def column(self, name: Name) -> NDArray[Any]:
        self._check((str(name),))
        if len(self) == 0:
            raise InvalidInputError(
                f"The data set must have at least one row for its column {name!r} to be read, got "
                "0 rows: look for empty files."
            )
        what = f"The column {name!r} of {len(self)} rows"
        check_size(what, CELL * len(self))
        parts, total, most = [], 0, limit()
        for part in self._batches([str(name)], READ_ROWS, 0, len(self)):
            total += int(part.memory_usage(deep=True).sum())
            check_size(what, total, most=most)
            parts.append(part.iloc[:, 0].to_numpy())
        return np.concatenate(parts)

    def _batches(self, columns: list[str], size: int, start: int, stop: int) -> Iterator[Any]:
        """Rows ``start`` to ``stop`` of some columns."""
        ranges = zip(self._fragments, pairwise(self._starts), strict=True)
        try:
            for fragment, (place, last) in ranges:
                if last <= start or place >= stop:
                    continue
                for batch in _fragment_batches(fragment, columns, size):
                    low, high = max(start - place, 0), min(stop - place, batch.num_rows)
                    place += batch.num_rows
                    if low < high:
                        yield batch.slice(low, high - low).to_pandas(ignore_metadata=True)
                    if place >= stop:
                        return
                if place != last:
                    raise ValueError(f"a part must have {last} rows so far, but has {place}")
        except FairIJError:
            raise
        except ARROW_ERRORS as error:
            raise InvalidInputError(f"The data set cannot be read: {error}") from None

    def _check(self, names: tuple[str, ...]) -> None:
        missing = [name for name in names if name not in self._names]
        if missing:
            raise InvalidInputError(
                f"The data set has no column {missing[0]!r}; it has "
                f"{', '.join(map(repr, self._names[:20]))}."
            )


def _fragment_rows(fragment: Any) -> int:
    groups = getattr(fragment, "row_groups", None)  # `count_rows` would count the whole file
    return fragment.count_rows() if groups is None else sum(group.num_rows for group in groups)


def _fragment_batches(fragment: Any, columns: list[str], size: int) -> Iterator[Any]:
    """The rows of a fragment in order, not read ahead: that would hold several chunks."""
    arrow: Any = import_module("pyarrow.dataset")
    if _is_ipc(fragment):
        yield from _ipc_batches(fragment, columns, size)
        return
    if getattr(fragment, "format", None) != arrow.ParquetFileFormat():  # or it has options
        at_once = {"batch_readahead": 0, "fragment_readahead": 0, "use_threads": False}
        batches = fragment.to_batches(columns=columns, batch_size=size, **at_once)
        yield from map(checked, batches)
        return
    # the scan of a data set would hold a whole row group, which may be the whole file
    parquet: Any = import_module("pyarrow.parquet")
    with fragment.open() as opened:
        file = parquet.ParquetFile(
            opened, metadata=fragment.metadata, pre_buffer=False, buffer_size=COLUMN_BUFFER
        )
        groups = [group.id for group in fragment.row_groups]
        for batch in file.iter_batches(size, groups, columns, use_threads=False):
            yield batch.select(columns)  # they come in the order of the file


def _ipc_batches(fragment: Any, columns: list[str], size: int) -> Iterator[Any]:
    """The rows of an Arrow file. A scan of it would use its offsets before they are checked."""
    pa, ipc, arrow = map(import_module, ("pyarrow", "pyarrow.ipc", "pyarrow.dataset"))
    by_folder = arrow.get_partition_keys(fragment.partition_expression)
    with fragment.open() as opened:
        names = ipc.open_file(opened).schema.names
        wanted = sorted(place for place, name in enumerate(names) if name in columns)
        reader = ipc.open_file(opened, options=ipc.IpcReadOptions(included_fields=wanted))
        for place in range(reader.num_record_batches):
            batch = checked(reader.get_batch(place))
            parts = []
            for name in columns:
                if name in batch.schema.names:
                    parts.append(batch.column(name))
                else:  # from the name of a folder, or of other files
                    parts.append(pa.repeat(pa.scalar(by_folder.get(name)), batch.num_rows))
            whole = pa.record_batch(parts, names=columns)
            for first in range(0, whole.num_rows, size):
                yield whole.slice(first, size)


def _is_ipc(fragment: Any) -> bool:
    arrow: Any = import_module("pyarrow.dataset")
    form = getattr(fragment, "format", None)
    return form == arrow.IpcFileFormat() and hasattr(fragment, "open")


def _feature_names(features: Any) -> tuple[str, ...]:
    if isinstance(features, (str, bytes)) or not isinstance(features, Iterable):
        raise InvalidInputError(
            "`features` must name the columns that the model takes, in order, as in "
            f"['age', 'wage']; got {features!r}."
        )
    if not (names := tuple(features)):
        raise InvalidInputError("`features` must name at least one column.")
    return names


def _format(paths: str | list[str]) -> str:
    """Arrow's name for the format of the files, by suffix."""
    names = _files(paths) if isinstance(paths, str) else paths
    ipc = [name for name in names if name.endswith(IPC_SUFFIXES)]
    others = [name for name in names if name.endswith(PARQUET_SUFFIXES)]
    if ipc and others:
        raise InvalidInputError(
            "The files of a data set must be of one format, but there are Arrow files "
            f"({ipc[0]!r}) and Parquet files ({others[0]!r}): give files of one format."
        )
    return "ipc" if ipc else "parquet"


def _files(path: str) -> list[str]:
    """The path of a file, or the paths of what Arrow finds in a folder."""
    if not os.path.isdir(path):
        return [path]
    inside = sorted(file.relative_to(path).as_posix() for file in Path(path).rglob("*"))
    return [os.path.join(path, name) for name in inside if not re.search("(^|/)[._]", name)]
