"""A classifier together with its tokenizer, so that texts can be given as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn


class TextClassifier(nn.Module):
    """A Hugging Face classifier (or a `peft` model) that takes texts.

    Parameters
    ----------
    model : the classifier, as `AutoModelForSequenceClassification` gives it
    tokenizer : its tokenizer
    max_length : tokens beyond this are cut off
    """

    def __init__(self, model: nn.Module, tokenizer: Any, *, max_length: int = 128) -> None:
        super().__init__()
        self.model, self.tokenizer, self.max_length = model, tokenizer, max_length
        self.config = getattr(model, "config", None)

    def forward(self, **tokens: Any) -> Any:
        return self.model(**tokens)

    def tokenise(self, texts: list[str]) -> Any:
        return self.tokenizer(texts, truncation=True, max_length=self.max_length)

    def save_pretrained(self, folder: str | Path) -> None:
        """Model and tokenizer into one folder, which plain transformers can load."""
        model: Any = self.model
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
