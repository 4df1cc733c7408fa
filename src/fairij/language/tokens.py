"""From texts to rows of tokens, with what is known of them: which are real, and of which kind."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from fairij.errors import InvalidInputError
from fairij.language.checks import named_columns, texts_of
from fairij.models.text.tokens import NAMES, Tokenise, Tokens, token_rows

TYPES = "token_type_ids"


def encoded(texts: list[str], tokenizer: Any, max_length: int) -> dict[str, list[list[int]]]:
    """Texts as a tokenizer gives them, unpadded; every token that is there counts."""
    given = tokenizer(texts, truncation=True, max_length=max_length)
    columns = {name: given[name] for name in NAMES if name in given}
    columns.setdefault("attention_mask", [[1] * len(row) for row in columns["input_ids"]])
    return columns


def padded(
    X: Any, device: torch.device, *, pad: int | None, tokenise: Tokenise | None = None
) -> Tokens:
    """Tokenised rows, or texts where there is a way to tokenise them, as padded tensors."""
    if tokenise is not None and "input_ids" not in (named_columns(X) or ()):
        X = tokenise(texts_of("X", X))
    return token_rows(X, device=device, pad=pad)


def takes(model: Any, name: str) -> bool:
    """Whether a model's forward has an argument of this name."""
    inner = model.get_base_model() if hasattr(model, "peft_config") else model
    return name in inspect.signature(inner.forward).parameters


def check_types(tokens: Tokens, encoder: Any) -> Sequence[str]:
    """The names of what the encoder is given; raise where it has no such token types."""
    named = [name for name in NAMES if name in tokens]
    if TYPES not in tokens:
        return named
    most = int(tokens[TYPES].max())
    kinds = getattr(encoder.config, "type_vocab_size", None) if takes(encoder, TYPES) else 1
    if kinds and most >= kinds:
        raise InvalidInputError(
            f"`X[{TYPES!r}]` must be below {kinds}, as this encoder tells no more kinds of tokens "
            f"apart, got {most}: leave the column out, or take another encoder for pairs of texts."
        )
    return named if takes(encoder, TYPES) else [name for name in named if name != TYPES]


def types_tell(tokens: Tokens, encoder: Any) -> bool:
    """Whether token types are given that an encoder would not take for granted."""
    if TYPES not in tokens or not takes(encoder, TYPES):
        return False
    granted = getattr(encoder.config, "type_vocab_size", None)  # then 0, unless told otherwise
    return bool(tokens[TYPES].any()) or not granted
