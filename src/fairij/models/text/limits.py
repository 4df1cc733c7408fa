"""How long a text may be."""

from __future__ import annotations

from typing import Any

from torch import nn

from fairij.errors import InvalidInputError
from fairij.models.text.tokens import Tokens, lengths
from fairij.models.text.triggers import TriggerTokens

UNLIMITED = 2**30  # a tokenizer without a limit reports a larger number
OTHERWISE = 512


def longest_text(model: Any, tokenizer: Any) -> int:
    """How many tokens a text may have, including those that the tokenizer adds.

    The smaller of the tokenizer's limit and the model's number of positions; 512 if both are
    unknown.
    """
    allowed = getattr(tokenizer, "model_max_length", None)
    known = allowed is not None and 0 < allowed < UNLIMITED
    limits = [int(allowed)] if known else []  # type: ignore[arg-type]
    return min([*limits, *_positions(model)], default=OTHERWISE)


def _positions(model: Any) -> list[int]:
    """The number of positions in the model's settings, if it is there."""
    most = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if not isinstance(most, int) or most < 1:
        return []
    starts = [table.padding_idx + 1 for table in _tables(model) if table.padding_idx is not None]
    return [most - max(starts, default=0) - _added(model)]


def _tables(model: Any) -> list[nn.Embedding]:
    """Tables of learnt positions; those with a padding index start after it, as RoBERTa's do."""
    named = model.named_modules() if isinstance(model, nn.Module) else ()
    return [
        part
        for name, part in named
        if isinstance(part, nn.Embedding)
        and ("position" in (last := name.rpartition(".")[2]) or last == "wpe")
    ]


def _added(model: Any) -> int:
    """Tokens that the model adds to every row: triggers, or a prompt of `peft`."""
    triggers = len(model.triggers) if isinstance(model, TriggerTokens) else 0
    prompts = getattr(model, "peft_config", None) or {}
    virtual = [getattr(part, "num_virtual_tokens", None) or 0 for part in prompts.values()]
    return triggers + max(virtual, default=0)


def most_tokens(model: Any) -> int | None:
    """How many tokens a row can have; None if the model has no table of positions."""
    return min(_positions(model), default=None) if _tables(model) else None


def check_lengths(name: str, tokens: Tokens, model: Any) -> None:
    """Raise if a row has no tokens, or more than the model has positions for."""
    empty = ~(tokens["attention_mask"] != 0).any(1)
    if bool(empty.any()):
        row = int(empty.nonzero()[0])
        raise InvalidInputError(
            f"`{name}` must have at least one token in every row, but row {row} has none: drop "
            "such rows."
        )
    size, most = lengths(tokens), most_tokens(model)
    if most is not None and int(size.max()) > most:
        row = int(size.argmax())
        raise InvalidInputError(
            f"`{name}` must have at most {most} tokens per row, because the model has no more "
            f"positions, but row {row} has {int(size[row])}: cut the texts, as in "
            f"tokenise(texts, tokenizer, max_length={most})."
        )
