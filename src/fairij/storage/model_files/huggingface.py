"""A Hugging Face folder: a sequence classifier with its tokenizer, for one column of text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fairij.errors import InvalidInputError
from fairij.models.text.library import load_transformers
from fairij.models.text.tokens import longest_text, with_padding_token
from fairij.storage.model_files.columns import ModelFile, Opening
from fairij.storage.model_files.huggingface_checks import (
    check_finite,
    check_folder,
    check_loaded,
    check_size,
)
from fairij.storage.reading import reading

TOKENIZERS = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json"),
    *("spiece.model", "sentencepiece.bpe.model", "tokenizer.model"),
)


def folder(path: Path, opening: Opening) -> ModelFile:
    """Open a folder. Nothing is downloaded, no code in it runs, parameters are safetensors."""
    transformers = load_transformers()
    with reading(path, "a Hugging Face folder"), quietly(transformers):
        settings: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        if not any((path / name).exists() for name in TOKENIZERS):
            # the library would make an empty one that knows no word
            raise InvalidInputError(
                f"{path} must hold the model's tokenizer too, but has none of "
                f"{', '.join(TOKENIZERS)}: save it there, as in "
                "`tokenizer.save_pretrained(folder)`."
            )
        check_folder(path)
        config = transformers.AutoConfig.from_pretrained(str(path), **settings)
        kind = transformers.AutoModelForSequenceClassification
        check_size(path, config, kind.from_config)
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(path), **settings)
        model, info = kind.from_pretrained(
            str(path),
            config=config,
            use_safetensors=None if opening.trust_pickle else True,
            dtype=torch.float32,  # edits are computed and saved in full precision
            ignore_mismatched_sizes=True,  # they are refused below, in our words
            output_loading_info=True,
            **settings,
        )
        check_loaded(path, info)
        check_finite(path, model)
        model.eval()
        labels = {str(name): int(code) for name, code in (model.config.label2id or {}).items()}
    tokenizer = with_padding_token(tokenizer)
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id

    def save(edited: Any, target: Path) -> None:
        with quietly(transformers):
            edited.save_pretrained(str(target))
            tokenizer.save_pretrained(str(target))

    prepare = partial(_tokens, tokenizer, model)
    return ModelFile("Hugging Face folder", model, "", None, prepare, save, True, labels)


@contextmanager
def quietly(transformers: Any) -> Iterator[None]:
    """Switch off the library's progress bars and messages, which show names from the files."""
    logging = transformers.utils.logging
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity(logging.FATAL)
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def _tokens(tokenizer: Any, model: Any, frame: pd.DataFrame) -> dict[str, Any]:
    text = frame.iloc[:, 0]
    wrong = ~text.map(lambda value: isinstance(value, str)).to_numpy(dtype=bool)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(
            f"The column {frame.columns[0]!r} must hold text, but row {row} holds "
            f"{str(text.iloc[row])!r}: drop such rows, or name another column with --text."
        )
    cut = {"truncation": True, "max_length": longest_text(model, tokenizer)}
    tokens = dict(tokenizer(text.tolist(), padding=True, return_tensors="pt", **cut))
    _check_known(tokens["input_ids"], model)
    # some models find the end of a text by their own padding token, not the tokenizer's
    tokens["input_ids"][tokens["attention_mask"] == 0] = model.config.pad_token_id
    return tokens


def _check_known(ids: torch.Tensor, model: Any) -> None:
    """Raise if the tokenizer gives tokens that the model has no vector for."""
    known = model.get_input_embeddings().weight.shape[0]
    if ids.numel() and int(ids.max()) >= known:
        raise InvalidInputError(
            f"The tokenizer must be the model's own, but it gives token {int(ids.max())}, and the "
            f"model knows {known}: save both again from the same training."
        )
