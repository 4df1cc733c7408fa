"""Rows of tokens: padded tensors, batches of similar length, and how long a row may be."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairij.data.rows import n_rows
from fairij.errors import InvalidInputError
from fairij.models.text.triggers import TriggerTokens

Tokens = dict[str, Tensor]  # input_ids (N, L), attention_mask (N, L), ...
Tokenise = Callable[[list[str]], Mapping[str, Any]]
# in one batch of a frozen part, which keeps no graph that would tell its memory; on a CPU more
# tokens leave its caches and are slower
AT_ONCE = {"cpu": 2**11, "cuda": 2**18}
NAMES = ("input_ids", "attention_mask", "token_type_ids")
# other inputs of transformers' models, which are not passed on
OTHERS = ("position_ids", "inputs_embeds", "global_attention_mask", "decoder_input_ids", "bbox")


def token_rows(
    X: Any, *, device: torch.device, pad: int | None = 0, tokenise: Tokenise | None = None
) -> Tokens:
    """``X`` as padded tensors: a mapping, frame or dataset with `input_ids`, or texts.

    ``pad`` is the id of padding for a table without a mask; None if no id means padding.
    """
    columns = _columns(X)
    if columns is None:
        columns = _columns(_tokenised(X, tokenise))
    if columns is None or "input_ids" not in columns:
        raise InvalidInputError(
            "`X` must hold tokenised rows, with `input_ids` among its columns; found "
            f"{sorted(columns or ())}. Tokenise the texts first, or wrap model and tokenizer in "
            "fairij.language.TextClassifier."
        )
    if unknown := [name for name in OTHERS if name in columns]:
        raise InvalidInputError(
            f"`X` must hold {', '.join(NAMES)} alone, got {unknown[0]!r}, which would be left out: "
            "write an adapter (`fairij.models.Editable`) that passes it to the model."
        )
    tokens = {
        name: _padded(name, columns[name], (pad or 0) if name == "input_ids" else 0).to(device)
        for name in NAMES
        if name in columns
    }
    if "attention_mask" not in tokens:
        tokens["attention_mask"] = _mask(columns["input_ids"], tokens["input_ids"], pad)
    n_rows(tokens)  # raises unless all parts have the same length
    return tokens


def _mask(rows: Any, ids: Tensor, pad: int | None) -> Tensor:
    """Which tokens are not padding; lists of different lengths are assumed to have none."""
    if not isinstance(rows, Tensor):
        size = torch.tensor([len(row) for row in rows], device=ids.device)
        if len(size) and int(size.min()) < ids.shape[1]:
            return (torch.arange(ids.shape[1], device=ids.device) < size[:, None]).long()
    return torch.ones_like(ids) if pad is None else (ids != pad).long()


def lengths(tokens: Tokens) -> Tensor:
    """The place after the last token of each row, ``(N,)``."""
    mask = tokens["attention_mask"] != 0
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask * places).amax(1)


def longest_first(tokens: Tokens) -> Tensor:
    """The order in which batches of consecutive rows have the least padding."""
    return torch.argsort(lengths(tokens), descending=True, stable=True)


def tokens_at_once(device: torch.device) -> int:
    """How many tokens a batch may have at most on a device."""
    return AT_ONCE.get(device.type, AT_ONCE["cpu"])


def bucketed(tokens: Tokens, budget: int, *, added: int = 0, multiple: int = 1) -> Iterator[Tokens]:
    """Consecutive batches of at most ``budget`` tokens and at least one row, cut to their length.

    The model adds ``added`` tokens to each row; lengths including them are rounded up to a
    ``multiple`` if there is room.
    """
    size = lengths(tokens).cpu().numpy().clip(1)
    rounded = -(-(size + added) // multiple) * multiple  # few shapes, so memory is reused
    start = 0
    while start < len(size):
        stop = start + max(1, budget // int(rounded[start]))
        width = int(rounded[start:stop].max()) - added
        yield {name: part[start:stop, :width] for name, part in tokens.items()}
        start = min(stop, len(size))


def _columns(X: Any) -> Mapping[str, Any] | None:
    """The named columns of a mapping, frame or dataset; None for texts."""
    if isinstance(X, Mapping):
        return X
    names = getattr(X, "column_names", None) or getattr(X, "columns", None)
    if names is None or "input_ids" not in list(names):
        return None
    return {name: X[name] for name in NAMES if name in list(names)}


def _tokenised(X: Any, tokenise: Tokenise | None) -> Mapping[str, Any]:
    if hasattr(X, "columns") and list(X.columns) == ["text"]:
        X = X["text"]
    texts = np.asarray(X, dtype=object)
    if texts.ndim != 1:
        raise InvalidInputError(
            "`X` must be texts, or tokenised rows with `input_ids`; got "
            f"{type(X).__name__} of shape {texts.shape}."
        )
    if wrong := [row for row, text in enumerate(texts) if not isinstance(text, str)]:
        raise InvalidInputError(
            f"`X` must be texts, or tokenised rows with `input_ids`, but row {wrong[0]} holds "
            f"{texts[wrong[0]]!r}; there are {len(wrong)} such row(s): drop them, or use ''."
        )
    if tokenise is None:
        raise InvalidInputError(
            "`X` must be tokenised for this model, got texts: give the tokenizer's output, or "
            "wrap model and tokenizer in fairij.language.TextClassifier."
        )
    return tokenise(texts.tolist())


def _padded(name: str, rows: Any, pad: int) -> Tensor:
    table = rows
    if not isinstance(rows, Tensor):
        parts = [np.asarray(row) for row in rows]
        filled = np.full((len(parts), max(map(len, parts), default=0)), pad, dtype=np.int64)
        for row, part in zip(filled, parts, strict=True):
            row[: len(part)] = part
        table = torch.from_numpy(filled)
    if table.ndim != 2 or table.is_floating_point():
        raise InvalidInputError(
            f"`X[{name!r}]` must be whole numbers, one row of tokens per data point; got "
            f"{table.dtype} of shape {tuple(table.shape)}."
        )
    return table.long()


def with_padding(model: Any, tokenizer: Any) -> tuple[Any, Any]:
    """Model and tokenizer that both know a padding token; what has one is not changed.

    The copies share all parameters. Models with triggers use the mask.
    """
    config = getattr(model, "config", None)
    known = None if config is None else getattr(config, "pad_token_id", None)
    tokenizer = _padding_tokenizer(tokenizer, known)
    if config is None or known is not None or isinstance(model, TriggerTokens):
        return model, tokenizer
    shared = {id(part): part for part in [*model.parameters(), *model.buffers()]}
    told = copy.deepcopy(model, shared)
    told.config.pad_token_id = tokenizer.pad_token_id
    return told, tokenizer


def _padding_tokenizer(tokenizer: Any, known: int | None) -> Any:
    """The tokenizer, or a copy that pads with the model's token, or that which ends texts."""
    if getattr(tokenizer, "pad_token_id", None) is not None or not hasattr(tokenizer, "pad_token"):
        return tokenizer
    name = tokenizer.eos_token if known is None else tokenizer.convert_ids_to_tokens(known)
    if name is None:
        raise InvalidInputError(
            "The tokenizer must have a token to pad with, or one that ends texts, but has neither: "
            "set it, as in `tokenizer.pad_token = ...; model.config.pad_token_id = "
            "tokenizer.pad_token_id`."
        )
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.pad_token = name
    return tokenizer


