"""Short names for what a run was given: equal for equal rows, different for any others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import n_rows, take_rows
from fairij.data.sources import READ_ROWS, Source, part_of_table
from fairij.scale.collectives import processes, together
from fairij.scale.sharding import Shard

HASHED_ROWS = 100_000
DENSE_BYTES = 2**26


def meanwhile(work: Callable[[], str], X: Any) -> Callable[[], str]:
    """A hash that is made beside what comes next; calling what is returned waits for it.

    Rows that are read from elsewhere, or with other processes, are left until it is called.
    """
    if processes() > 1 or any(isinstance(part, Source) for part in _parts(X)):
        return work
    beside = ThreadPoolExecutor(1)
    found = beside.submit(work)
    beside.shutdown(wait=False)
    return found.result


def fingerprint(values: Tensor) -> str:
    """A short hash of a tensor."""
    content = values.detach().cpu().contiguous().numpy().tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


def data_fingerprint(X: Any, y: Any, *, every_row: bool = False) -> str:
    """A hash of the rows and labels; of an even sample of them beyond a hundred thousand.

    With ``every_row`` all of them are read, a block at a time.
    """
    rows = n_rows(X)
    step = 1 if every_row else max(1, -(-rows // HASHED_ROWS))
    digest = hashlib.sha256(f"{rows} {step}".encode())
    for part in [*_parts(X), y]:
        if every_row:
            tables = _blocks(part)
        elif step == 1 and not isinstance(part, Source):
            tables = iter([part])
        else:
            tables = iter([take_rows(part, np.arange(0, rows, step))])
        for table in tables:
            _add(digest, table)
    return digest.hexdigest()


def _parts(X: Any) -> list[Any]:
    return list(X.values()) if isinstance(X, Mapping) else list(X) if isinstance(X, tuple) else [X]


def _blocks(part: Any) -> Iterator[Any]:
    """All rows of one part of a table, a block at a time; of a `Shard`, a hash of each share."""
    if isinstance(part, Shard):
        yield np.array([str(share) for share in together(lambda: _share(part))])
    elif isinstance(part, Source):
        yield from map(_by_kind, part.chunks(READ_ROWS))
    else:
        table = part.tocsr() if hasattr(part, "tocsr") else part
        table = table if hasattr(table, "shape") else _array(table)
        for start in range(0, table.shape[0], READ_ROWS):
            yield _by_kind(part_of_table(table, slice(start, start + READ_ROWS)))


def _by_kind(table: Any) -> Any:
    """A frame of several kinds as its columns: numbers beside text would all become text."""
    if isinstance(table, pd.DataFrame) and len(set(table.dtypes)) > 1:
        return tuple(table.iloc[:, i].to_numpy() for i in range(table.shape[1]))
    return table


def _share(shard: Shard) -> str:
    """A hash of the rows that this process has of a `Shard`."""
    digest = hashlib.sha256()
    for part in _parts(shard.local):
        for table in _blocks(part):
            _add(digest, table)
    return digest.hexdigest()


def _add(digest: Any, table: Any) -> None:
    """Hash some rows: an array, frame, tensor or sparse matrix, or several of those."""
    if isinstance(table, (Mapping, tuple)):
        for part in _parts(table):
            _add(digest, part)
        return
    if isinstance(table, Tensor):
        wide = table.float() if table.dtype == torch.bfloat16 else table  # numpy lacks it
        table = wide.detach().cpu().numpy()
    for array in _entries(table) if hasattr(table, "toarray") else [_array(table)]:
        if array.dtype.kind in "OU":
            _add_values(digest, array)
            continue
        digest.update(f"{array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _array(table: Any) -> NDArray[Any]:
    """Texts, and rows of unlike lengths, as objects: no array as wide as the longest is made."""
    if not isinstance(table, list):
        return np.asarray(table)
    if not any(isinstance(value, str) for value in table[:1]):
        with suppress(ValueError):
            return np.asarray(table)
    rows = np.empty(len(table), object)
    rows[:] = table
    return rows


def _add_values(digest: Any, values: NDArray[Any]) -> None:
    digest.update(f"{values.shape} values".encode())
    for value in values.ravel():
        whole = value.tolist() if isinstance(value, np.ndarray) else value
        text = str(whole).encode("utf-8", "surrogatepass")
        digest.update(f"{len(text)} ".encode() + text)


def _entries(X: Any) -> list[NDArray[Any]]:
    """A sparse matrix as if it were dense; a large one as its entries and their places."""
    if X.shape[0] * X.shape[-1] * X.dtype.itemsize <= DENSE_BYTES:
        return [X.toarray()]
    csr = X.tocsr(copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return [csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64)]
