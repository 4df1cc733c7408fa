"""Read and write models. A format is one line in ``FORMATS``, by the ending of the name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from fairij.data.memory import check_size
from fairij.errors import InvalidInputError
from fairij.storage.model_files import adapters, estimators, huggingface, torch_files
from fairij.storage.model_files.columns import ModelFile, Opening
from fairij.storage.model_files.huggingface_checks import ADAPTER

__all__ = ["FORMATS", "ModelFile", "Opening", "load_model"]

FORMATS: dict[str, Callable[[Path, Opening], ModelFile]] = {
    ".txt": estimators.lightgbm_text,
    ".json": estimators.json_file,
    ".ubj": estimators.xgboost_file,
    ".cbm": estimators.catboost_binary,
    ".skops": estimators.skops_file,
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), estimators.pickle_file),
    **dict.fromkeys((".safetensors", ".pt", ".pth"), torch_files.state_file),
    ".pt2": torch_files.exported_program,
}

# memory that a byte of the file takes while it is read: text as words, lists and arrays
GROWTH = {".txt": 20, ".json": 20, ".ubj": 5, ".cbm": 5}


def load_model(path: str | os.PathLike[str], opening: Opening | None = None) -> ModelFile:
    """Open a model file or folder. Code inside it runs only if the user trusts it."""
    file, opening = Path(path), opening or Opening()
    if file.is_dir():
        if (file / ADAPTER).is_file():
            return adapters.adapter(file, opening)
        if not (file / "config.json").is_file():
            raise InvalidInputError(
                f"A folder must hold a Hugging Face model (config.json, model.safetensors and a "
                f"tokenizer), but {file} has no config.json."
            )
        return huggingface.folder(file, opening)
    if not file.exists():
        raise InvalidInputError(f"No model at {file}; check the path.")
    if not file.is_file():  # reading a pipe or a device may never end
        raise InvalidInputError(f"A model must be a plain file or a folder; {file} is neither.")
    if file.suffix.lower() not in FORMATS:
        raise InvalidInputError(
            f"A model's name must end in one of {', '.join(FORMATS)}, or be a Hugging Face "
            f"folder; got {file}."
        )
    check_size(file, GROWTH.get(file.suffix.lower(), 1) * file.stat().st_size)
    return FORMATS[file.suffix.lower()](file, opening)
