"""Texts and labels from files, frames, datasets and lists; texts as rows of tokens."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairij.errors import InvalidInputError
from fairij.models.text.tokens import NAMES, Tokenise, Tokens, token_rows
from fairij.storage.tables import read_table, require_columns

TEXT = "text"  # the column to take where several hold texts
TYPES = "token_type_ids"


def labelled(source: Any, *, text: str = "text", label: str = "label") -> tuple[Any, Any]:
    """Texts and labels of a table.

    Parameters
    ----------
    source : datasets.Dataset, DataFrame, mapping or path
        The table, or a csv, tsv, json (a list of records), jsonl, parquet or arrow file. The
        texts of a file are not changed: "NA" stays "NA", and "007" stays "007".
    text, label : str, default="text" and "label"
        Names of the columns.

    Examples
    --------
    >>> from fairij.language import labelled
    >>> texts, labels = labelled(pd.DataFrame({"text": ["kind", "rude"], "label": [0, 1]}))
    >>> len(texts), len(labels)
    (2, 2)
    """
    if isinstance(source, (str, Path)):
        source = read_table(source, columns=(text, label), text_columns=(text,))
    names = named_columns(source)
    if names is None:
        raise InvalidInputError(
            f"`source` must be a file, frame, dataset or mapping, got {type(source).__name__}."
        )
    require_columns(names, (text, label), where="`source`")
    return texts_of(f"source[{text!r}]", source[text]), np.asarray(source[label])


def named_columns(source: Any) -> list[Any] | None:
    """The column names of a mapping, frame or dataset; None for anything else."""
    if (found := getattr(source, "column_names", None)) is not None:
        if isinstance(found, Mapping):
            raise InvalidInputError(
                f"The dataset must be one split, got the splits {list(found)}: choose one, as in "
                f"`dataset[{next(iter(found), 'train')!r}]`."
            )
        return list(found)
    if isinstance(source, Mapping):
        return list(source)
    return list(source.columns) if hasattr(source, "columns") else None


def one_column(name: str, source: Any) -> list[Any]:
    """The values of a list or column, or of the one text column of a table."""
    if (names := named_columns(source)) is not None:
        texts = [TEXT]
        if TEXT not in names:
            texts = [c for c in names if isinstance(next(iter(source[c]), None), str)]
        if len(texts) != 1:
            raise InvalidInputError(
                f"`{name}` must have one column with text, or a column called {TEXT!r}; found "
                f"{texts} among the columns {names}: give the column itself."
            )
        source = source[texts[0]]
    if isinstance(source, (str, bytes)) or not hasattr(source, "__iter__"):
        found = "a single text" if isinstance(source, str) else type(source).__name__
        raise InvalidInputError(f"`{name}` must be a list or column of texts, got {found}.")
    return list(source)


def texts_of(name: str, source: Any) -> list[str]:
    """The texts of a list, a column or a table: at least one, and none missing."""
    texts = one_column(name, source)
    if not texts:
        raise InvalidInputError(f"`{name}` must hold at least one text, got none.")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            found = repr(text) if np.isscalar(text) or text is None else type(text).__name__
            raise InvalidInputError(
                f"`{name}` must be texts, but row {row} holds {found}: drop such rows, or "
                "turn them into texts."
            )
    return texts


def padded(
    X: Any, device: torch.device, *, pad: int | None, tokenise: Tokenise | None = None
) -> Tokens:
    """Tokenised rows, or texts if ``tokenise`` is given, as padded tensors."""
    if tokenise is not None and "input_ids" not in (named_columns(X) or ()):
        X = tokenise(texts_of("X", X))
    return token_rows(X, device=device, pad=pad)


def takes(model: Any, name: str) -> bool:
    """Whether the model's forward has an argument of this name."""
    inner = model.get_base_model() if hasattr(model, "peft_config") else model
    return name in inspect.signature(inner.forward).parameters


def check_types(tokens: Tokens, encoder: Any) -> list[str]:
    """The inputs that the encoder takes. Raise if it does not have these token types."""
    named = [name for name in NAMES if name in tokens]
    if TYPES not in tokens:
        return named
    most = int(tokens[TYPES].max())
    kinds = getattr(encoder.config, "type_vocab_size", None) if takes(encoder, TYPES) else 1
    if kinds and most >= kinds:
        raise InvalidInputError(
            f"`X[{TYPES!r}]` must be below {kinds}, the number of this encoder's token types; got "
            f"{most}: leave the column out, or use an encoder for pairs of texts."
        )
    return named if takes(encoder, TYPES) else [name for name in named if name != TYPES]


def types_tell(tokens: Tokens, encoder: Any) -> bool:
    """Whether token types change the result: they are given and not the encoder's default."""
    if TYPES not in tokens or not takes(encoder, TYPES):
        return False
    granted = getattr(encoder.config, "type_vocab_size", None)  # then the default is 0
    return bool(tokens[TYPES].any()) or not granted
