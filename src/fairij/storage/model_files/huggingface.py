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
from fairij.models.text.tokens import (
    check_lengths,
    encoded,
    longest_text,
    token_rows,
    with_padding,
)
from fairij.storage.model_files.columns import ModelFile, Opening
from fairij.storage.model_files.huggingface_checks import (
    check_finite,
    check_folder,
    check_loaded,
    check_size,
    without_head,
)
from fairij.storage.reading import reading

OFFLINE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
TOKENIZERS = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json"),
    *("spiece.model", "sentencepiece.bpe.model", "tokenizer.model"),
)


def folder(path: Path, opening: Opening) -> ModelFile:
    """Open a folder. Nothing is downloaded, no code in it runs, parameters are safetensors."""
    transformers = load_transformers()
    with reading(path, "a Hugging Face folder"), quietly(transformers):
        if not has_tokenizer(path):
            # the library would make an empty one that knows no word
            raise InvalidInputError(
                f"{path} must hold the model's tokenizer too, but has none of "
                f"{', '.join(TOKENIZERS)}: save it there, as in "
                "`tokenizer.save_pretrained(folder)`."
            )
        model, config = classifier(path, opening)
        tokenizer, labels = tokenizer_in(path), label_names(config)
    return opened("Hugging Face folder", model, tokenizer, labels)


def classifier(path: Path, opening: Opening, *, labels: int | None = None) -> tuple[Any, Any]:
    """The classifier in a folder and its settings. With ``labels``, its head may be missing."""
    transformers = load_transformers()
    check_folder(path)
    config = transformers.AutoConfig.from_pretrained(str(path), **OFFLINE)
    if labels is not None and labels > 1:
        config.num_labels = labels
    kind = transformers.AutoModelForSequenceClassification
    check_size(path, config, kind.from_config)
    model, info = kind.from_pretrained(
        str(path),
        config=config,
        use_safetensors=None if opening.trust_pickle else True,
        dtype=torch.float32,  # edits are computed and saved in full precision
        ignore_mismatched_sizes=True,  # they are refused below, in our words
        output_loading_info=True,
        **OFFLINE,
    )
    check_loaded(path, info if labels is None else without_head(info))
    check_finite(path, model)
    return model.eval(), config


def has_tokenizer(path: Path) -> bool:
    return any((path / name).exists() for name in TOKENIZERS)


def tokenizer_in(path: Path) -> Any:
    return load_transformers().AutoTokenizer.from_pretrained(str(path), **OFFLINE)


def label_names(config: Any) -> dict[str, int]:
    return {str(name): int(code) for name, code in (config.label2id or {}).items()}


def opened(kind: str, model: Any, tokenizer: Any, labels: dict[str, int]) -> ModelFile:
    """A classifier with its tokenizer, both with a padding token."""
    model, tokenizer = with_padding(model, tokenizer)
    transformers = load_transformers()

    def save(edited: Any, target: Path) -> None:
        with quietly(transformers):
            edited.save_pretrained(str(target))
            tokenizer.save_pretrained(str(target))

    prepare = partial(_tokens, tokenizer, model)
    return ModelFile(kind, model, "", None, prepare, save, True, labels)


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
        held = "is empty" if text.isna().iloc[row] else f"holds {str(text.iloc[row])!r}"
        raise InvalidInputError(
            f"The column {frame.columns[0]!r} must hold text, but row {row} {held} (such rows: "
            f"{int(wrong.sum())}): drop such rows, or name another column with --text."
        )
    columns = encoded(text.tolist(), tokenizer, longest_text(model, tokenizer))
    tokens = token_rows(columns, device=torch.device("cpu"), pad=model.config.pad_token_id)
    _check_known(tokens["input_ids"], model)
    check_lengths(str(frame.columns[0]), tokens, model)
    return tokens


def _check_known(ids: torch.Tensor, model: Any) -> None:
    """Raise if the tokenizer gives tokens that the model has no vector for."""
    known = model.get_input_embeddings().weight.shape[0]
    if ids.numel() and int(ids.max()) >= known:
        raise InvalidInputError(
            f"The tokenizer must be the model's own, but it gives token {int(ids.max())}, and the "
            f"model knows {known}: save both again from the same training."
        )
