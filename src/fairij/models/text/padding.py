"""The token that pads texts to one length."""

from __future__ import annotations

import copy
from typing import Any

from fairij.errors import InvalidInputError


def with_padding_token(tokenizer: Any) -> Any:
    """The tokenizer, or a copy that pads with the token that ends a text if it has no other."""
    if getattr(tokenizer, "pad_token_id", None) is not None:
        return tokenizer
    if getattr(tokenizer, "eos_token_id", None) is None:
        raise InvalidInputError(
            "The tokenizer must have a token to pad with, or one that ends texts, but has neither: "
            "set it, as in `tokenizer.pad_token = ...; model.config.pad_token_id = "
            "tokenizer.pad_token_id`."
        )
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
