"""Checked rows for training: vectors or tokens on a device, in batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairij.data.checks import zeros_and_ones
from fairij.data.rows import n_rows, speaking_of, take_rows, to_tensors
from fairij.errors import InvalidInputError
from fairij.fairness.groups import vector
from fairij.language.texts import padded
from fairij.models.text.tokens import (
    Tokenise,
    Tokens,
    bucketed,
    check_lengths,
    lengths,
    longest_first,
    tokens_at_once,
)

TextRows = Tensor | dict[str, Tensor]  # vectors (N, D), or tokens
VECTORS = 2**17  # run at once
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
    numbers = isinstance(X, Tensor) or (isinstance(X, np.ndarray) and X.dtype.kind in "biufc")
    if isinstance(X, pd.DataFrame):
        numbers = all(pd.api.types.is_numeric_dtype(kind) for kind in X.dtypes)
    if numbers:
        return to_tensors(X, dtype=dtype, device=device)
    return padded(X, device, pad=pad, tokenise=tokenise)


def shuffled(
    rows: TextRows, batch_size: int, generator: torch.Generator, size: Tensor | None
) -> Iterator[tuple[TextRows, Tensor]]:
    """Batches in random order, each with its row numbers; tokens by their lengths ``size``."""
    order = torch.randperm(n_rows(rows), generator=generator)
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


def run_all(module: Any, rows: TextRows) -> Tensor:
    """Outputs on all rows, in order, without a graph."""
    with torch.no_grad():
        if not isinstance(rows, Mapping):
            parts = [run(module, part) for part in rows.split(VECTORS)]
            return torch.cat(parts).float()
        order = longest_first(rows)
        most = tokens_at_once(rows["input_ids"].device)
        parts = [run(module, part) for part in bucketed(take_rows(rows, order), most)]
        return torch.cat(parts).float()[torch.argsort(order)]


@dataclass(frozen=True)
class TrainingPart:
    """Rows on the model's device, with labels and, for a penalty, groups."""

    rows: TextRows
    y: Tensor
    groups: NDArray[np.int64] | None


def given_part(
    module: nn.Module, ending: str, X: Any, y: Any, groups: Any, with_groups: bool
) -> TrainingPart:
    """Checked rows, labels and groups. ``ending`` is the end of their names in messages."""
    first = next(p for p in module.parameters() if p.requires_grad)
    pad = getattr(getattr(module, "config", None), "pad_token_id", None)
    tokenise = getattr(module, "tokenise", None)
    with speaking_of(f"X{ending}"):
        rows = on_device(X, first.device, pad=pad, dtype=first.dtype, tokenise=tokenise)
        # a table of embeddings needs whole numbers
        looked_up = any(isinstance(m, (nn.Embedding, nn.EmbeddingBag)) for m in module.modules())
        if isinstance(rows, Tensor) and not rows.is_floating_point() and not looked_up:
            rows = rows.to(first.dtype)
        outputs = _outputs(module, rows)
    truth = _labels(f"y{ending}", y, n_rows(rows), outputs)
    codes = None
    if with_groups:
        if groups is None:
            raise InvalidInputError(
                f"`groups{ending}` must be given with a `penalty`, got None: pass `groups` and "
                "`groups_val`."
            )
        codes = zeros_and_ones(f"groups{ending}", groups, n_rows(rows))
    return TrainingPart(rows, torch.as_tensor(truth, device=first.device).float(), codes)


def _outputs(module: nn.Module, rows: TextRows) -> int:
    """The number of outputs of the model, found by running it on two rows."""
    if n_rows(rows) == 0:
        raise InvalidInputError("`X` must have at least one row, got none.")
    if isinstance(rows, dict):
        check_lengths("X", rows, module)
        few: TextRows = next(bucketed(take_rows(rows, longest_first(rows)[:2]), 2**62))
    else:
        few = rows[:2]
    module.eval()
    try:
        with torch.no_grad():
            z = run(module, few)
    except (InvalidInputError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise InvalidInputError(
            f"`X` must be rows that the model takes, but it raised: {error}. Give vectors as wide "
            "as its first layer, or rows from its own tokenizer."
        ) from error
    if z.ndim not in (1, 2) or len(z) != n_rows(few):
        raise InvalidInputError(
            "`model` must give one output, or one per class, for each row; got outputs of shape "
            f"{tuple(z.shape)} for {n_rows(few)} rows."
        )
    return 1 if z.ndim == 1 else z.shape[1]


def _labels(name: str, y: Any, rows: int, outputs: int) -> NDArray[Any]:
    """Labels for the loss: 0 and 1 for one output, output numbers for several."""
    if outputs == 1:
        return zeros_and_ones(name, y, rows)
    truth = vector(name, y, rows)
    numbers = truth.dtype.kind in "biuf"
    bad = ~np.isin(truth, np.arange(outputs)) if numbers else np.ones(rows, dtype=bool)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidInputError(
            f"`{name}` must be 0 to {outputs - 1} for a model with {outputs} outputs: row {row} "
            f"holds {truth[row : row + 1].tolist()[0]!r}; give the number of the label's output."
        )
    return truth.astype(np.int64)
