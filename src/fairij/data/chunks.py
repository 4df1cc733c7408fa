"""Chunks of rows as sources give them: arrays, frames, tensors, or tuples or dicts of those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor


def table_rows(table: Any) -> int:
    if isinstance(table, (Mapping, tuple)):
        return table_rows(next(iter(table.values() if isinstance(table, Mapping) else table)))
    return len(table)


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