def encoded(texts: list[str], tokenizer: Any, max_length: int) -> dict[str, list[list[int]]]:
    """The tokens of texts, unpadded. Without a mask from the tokenizer, every token counts."""
    given = tokenizer(texts, truncation=True, max_length=max_length)
    columns = {name: given[name] for name in NAMES if name in given}
    columns.setdefault("attention_mask", [[1] * len(row) for row in columns["input_ids"]])
    return columns


def longest_text(model: Any, tokenizer: Any) -> int:
    """How many tokens a text may have: by the tokenizer's limit and the model's positions.

    Examples
    --------
    >>> from fairij.language import longest_text
    >>> longest_text(encoder, tokenizer) > 0
    True
    """
    allowed = getattr(tokenizer, "model_max_length", None) or 0
    limits = [int(allowed)] if 0 < allowed < 2**30 else []  # a huge number means no limit
    return min([*limits, *_positions(model)], default=512)


def _positions(model: Any) -> list[int]:
    """How many positions the settings leave for a text; empty if they do not say."""
    most = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if not isinstance(most, int) or most < 1:
        return []
    starts = [table.padding_idx + 1 for table in _tables(model) if table.padding_idx is not None]
    # tokens that the model adds to every row: triggers, or a prompt of `peft`
    triggers = len(model.triggers) if isinstance(model, TriggerTokens) else 0
    prompts = (getattr(model, "peft_config", None) or {}).values()
    virtual = [getattr(prompt, "num_virtual_tokens", None) or 0 for prompt in prompts]
    return [most - max(starts, default=0) - triggers - max(virtual, default=0)]


def _tables(model: Any) -> list[nn.Embedding]:
    """Tables of learnt positions; those with a padding index start after it, as RoBERTa's do."""
    named = model.named_modules() if isinstance(model, nn.Module) else ()
    return [
        part
        for name, part in named
        if isinstance(part, nn.Embedding)
        and ("position" in (last := name.rpartition(".")[2]) or last == "wpe")
    ]


def most_tokens(model: Any) -> int | None:
    """How many tokens a row can have; None if the model has no table of positions."""
    return min(_positions(model), default=None) if _tables(model) else None


def check_lengths(name: str, tokens: Tokens, model: Any) -> None:
    """Raise if a row has no tokens, or more than the model has positions for."""
    empty = ~(tokens["attention_mask"] != 0).any(1)
    if bool(empty.any()):
        row = int(empty.nonzero()[0])
        raise InvalidInputError(
            f"`{name}` must have at least one token in every row, but row {row} has none: drop "
            "such rows."
        )
    size, most = lengths(tokens), most_tokens(model)
    if most is not None and int(size.max()) > most:
        row = int(size.argmax())
        raise InvalidInputError(
            f"`{name}` must have at most {most} tokens per row, because the model has no more "
            f"positions, but row {row} has {int(size[row])}: cut the texts, as in "
            f"tokenise(texts, tokenizer, max_length={most})."
        )
