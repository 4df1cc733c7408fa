"""Check that the rows, labels and groups for training fit the model and each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairij.data.checks import zeros_and_ones
from fairij.data.rows import speaking_of, take_rows
from fairij.errors import InvalidInputError
from fairij.fairness.groups import vector
from fairij.language.batches import TextRows, count, on_device, run
from fairij.models.text.tokens import bucketed, check_lengths, longest_first


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
    truth = _labels(f"y{ending}", y, count(rows), outputs)
    codes = None
    if with_groups:
        if groups is None:
            raise InvalidInputError(
                f"`groups{ending}` must be given with a `penalty`, got None: pass `groups` and "
                "`groups_val`."
            )
        codes = zeros_and_ones(f"groups{ending}", groups, count(rows))
    return TrainingPart(rows, torch.as_tensor(truth, device=first.device).float(), codes)


def _outputs(module: nn.Module, rows: TextRows) -> int:
    """The number of outputs of the model, found by running it on two rows."""
    if count(rows) == 0:
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
    if z.ndim not in (1, 2) or len(z) != count(few):
        raise InvalidInputError(
            "`model` must give one output, or one per class, for each row; got outputs of shape "
            f"{tuple(z.shape)} for {count(few)} rows."
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
