"""The vectors of a frozen encoder: computed once, in batches of like length, and kept on disk."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairij.datasets._files import PathLike, write_atomically
from fairij.models._tokens import bucketed, longest_first, token_rows
from fairij.models.rows import take_rows
from fairij.models.triggers import Pooling, pooled
from fairij.progress import silent
from fairij.search import Progress

BATCH_TOKENS = {"cpu": 2**13, "cuda": 2**18}


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
    X : tokenised rows: a mapping, frame or dataset with `input_ids`
    encoder : the frozen encoder, on the device and in the precision to use
    pooling : "mean" of the last layer, or the encoder's own "pooler"
    batch_tokens : tokens at a time
    cache : a folder; vectors are kept in it by a fingerprint of rows, weights and settings, and
        read from it the next time
    """
    parameter = next(encoder.parameters())
    pad = getattr(encoder.config, "pad_token_id", None) or 0
    tokens = token_rows(X, device=torch.device("cpu"), pad=pad)
    kept = None
    if cache is not None:
        kept = Path(cache) / f"features-{fingerprint(tokens, encoder, pooling)}.npy"
        if kept.exists():
            return np.load(kept)
    order = longest_first(tokens)
    budget = batch_tokens or BATCH_TOKENS.get(parameter.device.type, BATCH_TOKENS["cpu"])
    rows = len(order)
    vectors = np.empty((rows, encoder.config.hidden_size), np.float32)
    done = 0
    for batch in bucketed(take_rows(tokens, order), budget):
        ids, mask = (batch[n].to(parameter.device) for n in ("input_ids", "attention_mask"))
        with torch.no_grad():
            out = encoder(input_ids=ids, attention_mask=mask)
            part = pooled(out, mask, pooling).float().cpu().numpy()
        vectors[order[done : done + len(part)].numpy()] = part
        done += len(part)
        progress("features", done, rows)
    if kept is not None:
        content = io.BytesIO()
        np.save(content, vectors)
        write_atomically(kept, content.getvalue())
    return vectors


def fingerprint(tokens: Any, encoder: Any, pooling: str) -> str:
    """A hash of all that the vectors depend on: rows, architecture, weights, precision, pooling."""
    digest = hashlib.sha256(f"{pooling} {encoder.config.to_json_string()}".encode())
    for name, part in [*tokens.items(), *encoder.state_dict().items()]:
        digest.update(f"{name} {tuple(part.shape)} {part.dtype}".encode())
        raw = part.detach().cpu().contiguous().view(-1)
        digest.update((raw.view(torch.uint8) if raw.numel() else raw).numpy().tobytes())
    return digest.hexdigest()[:32]


def standardised(
    train: NDArray[np.float32], *others: NDArray[np.float32]
) -> list[NDArray[np.float32]]:
    """Mean 0 and deviation 1 on the training rows; a constant dimension becomes 0."""
    mean, deviation = train.mean(0), train.std(0)
    scale = np.where(deviation > 1e-6, deviation, np.inf)
    return [((part - mean) / scale).astype(np.float32) for part in (train, *others)]
