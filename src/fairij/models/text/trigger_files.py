"""Trigger tokens and their head in a folder: safetensors and JSON, without the encoder.

The encoder is known by its name and by a hash of its numbers, so that triggers are never put before
another one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fairij.data.hashing import tensors_fingerprint
from fairij.errors import InvalidInputError

FORMAT = "fairij.trigger_tokens/1"
SETTINGS, TENSORS = "trigger_tokens.json", "trigger_tokens.safetensors"
LARGEST = 2**20  # bytes of the settings


def encoder_hash(encoder: Any, dtype: torch.dtype) -> str:
    """A hash of the encoder's parameters, as they are in this precision."""
    named = encoder.state_dict().items()
    tensors = [(name, t.to(dtype) if t.is_floating_point() else t) for name, t in named]
    return tensors_fingerprint(tensors, about=encoder.config.model_type)


def write(folder: Path, module: Any) -> None:
    """Write triggers and head, and what they belong to."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {n: t for n, t in module.state_dict().items() if not n.startswith("encoder.")}
    head, dtype = module.head, next(module.encoder.parameters()).dtype
    is_linear = type(head) is nn.Linear
    settings = {
        "format": FORMAT,
        "encoder": str(getattr(module.config, "_name_or_path", "") or ""),
        "encoder_hash": encoder_hash(module.encoder, dtype),
        "encoder_dtype": str(dtype).removeprefix("torch."),
        "pooling": module.pooling,
        "n_tokens": len(module.triggers),
        "head": [head.out_features, head.bias is not None] if is_linear else type(head).__name__,
    }
    save_file({n: t.detach().cpu().contiguous() for n, t in state.items()}, folder / TENSORS)
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings and the tensors of a folder."""
    try:
        if (folder / SETTINGS).stat().st_size > LARGEST:
            raise ValueError(f"{SETTINGS} is too large")
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        if not isinstance(settings, dict) or settings.get("format") != FORMAT:
            raise ValueError(f"{SETTINGS} has not the format {FORMAT!r}")
        _check(settings)
        return settings, load_file(folder / TENSORS)
    except (OSError, ValueError, SafetensorError, RecursionError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(
            f"{folder} must hold trigger tokens as `save_pretrained` writes them ({SETTINGS} and "
            f"{TENSORS}), but cannot be read: {said}."
        ) from None


def _check(settings: dict[str, Any]) -> None:
    texts = ("encoder", "encoder_hash", "encoder_dtype", "pooling")
    head = settings.get("head")
    is_linear = isinstance(head, list) and list(map(type, head)) == [int, bool]
    dtype = getattr(torch, str(settings.get("encoder_dtype")), None)
    if not (
        all(isinstance(settings.get(name), str) for name in texts)
        and isinstance(dtype, torch.dtype)
        and type(settings.get("n_tokens")) is int
        and (is_linear or isinstance(head, str))
    ):
        raise ValueError(f"{SETTINGS} lacks an entry, or has one of another kind")


def check_encoder(settings: dict[str, Any], encoder: Any) -> None:
    """Raise unless this is the encoder that the triggers were trained for."""
    dtype = getattr(torch, settings["encoder_dtype"])
    if encoder_hash(encoder, dtype) == settings["encoder_hash"]:
        return
    name, own = settings["encoder"], next(encoder.parameters()).dtype
    cure = (
        f"load it with dtype=torch.{settings['encoder_dtype']}"
        if own != dtype
        else "load the one that the triggers were trained for"
    )
    raise InvalidInputError(
        f"`encoder` must be the one that the triggers were saved with ({name or 'no name'}, "
        f"hash {settings['encoder_hash'][:12]}), but its parameters are others: {cure}."
    )
