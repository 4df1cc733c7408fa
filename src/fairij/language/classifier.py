"""A classifier together with its tokenizer, so that texts can be given as they are."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from torch import nn

from fairij.data.checks import whole_number
from fairij.errors import InvalidInputError
from fairij.language.tokens import TYPES, encoded, takes
from fairij.models.text.limits import longest_text, most_tokens
from fairij.models.text.triggers import TriggerTokens


class TextClassifier(nn.Module):
    """A Hugging Face classifier (or a `peft` model) that takes texts.

    A model that does not know by which token rows are padded is told so: by the tokenizer's
    padding token, or else by the one that ends a text. This is done on a copy of its settings,
    which shares all parameters with the model given.

    Parameters
    ----------
    model : the classifier, as `AutoModelForSequenceClassification` gives it
    tokenizer : its tokenizer
    max_length : tokens beyond this are cut off; as many as tokenizer and model allow
        (`longest_text`) unless given
    """

    def __init__(self, model: nn.Module, tokenizer: Any, *, max_length: int | None = None) -> None:
        super().__init__()
        if not callable(tokenizer):
            raise InvalidInputError(
                f"`tokenizer` must be the model's tokenizer, got {tokenizer!r}: load it, as in "
                "AutoTokenizer.from_pretrained(folder)."
            )
        self.model, self.tokenizer = _padding(model, tokenizer)
        self.max_length = _checked(max_length, model, tokenizer)
        self.config = getattr(self.model, "config", None)

    def forward(self, **tokens: Any) -> Any:
        return self.model(**tokens)

    def tokenise(self, texts: list[str]) -> Any:
        tokens = encoded(texts, self.tokenizer, self.max_length)
        if not takes(self.model, TYPES):
            tokens.pop(TYPES, None)
        return tokens

    def save_pretrained(self, folder: str | Path) -> None:
        """Model and tokenizer into one folder, which plain transformers can load."""
        model: Any = self.model
        if not hasattr(model, "save_pretrained"):
            raise InvalidInputError(
                "`model` must be one of transformers or peft to be saved in their format, got "
                f"{type(model).__name__}: keep `model.state_dict()` by torch.save."
            )
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _checked(max_length: int | None, model: Any, tokenizer: Any) -> int:
    if max_length is None:
        return longest_text(model, tokenizer)
    length, most = whole_number("max_length", max_length, 1), most_tokens(model)
    if most is not None and length > most:
        raise InvalidInputError(
            f"`max_length` must be at most {most}, for which the model has positions, got {length}."
        )
    return length


def _padding(model: Any, tokenizer: Any) -> tuple[Any, Any]:
    """Model and tokenizer with a padding token; as they are where the model has one already."""
    config = getattr(model, "config", None)
    if config is None or isinstance(model, TriggerTokens):  # which goes by the mask
        return model, tokenizer
    if getattr(config, "pad_token_id", None) is not None:
        return model, tokenizer
    if getattr(tokenizer, "pad_token_id", None) is None:
        if getattr(tokenizer, "eos_token_id", None) is None:
            raise InvalidInputError(
                "`model` must know a token to pad with, but neither its `config.pad_token_id` nor "
                "the tokenizer has one, nor has that a token to end texts: set both, as in "
                "`tokenizer.pad_token = ...; model.config.pad_token_id = tokenizer.pad_token_id`."
            )
        tokenizer = copy.deepcopy(tokenizer)
        tokenizer.pad_token = tokenizer.eos_token
    shared = {id(part): part for part in [*model.parameters(), *model.buffers()]}
    told = copy.deepcopy(model, shared)
    told.config.pad_token_id = tokenizer.pad_token_id
    return told, tokenizer
