"""A classifier together with its tokenizer, so that it takes plain texts."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from torch import nn

from fairij.data.checks import whole_number
from fairij.errors import InvalidInputError
from fairij.language.texts import TYPES, encoded, takes
from fairij.models.text.tokens import longest_text, most_tokens, with_padding_token
from fairij.models.text.triggers import TriggerTokens


class TextClassifier(nn.Module):
    """A Hugging Face classifier (or a `peft` model) that takes texts.

    A model without a padding token gets one: the tokenizer's padding token, or else its end
    token. The given model keeps its settings; the copy shares all its parameters.

    Parameters
    ----------
    model : nn.Module
        The classifier, from `AutoModelForSequenceClassification`.
    tokenizer : transformers tokenizer
        Its tokenizer.
    max_length : int, optional
        Longer texts are cut to this many tokens. By default as many as tokenizer and model allow
        (`longest_text`).
    """

    def __init__(self, model: nn.Module, tokenizer: Any, *, max_length: int | None = None) -> None:
        super().__init__()
        if not callable(tokenizer):
            raise InvalidInputError(
                f"`tokenizer` must be the model's tokenizer, got {tokenizer!r}: load it, as in "
                "AutoTokenizer.from_pretrained(folder)."
            )
        self.model, self.tokenizer = _padding(model, tokenizer)
        most = longest_text(model, tokenizer) if max_length is None else most_tokens(model)
        self.max_length = whole_number("max_length", most if max_length is None else max_length, 1)
        if most is not None and self.max_length > most:
            raise InvalidInputError(
                f"`max_length` must be at most {most}, the number of the model's positions; got "
                f"{self.max_length}."
            )
        self.config = getattr(self.model, "config", None)

    def forward(self, **tokens: Any) -> Any:
        """Run the classifier."""
        return self.model(**tokens)

    def tokenise(self, texts: list[str]) -> Any:
        """Texts as the tokens that the classifier takes."""
        tokens = encoded(texts, self.tokenizer, self.max_length)
        if not takes(self.model, TYPES):
            tokens.pop(TYPES, None)
        return tokens

    def save_pretrained(self, folder: str | Path) -> None:
        """Save model and tokenizer in one folder that transformers can load."""
        model: Any = self.model
        if not hasattr(model, "save_pretrained"):
            raise InvalidInputError(
                "`model` must be a model of transformers or peft to be saved in their format, got "
                f"{type(model).__name__}: save `model.state_dict()` with torch.save."
            )
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _padding(model: Any, tokenizer: Any) -> tuple[Any, Any]:
    """Model and tokenizer with a padding token; unchanged if the model has one."""
    config = getattr(model, "config", None)
    if config is None or isinstance(model, TriggerTokens):  # it uses the mask
        return model, tokenizer
    if getattr(config, "pad_token_id", None) is not None:
        return model, tokenizer
    tokenizer = with_padding_token(tokenizer)
    shared = {id(part): part for part in [*model.parameters(), *model.buffers()]}
    told = copy.deepcopy(model, shared)
    told.config.pad_token_id = tokenizer.pad_token_id
    return told, tokenizer
