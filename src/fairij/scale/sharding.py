"""Rows that are spread over several processes, on `torch.distributed`.

Every process runs the same program on a `Shard`. `fairij.scale.collectives` has the exchanges.
"""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from fairij.data.checks import number_between
from fairij.data.hashing import rows_fingerprint
from fairij.data.rows import Columns, n_rows, named_column, part_of, parts_of, processes, take_rows
from fairij.data.sources import Name, Source, joined_tables, row_numbers
from fairij.errors import InvalidInputError
from fairij.fairness.groups import unwrapped
from fairij.scale.collectives import collected, odd_process
from fairij.scale.meeting import MEET_SECONDS, PATIENCE, end_watch, meet, watch


def start(*, patience: float = PATIENCE) -> int:
    """Join the processes that `torchrun` started, if any; returns the number of this process.

    A process that the others do not join gives up after five minutes. One that they do not follow
    to an exchange gives up after ``patience`` seconds. It names those that did not come.
    """
    number_between("patience", patience, 0.0)
    if "RANK" in os.environ and not dist.is_initialized():
        store, place = meet(MEET_SECONDS)
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(
            backend,
            store=store,
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=patience),
        )
        watch(store, place, patience)
        atexit.register(_leave)
    return dist.get_rank() if dist.is_initialized() else 0


def _leave() -> None:
    """Leave the group; if a cycle kept it alive, it would abort the process at its end."""
    end_watch()
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()


