"""Turn texts into rows of tokens, with their mask and token types."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from fairij.errors import InvalidInputError
from fairij.language.texts import named_columns, texts_of
from fairij.models.text.tokens import NAMES, Tokenise, Tokens, token_rows

TYPES = "token_type_ids"


def encoded(texts: list[str], tokenizer: Any, max_length: int) -> dict[str, list[list[int]]]:
    """The tokens of texts, unpadded. Without a mask from the tokenizer, every token counts."""
    given = tokenizer(texts, truncation=True, max_length=max_length)
    columns = {name: given[name] for name in NAMES if name in given}
    columns.setdefault("attention_mask", [[1] * len(row) for row in columns["input_ids"]])
    return columns


def padded(
    X: Any, device: torch.device, *, pad: int | None, tokenise: Tokenise | None = None
) -> Tokens:
    """Tokenised rows, or texts if ``tokenise`` is given, as padded tensors."""
    if tokenise is not None and "input_ids" not in (named_columns(X) or ()):
        X = tokenise(texts_of("X", X))
    return token_rows(X, device=device, pad=pad)


def takes(model: Any, name: str) -> bool:
    """Whether the model's forward has an argument of this name."""
    inner = model.get_base_model() if hasattr(model, "peft_config") else model
    return name in inspect.signature(inner.forward).parameters


def check_types(tokens: Tokens, encoder: Any) -> Sequence[str]:
    """The inputs that the encoder takes. Raise if it does not have these token types."""
    named = [name for name in NAMES if name in tokens]
    if TYPES not in tokens:
        return named
    most = int(tokens[TYPES].max())
    kinds = getattr(encoder.config, "type_vocab_size", None) if takes(encoder, TYPES) else 1
    if kinds and most >= kinds:
        raise InvalidInputError(
            f"`X[{TYPES!r}]` must be below {kinds}, the number of this encoder's token types; got "
            f"{most}: leave the column out, or use an encoder for pairs of texts."
        )
    return named if takes(encoder, TYPES) else [name for name in named if name != TYPES]


def types_tell(tokens: Tokens, encoder: Any) -> bool:
    """Whether token types change the result: they are given and not the encoder's default."""
    if TYPES not in tokens or not takes(encoder, TYPES):
        return False
    granted = getattr(encoder.config, "type_vocab_size", None)  # then the default is 0
    return bool(tokens[TYPES].any()) or not granted
