"""The vectors of a frozen encoder: computed once, in batches of similar length, and cached."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairij.data.checks import one_of, whole_number
from fairij.data.hashing import tensors_fingerprint
from fairij.data.rows import take_rows
from fairij.datasets._files import PathLike
from fairij.errors import CheckpointError, FairIJWarning, InvalidInputError
from fairij.language.encoders import encoder_of
from fairij.language.texts import check_types, padded, types_tell
from fairij.method.run import Progress, silent
from fairij.models.text.tokens import Tokens, bucketed, check_lengths, longest_first, tokens_at_once
from fairij.models.text.triggers import Pooling, pooled
from fairij.storage.checksummed import UNREADABLE, read_sealed, write_sealed

BLOCK_ROWS = 2**12  # rows per file of the cache
FORMAT = "fairij.features/1"


def features(
    X: Any,
    encoder: Any,
    *,
    pooling: Pooling = "mean",
    batch_tokens: int | None = None,
    cache: PathLike | None = None,
    progress: Progress = silent,
) -> NDArray[np.float32]:
    """The pooled vector of each row of tokens, (N, H).

    Parameters
    ----------
    X : mapping, DataFrame or datasets.Dataset
        Tokenised rows with `input_ids` and, if needed, `attention_mask` and `token_type_ids`.
    encoder : transformers model
        The frozen encoder, on the device and in the precision to use. It runs without dropout.
        The body of a classifier is used, and the encoder of an encoder-decoder.
    pooling : {"mean", "pooler"}, default="mean"
        The mean of the last layer, or the encoder's own pooler.
    batch_tokens : int, optional
        Number of tokens per batch.
    cache : path, optional
        A folder. Vectors are stored in it under a fingerprint of rows, weights and settings, and
        read from it the next time. A stopped computation continues after the last stored block.
        A damaged block is computed again, with a warning.
    progress : callable, optional
        Called after each batch with "features", the rows done, and the number of all rows.

    Examples
    --------
    >>> from fairij.language import features, tokenise
    >>> rows = tokenise(["a kind word", "another one"], tokenizer)
    >>> len(features(rows, encoder))
    2
    """
    one_of("pooling", pooling, get_args(Pooling))
    encoder = encoder_of(encoder)
    tokens = padded(X, torch.device("cpu"), pad=getattr(encoder.config, "pad_token_id", None))
    if len(tokens["input_ids"]) == 0:
        raise InvalidInputError("`X` must have at least one row, got none.")
    check_lengths("X", tokens, encoder)
    device = next(encoder.parameters()).device
    budget = tokens_at_once(device)
    if batch_tokens is not None:
        budget = whole_number("batch_tokens", batch_tokens, 1)
    given = "" if cache is None else fingerprint(tokens, encoder, pooling)
    order = longest_first(tokens)
    vectors = np.empty((len(order), encoder.config.hidden_size), np.float32)
    for first in range(0, len(order), BLOCK_ROWS):
        block = order[first : first + BLOCK_ROWS]
        shape = (len(block), vectors.shape[1])
        kept = None if cache is None else Kept(Path(cache), given, first, shape)
        found = None if kept is None else kept.read()
        if found is None:
            parts: list[Tensor] = []
            with without_dropout(encoder):
                for part in _computed(take_rows(tokens, block), encoder, pooling, budget):
                    parts.append(part)
                    progress("features", first + sum(map(len, parts)), len(order))
            found = torch.cat(parts)
            if kept is not None:
                kept.write(found)
        else:
            progress("features", first + len(block), len(order))
        vectors[block.numpy()] = found.numpy()
    return vectors


class Kept:
    """The file of one block of rows in the cache. Rows are numbered from the longest."""

    def __init__(self, cache: Path, given: str, first: int, shape: tuple[int, int]) -> None:
        name = f"{first:09}-{first + shape[0] - 1:09}.safetensors"
        self._path, self._shape = cache / f"features-{given}" / name, shape
        self._header = {"format": FORMAT, "fingerprint": given, "first": str(first)}

    def read(self) -> Tensor | None:
        """The vectors; None if there is no intact file."""
        if not self._path.exists():
            return None
        try:
            header, tensors = read_sealed(self._path, FORMAT)
            vectors = tensors["vectors"]
            if header != {**header, **self._header}:
                raise ValueError("it belongs to other rows or to another encoder")
            if vectors.shape != self._shape or vectors.dtype != torch.float32:
                raise ValueError(f"it must hold {self._shape} numbers, not {tuple(vectors.shape)}")
        except UNREADABLE as error:
            warnings.warn(
                f"The cache's file {self._path} cannot be used ({error}), so its {self._shape[0]} "
                "vectors are computed again.",
                FairIJWarning,
                stacklevel=3,
            )
            return None
        return vectors

    def write(self, vectors: Tensor) -> None:
        """Store the vectors."""
        try:
            write_sealed(self._path, {"vectors": vectors}, self._header)
        except OSError as error:
            raise CheckpointError(
                f"The cache {self._path} must be writable: {error.strerror or error}. Earlier "
                "blocks are intact: free some space or give another folder, and run again."
            ) from error


@contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards every part is in its former mode."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _computed(rows: Tokens, encoder: Any, pooling: Pooling, budget: int) -> Iterator[Tensor]:
    """The vectors of rows sorted longest first, batch by batch."""
    device = next(encoder.parameters()).device
    names = check_types(rows, encoder)
    for batch in bucketed(rows, budget):
        given = {name: batch[name].to(device) for name in names}
        with torch.no_grad():
            out = encoder(**given)
            if getattr(out, "last_hidden_state", None) is None:
                raise InvalidInputError(
                    "`encoder` must give the vectors of its last layer (`last_hidden_state`), got "
                    f"{type(encoder).__name__}: give the model without its head."
                )
            yield pooled(out, given["attention_mask"], pooling).float().cpu()


def fingerprint(tokens: Any, encoder: Any, pooling: str) -> str:
    """A hash of what the vectors depend on: rows, architecture, weights, precision, pooling."""
    parts = [*tokens.items(), *encoder.state_dict().items()]
    typed = " by token types" if types_tell(tokens, encoder) else ""
    about = f"{pooling} {encoder.config.to_json_string()}{typed}"
    return tensors_fingerprint(parts, about)[:32]


def standardised(
    train: NDArray[np.float32], *others: NDArray[np.float32]
) -> list[NDArray[np.float32]]:
    """Scale to mean 0 and deviation 1 on the training rows. A constant column becomes 0.

    Examples
    --------
    >>> from fairij.language import standardised
    >>> standardised(np.array([[1.0, 5.0], [3.0, 5.0]], "float32"))[0].tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    mean, deviation = train.mean(0), train.std(0)
    scale = np.where(deviation > 1e-6, deviation, np.inf)
    return [((part - mean) / scale).astype(np.float32) for part in (train, *others)]
