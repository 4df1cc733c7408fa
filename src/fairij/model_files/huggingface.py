"""A Hugging Face folder: a sequence classifier with its tokenizer, on one column of text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fairij.errors import InvalidInputError
from fairij.language._library import load_transformers
from fairij.model_files.base import ModelFile, Opening, reading


def folder(path: Path, opening: Opening) -> ModelFile:
    """Nothing is downloaded and no code of the folder runs; parameters are read as safetensors."""
    transformers = load_transformers()
    with reading(path, "a Hugging Face folder"), quietly(transformers):
        settings: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(path), **settings)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            str(path),
            use_safetensors=None if opening.trust_pickle else True,
            dtype=torch.float32,  # edits are made, and saved, in full precision
            **settings,
        ).eval()

    def save(edited: Any, target: Path) -> None:
        with quietly(transformers):
            edited.save_pretrained(str(target))
            tokenizer.save_pretrained(str(target))

    labels = {str(name): int(code) for name, code in (model.config.label2id or {}).items()}
    return ModelFile(
        "Hugging Face folder",
        model,
        "",
        None,
        lambda frame: _tokens(tokenizer, model, frame),
        save,
        takes_text=True,
        labels=labels,
    )


@contextmanager
def quietly(transformers: Any) -> Iterator[None]:
    """Without the library's own bars, which it draws also where there is no terminal."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _tokens(tokenizer: Any, model: Any, frame: pd.DataFrame) -> dict[str, Any]:
    text = frame.iloc[:, 0]
    wrong = ~text.map(lambda value: isinstance(value, str)).to_numpy(dtype=bool)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(
            f"The column {frame.columns[0]!r} must hold text, but row {row} holds "
            f"{str(text.iloc[row])!r}: drop such rows, or name another column by --text."
        )
    longest = min(
        int(getattr(model.config, "max_position_embeddings", 512) or 512),
        int(tokenizer.model_max_length),
    )
    return dict(
        tokenizer(
            text.tolist(), padding=True, truncation=True, max_length=longest, return_tensors="pt"
        )
    )
