"""Fingerprints: hashes that are equal for equal content and differ for any other content.

Every fingerprint is the SHA-256 of short descriptions and raw bytes. Saved edits, result folders
and checkpoints contain fingerprints, so what is hashed must never change.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import n_rows, parts_of, processes, take_rows
from fairij.data.sources import READ_ROWS, Source, part_of_table

HASHED_ROWS = 100_000
DENSE_BYTES = 2**26  # larger sparse matrices are hashed by their entries


def raw_bytes(values: NDArray[Any] | Tensor) -> memoryview:
    """The bytes of an array or tensor in row-major order."""
    if isinstance(values, Tensor):
        flat = values.detach().cpu().contiguous().view(-1)
        values = (flat.view(torch.uint8) if flat.numel() else flat).numpy()
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def tensor_fingerprint(values: Tensor, *, digits: int = 16) -> str:
    """A hash of a tensor's bytes."""
    return hashlib.sha256(raw_bytes(values)).hexdigest()[:digits]


def tensors_fingerprint(named: Iterable[tuple[str, Tensor]], about: str = "") -> str:
    """A hash of tensors with their names, shapes and types, on any device."""
    digest = hashlib.sha256(about.encode())
    for name, part in named:
        digest.update(described(name, part).encode())
        digest.update(raw_bytes(part))
    return digest.hexdigest()


def described(name: str, part: Tensor) -> str:
    """A tensor's name, shape and type."""
    return f"{name} {tuple(part.shape)} {part.dtype}"


def state_fingerprint(*parts: Any) -> str:
    """A hash of a fitted object's state, the same after saving and loading."""
    digest = hashlib.sha256()
    _add_state(digest, parts, frozenset())
    return digest.hexdigest()


def _add_state(digest: Any, value: Any, inside: frozenset[int]) -> None:
    """Hash a value and all it contains; ``inside`` has the ids of the objects around it."""
    if id(value) in inside or isinstance(value, np.random.RandomState):
        return  # a cycle; or the position of a generator, which is no part of a model
    inside = inside | {id(value)}
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    elif hasattr(value, "tocsr"):
        value = value.tocsr()
        value = (value.shape, value.data, value.indices, value.indptr)
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        digest.update(f"{value.shape} {value.dtype.str}".encode())
        digest.update(raw_bytes(value))
    elif isinstance(value, (list, tuple, np.ndarray)):
        digest.update(f"sequence {len(value)}".encode())
        for part in value:
            _add_state(digest, part, inside)
    elif isinstance(value, (set, frozenset)):
        digest.update(repr(sorted(map(repr, value))).encode())
    elif isinstance(value, Mapping):
        digest.update(f"mapping {len(value)}".encode())
        for key, part in value.items():
            digest.update(repr(key).encode())
            _add_state(digest, part, inside)
    elif callable(value) and hasattr(value, "__qualname__"):
        digest.update(f"{value.__module__}.{value.__qualname__}".encode())
    elif hasattr(value, "__dict__"):
        digest.update(type(value).__qualname__.encode())
        _add_state(digest, vars(value), inside)
    elif " at 0x" not in (text := repr(value)):
        digest.update(f"{type(value).__name__} {text}".encode())
    else:  # compiled: it describes its state itself, as for pickling
        digest.update(type(value).__qualname__.encode())
        _add_state(digest, value.__getstate__(), inside)


def without_addresses(value: Any) -> str:
    """The text of a value, the same in every run: where an object lies is no part of it."""
    return re.sub("0x[0-9a-f]+", "", repr(value))


def data_fingerprint(X: Any, y: Any, *, every_row: bool = False) -> str:
    """A hash of rows and labels; beyond 100,000 rows, of an even sample unless ``every_row``."""
    rows = n_rows(X)
    step = 1 if every_row else max(1, -(-rows // HASHED_ROWS))
    digest = hashlib.sha256(f"{rows} {step}".encode())
    for part in (*parts_of(X).values(), y):
        if every_row:
            _add_every_row(digest, part)
        else:
            whole = step == 1 and not isinstance(part, Source)
            _add_rows(digest, part if whole else take_rows(part, np.arange(0, rows, step)))
    return digest.hexdigest()


def rows_fingerprint(X: Any) -> str:
    """A hash of all rows, read block by block."""
    digest = hashlib.sha256()
    for part in parts_of(X).values():
        _add_every_row(digest, part)
    return digest.hexdigest()


def in_background(work: Callable[[], str], X: Any) -> Callable[[], str]:
    """Start to hash the rows ``X`` in a thread if they are in memory; call the result to wait."""
    if processes() > 1 or any(isinstance(part, Source) for part in parts_of(X).values()):
        return work
    thread = ThreadPoolExecutor(1)
    found = thread.submit(work)
    thread.shutdown(wait=False)
    return found.result


def _add_every_row(digest: Any, part: Any) -> None:
    """Hash all rows of one part of a table, block by block."""
    for table in part.hashed(READ_ROWS) if isinstance(part, Source) else _blocks(part):
        if isinstance(table, pd.DataFrame) and len(set(table.dtypes)) > 1:
            # column by column: as one array, its numbers would become text
            table = tuple(table.iloc[:, i].to_numpy() for i in range(table.shape[1]))
        _add_rows(digest, table)


def _blocks(part: Any) -> Iterator[Any]:
    table = part.tocsr() if hasattr(part, "tocsr") else part
    table = table if hasattr(table, "shape") else _array(table)
    for start in range(0, table.shape[0], READ_ROWS):
        yield part_of_table(table, slice(start, start + READ_ROWS))


def _add_rows(digest: Any, table: Any) -> None:
    """Hash some rows: an array, frame, tensor or sparse matrix, or several of those."""
    if isinstance(table, (Mapping, tuple)):
        for part in parts_of(table).values():
            _add_rows(digest, part)
        return
    if isinstance(table, Tensor):
        wide = table.float() if table.dtype == torch.bfloat16 else table  # numpy lacks it
        table = wide.detach().cpu().numpy()
    for array in _entries(table) if hasattr(table, "toarray") else [_array(table)]:
        if array.dtype.kind not in "OU":
            digest.update(f"{array.shape} {array.dtype}".encode())
            digest.update(raw_bytes(array))
            continue
        digest.update(f"{array.shape} values".encode())
        for value in array.ravel():
            whole = value.tolist() if isinstance(value, np.ndarray) else value
            text = str(whole).encode("utf-8", "surrogatepass")
            digest.update(f"{len(text)} ".encode() + text)


def _array(table: Any) -> NDArray[Any]:
    """A table as an array; texts and rows of different lengths as objects."""
    # an array of text would make every entry as wide as the longest
    if not (isinstance(table, list) and table and isinstance(table[0], str)):
        with suppress(ValueError):
            return np.asarray(table)
    rows = np.empty(len(table), object)
    rows[:] = table
    return rows


def _entries(X: Any) -> list[NDArray[Any]]:
    """A sparse matrix as a dense one; a large one as its entries and their places."""
    if X.shape[0] * X.shape[-1] * X.dtype.itemsize <= DENSE_BYTES:
        return [X.toarray()]
    csr = X.tocsr(copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return [csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64)]
