"""What must be equal on all processes; an error says what is not, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

from fairij.data.rows import Columns, processes
from fairij.errors import InvalidInputError
from fairij.scale.collectives import collected


def check_agreement(facts: Callable[[], dict[str, str]]) -> None:
    """Raise on every process unless all have the same facts; does nothing on one process."""
    if processes() == 1:
        return
    by_process = collected(facts)
    for name in sorted(set().union(*by_process)):
        values = [facts_there.get(name) for facts_there in by_process]
        other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            raise InvalidInputError(
                f"All processes must have the same {name}, but process {other} has "
                f"{values[other]} and process 0 has {values[0]}: load the same model, rows and "
                "settings on each."
            )


def shared_seed(seed: int) -> int:
    """The seed of process 0, on all of them."""
    return seed if processes() == 1 else collected(lambda: seed, step="a fit")[0]


def columns_of(X: Any) -> dict[str, Columns]:
    """The columns of each array in a table, by its name in messages."""
    if isinstance(X, Mapping):
        return {f"`X[{name!r}]`": Columns.of(part) for name, part in X.items()}
    if isinstance(X, tuple):
        return {f"`X[{place}]`": Columns.of(part) for place, part in enumerate(X)}
    return {"`X`": Columns.of(X)}


def check_columns(by_process: list[dict[str, Columns]]) -> None:
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


def _first_difference(left: Columns, right: Columns) -> tuple[str, str]:
    """Words for the first difference between two tables; equal if there is none."""
    if left.width != right.width:
        return _width(left), _width(right)
    if left.names is None or right.names is None:
        return _naming(left), _naming(right)
    for place, (one, other) in enumerate(zip_longest(left.names, right.names)):
        if one != other:
            return f"{one!r} at place {place}", f"{other!r} there"
    return "", ""


def _width(columns: Columns) -> str:
    return f"{' x '.join(map(str, columns.width)) or 'no'} columns"


def _naming(columns: Columns) -> str:
    return "columns without names" if columns.names is None else "columns with names"


def check_rows(by_process: list[int]) -> None:
    """Raise unless all processes have the same number of rows."""
    for rank, rows in enumerate(by_process):
        if rows != by_process[0]:
            raise InvalidInputError(
                f"`Shard.of` takes rows that all processes have, but process {rank} has {rows} of "
                f"them and process 0 has {by_process[0]}: give it the same rows on each, or give "
                "the rows of each process to `Shard`."
            )