class Shard(Source):
    """The rows of one process. The table is the rows of all processes, one after the other.

    Give labels and weights for the rows of this process too.

    Parameters
    ----------
    X : array, frame, tensor, Source, or a tuple or dict of those
        The rows of this process, at least one.

    Examples
    --------
    >>> Shard(X)  # in a script that `torchrun` started, after `fairij.scale.sharding.start()`
    Traceback (most recent call last):
    fairij.errors.InvalidInputError: A `Shard` needs several processes that know of each other: ...
    """

    def __init__(self, X: Any) -> None:
        _check_started()
        self.local = X
        self.rank = dist.get_rank()
        of_all = collected(lambda: (n_rows(X), _columns_of(X)), step="the making of a `Shard`")
        _check_columns([columns for _, columns in of_all])
        self.counts: list[int] = [rows for rows, _ in of_all]
        if 0 in self.counts:
            raise InvalidInputError(
                "Every process needs at least one row of its own, but process "
                f"{self.counts.index(0)} has none."
            )
        self.start = sum(self.counts[: self.rank])
        self.shape = (sum(self.counts), *tuple(getattr(X, "shape", (0,)))[1:])
        self.columns = getattr(X, "columns", None)

    @classmethod
    def of(cls, X: Any) -> Shard:
        """The part of this process of rows that all processes can read."""
        _check_started()
        counts = collected(lambda: n_rows(X), step="the making of a `Shard` by `Shard.of`")
        if (other := odd_process(counts)) is not None:
            raise InvalidInputError(
                f"`Shard.of` takes rows that all processes have, but process {other} has "
                f"{counts[other]} of them and process 0 has {counts[0]}: give it the same rows on "
                "each, or give the rows of each process to `Shard`."
            )
        rank, size, rows = dist.get_rank(), len(counts), counts[0]
        return cls(part_of(X, np.arange(rows * rank // size, rows * (rank + 1) // size)))

    @property
    def own(self) -> slice:
        """The rows of this process among those of all."""
        return slice(self.start, self.start + self.counts[self.rank])

    def chunks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        raise InvalidInputError("A `Shard` has only its own rows at hand; see `Shard.local`.")

    def column(self, name: Name) -> NDArray[Any]:
        return gathered_values(named_column(self.local, name))

    def take(self, index: Any) -> Any:
        """Some rows of all processes, on every process."""
        wanted = row_numbers(index)
        own = wanted[(wanted >= self.own.start) & (wanted < self.own.stop)] - self.start
        parts = collected(lambda: take_rows(self.local, own) if len(own) else None)
        owner = np.searchsorted(np.cumsum(self.counts), wanted, side="right")
        table = joined_tables([part for part in parts if part is not None])
        return take_rows(table, np.argsort(np.argsort(owner, kind="stable"), kind="stable"))

    def hashed(self, size: int) -> Iterator[Any]:
        """One fingerprint per process, of its own rows."""
        yield np.array(collected(lambda: rows_fingerprint(self.local)))

    def subset(self, index: NDArray[np.int64]) -> Shard:
        own = (index >= self.own.start) & (index < self.own.stop)
        return Shard(part_of(self.local, index[own] - self.start))


def _check_started() -> None:
    if not (dist.is_available() and dist.is_initialized()):
        raise InvalidInputError(
            "A `Shard` needs several processes that know of each other: start them with "
            "`torchrun` and call `fairij.scale.sharding.start()` first."
        )


def _columns_of(X: Any) -> dict[str, Columns]:
    """The columns of each array in a table, by its name in messages."""
    several = isinstance(X, (Mapping, tuple))
    return {
        f"`X[{name!r}]`" if several else "`X`": Columns.of(part)
        for name, part in parts_of(X).items()
    }


def _check_columns(by_process: list[dict[str, Columns]]) -> None:
    """Raise unless the tables of all processes have the same columns."""
    first, cure = by_process[0], "prepare the rows of all processes in the same way."
    for rank, other in enumerate(by_process):
        if other.keys() != first.keys():
            raise InvalidInputError(
                f"The rows of a `Shard` must be in the same form on all processes, but process "
                f"{rank} has {', '.join(other)} and process 0 has {', '.join(first)}; {cure}"
            )
        for name, columns in other.items():
            there, here = _first_difference(columns, first[name])
            if there != here:
                raise InvalidInputError(
                    f"{name} of a `Shard` must have the same columns in the same order on all "
                    f"processes, but process {rank} has {there} and process 0 has {here}; {cure}"
                )


def _first_difference(*tables: Columns) -> tuple[str, ...]:
    """Words for the first difference between two tables; equal if there is none."""
    left, right = tables
    if left.width != right.width:
        return tuple(f"{table.size or 'no'} columns" for table in tables)
    if left.names is None or right.names is None:
        return tuple(f"columns with{'out' if t.names is None else ''} names" for t in tables)
    for place, (one, other) in enumerate(zip_longest(left.names, right.names)):
        if one != other:
            return f"{one!r} at place {place}", f"{other!r} there"
    return "", ""


def gathered_values(values: Any) -> Any:
    """Labels, weights or groups of all processes, one after the other."""
    name = "What is given for each row"
    of_all = collected(lambda: (_plain(values), {name: Columns.of(values)}))
    _check_columns([columns for _, columns in of_all])
    return np.concatenate([array for array, _ in of_all])


def _plain(values: Any) -> NDArray[Any]:
    """The values as an array; in a list with text, numbers stay numbers."""
    values = pd.DataFrame(values) if isinstance(values, dict) else unwrapped(values)
    array = np.asarray(values)
    if array.ndim == 0:
        raise InvalidInputError(
            "Labels, weights and groups of a `Shard` must have a value for each of its rows, got "
            f"{values!r}: pass the values; the name of a column is for rows that are a `Source`."
        )
    return np.asarray(values, object) if array.dtype.kind in "US" else array


def whole_column(X: Any, values: Any) -> Any:
    """``values`` for all rows: by name from a source, from all processes for a `Shard`."""
    if processes() > 1:
        _check_given_alike(X, values)
    if isinstance(X, Shard) and values is not None:
        return X.column(values) if isinstance(values, (str, int)) else gathered_values(values)
    return named_column(X, values)


def _check_given_alike(X: Any, values: Any) -> None:
    """Raise on every process unless all or none have a `Shard`, and all or none have values."""
    of_all = collected(lambda: (isinstance(X, Shard), values is not None), step="a fit")
    requirements = ("Rows must be a `Shard`", "Labels, weights and groups must be given")
    for said, what in zip(zip(*of_all, strict=True), requirements, strict=True):
        if len(set(said)) > 1:
            raise InvalidInputError(
                f"{what} on all processes or on none, but this is so on process "
                f"{_those(said, True)} and not on process {_those(said, False)}: pass the same "
                "arguments on each, for its own rows."
            )


def _those(said: tuple[bool, ...], answer: bool) -> str:
    ranks = [str(rank) for rank, found in enumerate(said) if found is answer]
    return ", ".join(ranks[:5]) + (", ..." if len(ranks) > 5 else "")


def shared_out(X: Any, *columns: Any) -> tuple[Any, ...]:
    """Rows and columns that every process has: on several processes, the part of this one."""
    if processes() == 1:
        return X, *columns
    shard = Shard.of(X)
    index = np.arange(shard.own.start, shard.own.stop)
    return shard, *(None if c is None else take_rows(c, index) for c in columns)
