"""A folder of peft: an adapter, for a classifier whose folder is given by itself."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from fairij.errors import InvalidInputError
from fairij.models.text.library import load_transformers
from fairij.storage.model_files.columns import ModelFile, Opening
from fairij.storage.model_files.huggingface import (
    classifier,
    has_tokenizer,
    label_names,
    opened,
    quietly,
    tokenizer_in,
)
from fairij.storage.model_files.huggingface_checks import (
    ADAPTER,
    ADAPTER_WEIGHTS,
    check_files,
    check_finite,
    sizes_in,
)
from fairij.storage.reading import reading

TASK = "SEQ_CLS"
HEADS = ("score.weight", "classifier.weight", "out_proj.weight")  # as adapters store them


def adapter(path: Path, opening: Opening) -> ModelFile:
    """Open an adapter. Nothing is downloaded, and no code in the folders runs."""
    if opening.base_model is None:
        raise InvalidInputError(
            f"{path} holds an adapter ({ADAPTER}), which changes a model that lies elsewhere: give "
            "the folder of that model with --base-model, or merge both, as in "
            "`model.merge_and_unload()`, and save that."
        )
    try:
        peft: Any = import_module("peft")
    except ImportError as error:
        raise InvalidInputError("An adapter needs the package peft: install it.") from error
    base = opening.base_model
    transformers = load_transformers()
    with reading(path, "a folder of peft"), quietly(transformers):
        settings = _settings(path)
        tensors = sizes_in(path / ADAPTER_WEIGHTS, lambda shape: shape[0])
        heads = [rows for name, rows in tensors.items() if name.endswith(HEADS)]
        # a head in the adapter replaces that of the base, which may have none
        labels = heads[0] if heads else None
        model, config = classifier(base, opening, labels=labels)
        asked = peft.PeftConfig.from_peft_type(**settings)
        found = peft.PeftModelForSequenceClassification(model, asked)
        _check_whole(path, peft.get_peft_model_state_dict(found), tensors)
        peft.set_peft_model_state_dict(found, peft.load_peft_weights(str(path), device="cpu"))
        check_finite(path, found)
        found.eval()
        tokenizer = tokenizer_in(path if has_tokenizer(path) else base)
        names = label_names(config)
    return opened("peft folder", found, tokenizer, names)


def _settings(path: Path) -> dict[str, Any]:
    """What the adapter is, without what points elsewhere."""
    check_files(path)
    if not (path / ADAPTER_WEIGHTS).is_file():
        raise InvalidInputError(
            f"{path} must hold {ADAPTER_WEIGHTS}: save the adapter again with a newer peft, or "
            "with `save_pretrained(folder, safe_serialization=True)`."
        )
    settings = json.loads((path / ADAPTER).read_bytes())
    if not isinstance(settings, dict) or settings.get("task_type") != TASK:
        task = settings.get("task_type") if isinstance(settings, dict) else None
        raise InvalidInputError(
            f"{path / ADAPTER} must be of a classifier (task_type {TASK!r}), got {task!r}."
        )
    # how parameters began does not matter, as all are read; some ways read other files
    for name in ("init_lora_weights", "prompt_tuning_init", "tokenizer_name_or_path"):
        settings.pop(name, None)
    for name in ("auto_mapping", "tokenizer_kwargs"):  # name code, or how to load it
        if settings.pop(name, None):
            raise InvalidInputError(
                f"{path / ADAPTER} names code outside the folder ({name}), and no such code is "
                "run: remove that entry."
            )
    return settings | {"inference_mode": False}


def _check_whole(path: Path, needed: Iterable[str], there: Iterable[str]) -> None:
    """Raise unless every parameter of the adapter is in the file, and nothing else."""
    missing, left = sorted(set(needed) - set(there)), sorted(set(there) - set(needed))
    for problem, names in (("is missing", missing), ("is not of it", left)):
        if names:
            raise InvalidInputError(
                f"{path / ADAPTER_WEIGHTS} must hold the parameters of its adapter, but "
                f"{names[0]!r} {problem}: give the folder that peft saved, and the base model that "
                "it was trained on."
            )
