"""Encoders and tokenizers from a folder or the hub, and the paper's heads on their vectors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd
import torch
from torch import nn

from fairij.data.checks import whole_number
from fairij.datasets._files import PathLike
from fairij.errors import InvalidInputError
from fairij.language.texts import TYPES, encoded, texts_of
from fairij.models.text.library import load_transformers
from fairij.models.text.tokens import longest_text

HIDDEN = (768, 128)  # units of the paper's non-linear head


def load_encoder(
    folder: PathLike, *, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> Any:
    """An encoder from a folder or a name on the hub, frozen and without dropout."""
    library = load_transformers()
    config = library.AutoConfig.from_pretrained(folder)
    kind = library.MODEL_FOR_TEXT_ENCODING_MAPPING.get(type(config), library.AutoModel)
    if not kind.__name__.endswith("EncoderModel"):  # T5 and similar models have one
        kind = library.AutoModel
    encoder = encoder_of(kind.from_pretrained(folder, dtype=dtype))
    return encoder.to(device).eval().requires_grad_(False)


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
    """The tokenizer of a folder or a name on the hub."""
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
    """
    if max_length is None:
        max_length = longest_text(None, tokenizer)
    whole_number("max_length", max_length, 1)
    tokens = encoded(texts_of("texts", texts), tokenizer, max_length)
    if not any(map(any, tokens.get(TYPES, ()))):  # all 0 is the default
        tokens.pop(TYPES, None)
    return pd.DataFrame(tokens)


def linear_head(n_inputs: int, *, seed: int = 0) -> nn.Module:
    """One linear layer with one output (the paper's LC)."""
    return nonlinear_head(n_inputs, hidden=(), seed=seed)


def nonlinear_head(n_inputs: int, *, hidden: tuple[int, ...] = HIDDEN, seed: int = 0) -> nn.Module:
    """Hidden layers with ReLU and one output (the paper's NC)."""
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for before, size in pairwise((n_inputs, *hidden)):
            layers += [nn.Linear(before, size), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear((n_inputs, *hidden)[-1], 1))
