"""Rows for training: vectors or tokens on a device, in shuffled batches of like length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from fairij.datasets._files import PathLike
from fairij.errors import InvalidInputError
from fairij.models._tokens import bucketed, lengths, longest_first, token_rows
from fairij.models.rows import take_rows

Rows = Tensor | dict[str, Tensor]  # vectors (N, D), or tokens
POOL = 50  # batches are sorted by length within this many at a time
READERS = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".jsonl": pd.read_json}


def on_device(X: Any, device: torch.device, *, pad: int = 0) -> Rows:
    """Vectors as a float tensor, anything with `input_ids` as padded tokens."""
    if isinstance(X, (np.ndarray, Tensor)) and X.dtype not in (object,):
        return torch.as_tensor(X).to(device)
    return token_rows(X, device=device, pad=pad)


def count(rows: Rows) -> int:
    return len(rows["input_ids"] if isinstance(rows, Mapping) else rows)


def shuffled(
    rows: Rows, batch_size: int, generator: torch.Generator, size: Tensor | None
) -> Iterator[tuple[Rows, Tensor]]:
    """Batches in random order with the numbers of their rows; tokens cut to the batch's length.

    ``size`` are the rows' lengths: batches of tokens are of like length, drawn anew each time.
    """
    order = torch.randperm(count(rows), generator=generator)
    if not isinstance(rows, Mapping) or size is None:
        order = order.to(rows.device)  # type: ignore[union-attr]
        for index in order.split(batch_size):
            yield take_rows(rows, index), index
        return
    pools = [pool[torch.argsort(size[pool])] for pool in order.split(POOL * batch_size)]
    batches = [index for pool in pools for index in pool.split(batch_size)]
    for place in torch.randperm(len(batches), generator=generator).tolist():
        index = batches[place]
        width = max(int(size[index].max()), 1)
        index = index.to(rows["input_ids"].device)
        yield {name: part[index, :width] for name, part in rows.items()}, index


def sizes(rows: Rows) -> Tensor | None:
    return lengths(rows).cpu() if isinstance(rows, Mapping) else None


def run(module: Any, rows: Rows) -> Tensor:
    """A module's outputs on some rows, (N,) or (N, C)."""
    out = module(**rows) if isinstance(rows, Mapping) else module(rows)
    out = getattr(out, "logits", out)
    return out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out


class InHalves(nn.Module):
    """A model on padded tokens that runs the shorter half of the rows apart, cut to its length."""

    def __init__(self, module: nn.Module, pad: int) -> None:
        super().__init__()
        self.module, self.pad = module, pad

    def forward(self, input_ids: Tensor) -> Tensor:
        tokens = {"input_ids": input_ids, "attention_mask": (input_ids != self.pad).long()}
        size = lengths(tokens)
        order = torch.argsort(size)
        parts = []
        for index in order.split(-(-len(order) // 2)):
            width = max(int(size[index].max()), 1)
            parts.append(run(self.module, {n: t[index, :width] for n, t in tokens.items()}))
        return torch.cat(parts)[torch.argsort(order)]


def run_all(module: Any, rows: Rows, *, budget: int = 2**17) -> Tensor:
    """Outputs on all rows without a graph, in their order."""
    with torch.no_grad():
        if not isinstance(rows, Mapping):
            return torch.cat([run(module, part) for part in rows.split(budget)]).float()
        order = longest_first(rows)
        parts = [run(module, part) for part in bucketed(take_rows(rows, order), budget)]
        return torch.cat(parts).float()[torch.argsort(order)]


def labelled(source: Any, *, text: str = "text", label: str = "label") -> tuple[Any, Any]:
    """Texts and labels from a `datasets.Dataset`, a DataFrame, or a csv, parquet or jsonl file."""
    if isinstance(source, (str, Path)):
        source = _read(source)
    found: Any = getattr(source, "column_names", None)
    names = list(getattr(source, "columns", ()) if found is None else found)
    missing = [name for name in (text, label) if name not in names]
    if missing:
        raise InvalidInputError(f"`source` must have the columns {missing}; found {names}.")
    return list(source[text]), np.asarray(source[label])


def _read(path: PathLike) -> pd.DataFrame:
    ending = Path(path).suffix
    if ending not in READERS:
        raise InvalidInputError(f"`source` must end in one of {sorted(READERS)}, got {path}.")
    options = {"lines": True} if ending == ".jsonl" else {}
    return READERS[ending](path, **options)  # type: ignore[operator]
