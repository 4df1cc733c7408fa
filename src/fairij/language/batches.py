"""Rows for training: vectors or tokens on a device, in shuffled batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from fairij.data.rows import take_rows, to_tensors
from fairij.language.texts import padded
from fairij.models.text.tokens import Tokenise, Tokens, bucketed, lengths, longest_first

TextRows = Tensor | dict[str, Tensor]  # vectors (N, D), or tokens
POOL = 50  # rows are sorted by length within the rows of this many batches


def on_device(
    X: Any,
    device: torch.device,
    *,
    pad: int | None = 0,
    dtype: torch.dtype = torch.float32,
    tokenise: Tokenise | None = None,
) -> TextRows:
    """Numbers as a tensor (N, D); tokenised rows (or texts) as padded tokens."""
    if _holds_numbers(X):
        vectors: Tensor = to_tensors(X, dtype=dtype, device=device)
        return vectors
    return padded(X, device, pad=pad, tokenise=tokenise)


def _holds_numbers(X: Any) -> bool:
    if isinstance(X, pd.DataFrame):
        return all(pd.api.types.is_numeric_dtype(kind) for kind in X.dtypes)
    return isinstance(X, Tensor) or (isinstance(X, np.ndarray) and X.dtype.kind in "biufc")


def count(rows: TextRows) -> int:
    """The number of rows."""
    return len(rows["input_ids"] if isinstance(rows, Mapping) else rows)


def shuffled(
    rows: TextRows, batch_size: int, generator: torch.Generator, size: Tensor | None
) -> Iterator[tuple[TextRows, Tensor]]:
    """Batches in random order, each with its row numbers.

    ``size`` are the lengths of rows of tokens. Rows of similar length share a batch, and tokens
    are cut to the longest row of the batch.
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


def sizes(rows: TextRows) -> Tensor | None:
    """The lengths of rows of tokens; None for vectors."""
    return lengths(rows).cpu() if isinstance(rows, Mapping) else None


def run(module: Any, rows: TextRows) -> Tensor:
    """The outputs of a module on some rows, (N,) or (N, C)."""
    out = module(**rows) if isinstance(rows, Mapping) else module(rows)
    out = getattr(out, "logits", out)
    return out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out


class InHalves(nn.Module):
    """A model that takes row numbers of tokens. It runs the shorter half of rows separately."""

    def __init__(self, module: nn.Module, rows: Tokens) -> None:
        super().__init__()
        self.module, self.rows = module, rows

    def forward(self, index: Tensor) -> Tensor:
        tokens = take_rows(self.rows, index)
        size = lengths(tokens)
        order = torch.argsort(size)
        parts = []
        for half in order.split(-(-len(order) // 2)):
            width = max(int(size[half].max()), 1)
            parts.append(run(self.module, {n: t[half, :width] for n, t in tokens.items()}))
        return torch.cat(parts)[torch.argsort(order)]


def run_all(module: Any, rows: TextRows, *, budget: int = 2**17) -> Tensor:
    """Outputs on all rows, in order, without a graph."""
    with torch.no_grad():
        if not isinstance(rows, Mapping):
            return torch.cat([run(module, part) for part in rows.split(budget)]).float()
        order = longest_first(rows)
        parts = [run(module, part) for part in bucketed(take_rows(rows, order), budget)]
        return torch.cat(parts).float()[torch.argsort(order)]
