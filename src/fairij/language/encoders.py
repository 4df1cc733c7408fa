"""Encoders and tokenizers, the paper's heads on vectors, and classifiers that take texts."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from fairij.data.checks import whole_number
from fairij.datasets._files import PathLike
from fairij.errors import InvalidInputError
from fairij.language.texts import TYPES, takes, texts_of
from fairij.models.text.library import load_transformers
from fairij.models.text.tokens import encoded, longest_text, most_tokens, with_padding
from fairij.storage.model_files.huggingface import quietly
from fairij.storage.model_files.huggingface_checks import check_finite, check_loaded
from fairij.storage.reading import reading

HIDDEN = (768, 128)  # units of the paper's non-linear head


def load_encoder(
    folder: PathLike, *, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> Any:
    """An encoder from a folder or a name on the hub, frozen and without dropout.

    Examples
    --------
    >>> from fairij.language import load_encoder
    >>> encoder = load_encoder(folder)  # or the name of a model on the Hugging Face hub
    >>> any(p.requires_grad for p in encoder.parameters())
    False
    """
    library = load_transformers()
    with reading(Path(folder), "a Hugging Face encoder"), quietly(library):
        config = library.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        kind = library.MODEL_FOR_TEXT_ENCODING_MAPPING.get(type(config), library.AutoModel)
        if not kind.__name__.endswith("EncoderModel"):  # T5 and similar models have one
            kind = library.AutoModel
        model, info = kind.from_pretrained(
            folder,
            dtype=dtype,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # they are refused below, in our words
            output_loading_info=True,
        )
        pooler = {name for name in info["missing_keys"] if name.split(".")[0] == "pooler"}
        # tensors that are left over are heads, which an encoder does without
        found = {**info, "unexpected_keys": (), "missing_keys": info["missing_keys"] - pooler}
        check_loaded(Path(folder), found)
        check_finite(Path(folder), model)
    if pooler:  # it would be random
        model.pooler = None
    return encoder_of(model).to(device).eval().requires_grad_(False)


def encoder_of(model: Any) -> Any:
    """What makes vectors of tokens: the body of a classifier, of two halves the encoder."""
    if hasattr(model, "peft_config"):
        return model
    body = getattr(model, "base_model", model)
    if not hasattr(body, "config"):
        raise InvalidInputError(
            f"`encoder` must be a model of transformers, got {type(model).__name__}: load one with "
            "load_encoder(folder)."
        )
    two_halves = getattr(body.config, "is_encoder_decoder", False)
    return body.get_encoder() if two_halves and hasattr(body, "decoder") else body


def load_tokenizer(folder: PathLike) -> Any:
    """The tokenizer of a folder or a name on the hub.

    Examples
    --------
    >>> from fairij.language import load_tokenizer
    >>> tokenizer = load_tokenizer(folder)  # or the name of a model on the Hugging Face hub
    >>> len(tokenizer("a kind word")["input_ids"]) > 2
    True
    """
    return load_transformers().AutoTokenizer.from_pretrained(folder)


def tokenise(texts: Any, tokenizer: Any, *, max_length: int | None = None) -> pd.DataFrame:
    """Texts as a frame with one list of tokens per row, unpadded.

    Parameters
    ----------
    texts : list or column of str, DataFrame or datasets.Dataset
        The texts, or a table with a column `text` or with only one column of texts.
    tokenizer : transformers tokenizer
        The encoder's tokenizer.
    max_length : int, optional
        Longer texts are cut to this many tokens. By default the tokenizer's limit, or 512 if it
        has none.

    Examples
    --------
    >>> from fairij.language import tokenise
    >>> len(tokenise(["a kind word", "another one"], tokenizer))
    2
    """
    if max_length is None:
        max_length = longest_text(None, tokenizer)
    whole_number("max_length", max_length, 1)
    tokens = encoded(texts_of("texts", texts), tokenizer, max_length)
    if not any(map(any, tokens.get(TYPES, ()))):  # all 0 is the default
        tokens.pop(TYPES, None)
    return pd.DataFrame(tokens)


def linear_head(n_inputs: int, *, seed: int = 0) -> nn.Module:
    """One linear layer with one output (the paper's LC).

    Examples
    --------
    >>> from fairij.language import linear_head
    >>> linear_head(3)(torch.zeros(5, 3)).shape
    torch.Size([5, 1])
    """
    return nonlinear_head(n_inputs, hidden=(), seed=seed)


def nonlinear_head(n_inputs: int, *, hidden: tuple[int, ...] = HIDDEN, seed: int = 0) -> nn.Module:
    """Hidden layers with ReLU and one output (the paper's NC).

    Examples
    --------
    >>> from fairij.language import nonlinear_head
    >>> nonlinear_head(3, hidden=(8, 4))(torch.zeros(5, 3)).shape
    torch.Size([5, 1])
    """
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for before, size in pairwise((n_inputs, *hidden)):
            layers += [nn.Linear(before, size), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear((n_inputs, *hidden)[-1], 1))


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
    label : str or int, optional
        Of a model that gives several labels to a text, the one to look at: its name or number. The
        others are left as they are, as far as they do not share the edited parameters.

    Examples
    --------
    >>> from fairij.language import TextClassifier
    >>> classifier = TextClassifier(text_model, tokenizer)
    >>> len(classifier.tokenise(["a kind word", "another one"]))
    2
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        *,
        max_length: int | None = None,
        label: str | int | None = None,
    ) -> None:
        super().__init__()
        if not callable(tokenizer):
            raise InvalidInputError(
                f"`tokenizer` must be the model's tokenizer, got {tokenizer!r}: load it, as in "
                "AutoTokenizer.from_pretrained(folder)."
            )
        self.model, self.tokenizer = with_padding(model, tokenizer)
        most = longest_text(model, tokenizer) if max_length is None else most_tokens(model)
        self.max_length = whole_number("max_length", most if max_length is None else max_length, 1)
        if most is not None and self.max_length > most:
            raise InvalidInputError(
                f"`max_length` must be at most {most}, the number of the model's positions; got "
                f"{self.max_length}."
            )
        self.config = getattr(self.model, "config", None)
        self.label = None
        if label is not None:
            self.label = _place(label, self.config)
            alone: Any = copy.copy(self.config)
            alone.problem_type, alone.id2label = None, {0: str(label)}
            self.config = alone

    def forward(self, **tokens: Any) -> Any:
        """Run the classifier; with a label, its logits ``(N,)`` alone."""
        found = self.model(**tokens)
        return found if self.label is None else found.logits[:, self.label]

    def tokenise(self, texts: list[str]) -> Any:
        """Texts as the tokens that the classifier takes."""
        tokens = encoded(texts, self.tokenizer, self.max_length)
        if not takes(self.model, TYPES):
            tokens.pop(TYPES, None)
        return tokens

    def save_pretrained(self, folder: str | Path) -> None:
        """Save model and tokenizer in one folder: of a model of transformers, one that it loads.

        Of `TriggerTokens`, triggers and head, for `TriggerTokens.from_pretrained`.
        """
        model: Any = self.model
        if not hasattr(model, "save_pretrained"):
            raise InvalidInputError(
                "`model` must be a model of transformers or peft to be saved in their format, got "
                f"{type(model).__name__}: save `model.state_dict()` with torch.save."
            )
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _place(label: str | int, config: Any) -> int:
    """The number of a label among those of a model."""
    names = {int(place): str(name) for place, name in (getattr(config, "id2label", {})).items()}
    found = [place for place, name in names.items() if label in (place, name)]
    if not found:
        raise InvalidInputError(
            f"`label` must be one of the model's labels, {', '.join(map(repr, names.values()))}, "
            f"or a number from 0 to {len(names) - 1}; got {label!r}."
        )
    return found[0]
