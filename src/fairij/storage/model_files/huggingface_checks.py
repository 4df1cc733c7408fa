"""What a Hugging Face folder must be: whole, of the size that it says, and nothing outside it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from fairij.data.memory import check_size as check_memory
from fairij.errors import InvalidInputError

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
LARGEST_TABLE = 2**24  # bytes of a JSON file of settings
LARGEST_TOKENIZER = 2**27
SPARE = 10**7  # parameters that need not be stored, as they are computed
MOST_SHOWN = 3
MOST_LABELS = 10**5  # where the files do not say


def check_folder(path: Path) -> None:
    """Raise if a folder points outside itself, at code, or is larger than such folders are."""
    check_files(path)
    config = json.loads((path / "config.json").read_bytes())
    if not isinstance(config, dict):
        raise InvalidInputError(f"{path / 'config.json'} must hold a table of settings.")
    _check_labels(path, config)
    for name, value in _settings(config):
        if name.endswith("_implementation") and isinstance(value, str) and "/" in value:
            raise InvalidInputError(
                f"{path / 'config.json'} names code outside the folder ({name}: {value!r}), and "
                "no such code is run: remove that entry."
            )


def check_files(path: Path) -> None:
    """Raise if a folder holds more than plain files, or tables that are too large."""
    for file in sorted(path.iterdir()):
        if not file.is_file() and not file.is_dir():  # reading a pipe may never end
            raise InvalidInputError(f"{file} must be a plain file: take it out of the folder.")
        largest = LARGEST_TOKENIZER if file.name.startswith("tokenizer") else LARGEST_TABLE
        if file.suffix == ".json" and file.stat().st_size > largest:
            raise InvalidInputError(
                f"{file} must have at most {largest // 2**20} MB, got "
                f"{file.stat().st_size / 2**20:.1f}."
            )


def _check_labels(path: Path, config: Mapping[str, Any]) -> None:
    """Raise if there are more labels than any tensor has rows: the library names each of them."""
    labels = config.get("num_labels") or 0
    largest = max(stored(path, max).values(), default=MOST_LABELS)
    if not isinstance(labels, int) or labels > largest:
        raise InvalidInputError(
            f"{path / 'config.json'} must say how many labels the model has, got "
            f"{str(labels)[:30]}, but no tensor in the folder has more than {largest} rows: give "
            "the settings that the model was saved with."
        )


def check_finite(path: Path, model: Any) -> None:
    """Raise if a parameter is NaN or infinite."""
    for name, value in model.named_parameters():
        if not bool(torch.isfinite(value.detach()).all()):
            raise InvalidInputError(
                f"{path} must hold finite parameters, but {name!r} has NaN or infinity: it was "
                "damaged, or its training diverged. Save a model of an earlier step."
            )


def check_size(path: Path, config: Any, make: Any) -> None:
    """Raise if ``config`` describes a much larger model than the folder's files hold.

    ``make`` builds the model of a configuration; here it does so without memory for its numbers.
    """
    sizes = stored(path)
    if not sizes:
        return  # older files, which are opened only if the user trusts them
    held, layers = sum(sizes.values()), getattr(config, "num_hidden_layers", 0)
    if isinstance(layers, int) and layers > len(sizes):
        raise InvalidInputError(
            f"{path / 'config.json'} describes {layers} layers, but the folder's files hold only "
            f"{len(sizes)} tensors: give the settings that the model was saved with."
        )
    with torch.device("meta"):
        model = make(config)
    needed = sum(part.numel() for part in model.parameters())
    if needed > 2 * held + SPARE:
        raise InvalidInputError(
            f"{path / 'config.json'} describes a model of {needed} parameters, but the folder's "
            f"files hold {held}: give the settings that the model was saved with."
        )
    parts = [*model.parameters(), *model.buffers()]
    check_memory(path, sum(part.numel() * part.element_size() for part in parts))


def stored(path: Path, of_shape: Callable[[list[int]], int] = math.prod) -> dict[str, int]:
    """How many numbers each tensor in the folder's safetensors files has, or another number."""
    names = [WEIGHTS] if (path / WEIGHTS).exists() else []
    if not names and (path / INDEX).exists():
        table = json.loads((path / INDEX).read_bytes())["weight_map"]
        names = sorted(set(table.values()))
        for name in names:
            if not isinstance(name, str) or Path(name).name != name:
                raise InvalidInputError(
                    f"{path / INDEX} must name files in the folder itself, got {name!r}."
                )
    sizes = dict[str, int]()
    for name in names:
        sizes |= sizes_in(path / name, of_shape)
    return sizes


def sizes_in(path: Path, of_shape: Callable[[list[int]], int] = math.prod) -> dict[str, int]:
    """The same of one file."""
    with safe_open(path, "pt") as file:
        names = list(file.keys())
        return {key: of_shape(file.get_slice(key).get_shape() or [1]) for key in names}


def without_head(info: Mapping[str, Any]) -> dict[str, Any]:
    """What was loaded, but for the head of a classifier, which an adapter brings along."""
    found = {name: list(info[name]) for name in ("missing_keys", "mismatched_keys")}
    return {
        **info,
        "missing_keys": [name for name in found["missing_keys"] if not _of_head(name)],
        "mismatched_keys": [key for key in found["mismatched_keys"] if not _of_head(str(key[0]))],
    }


def _of_head(name: str) -> bool:
    return name.split(".")[0] in ("classifier", "score", "pre_classifier")


def check_loaded(path: Path, info: Mapping[str, Any]) -> None:
    """Raise unless every parameter came from the files, and every tensor in them was used.

    The library would draw what is missing at random.
    """
    missing, left = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    if missing:
        raise InvalidInputError(
            f"{path} must hold all parameters of its model, but {_shown(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing, and would be random: save the "
            "fitted model with all its parts, its head too."
        )
    if found := sorted(info["mismatched_keys"], key=str):
        name, there, needed = found[0]
        raise InvalidInputError(
            f"{path} must hold parameters of the shapes that config.json describes, but {name!r} "
            f"is {tuple(there)} in the file and {tuple(needed)} by the settings: give the settings "
            "that the model was saved with."
        )
    if left:
        raise InvalidInputError(
            f"{path} must hold the parameters of its model alone, but {_shown(left)} "
            f"{'is' if len(left) == 1 else 'are'} not of it: config.json describes another model "
            "than the one that was saved."
        )
    if info.get("error_msgs"):
        raise InvalidInputError(f"{path} cannot be loaded: {next(iter(info['error_msgs']))}")


def _shown(names: list[str]) -> str:
    rest = len(names) - MOST_SHOWN
    shown = ", ".join(map(repr, names[:MOST_SHOWN]))
    return shown + (f" and {rest} more" if rest > 0 else "")


def _settings(config: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """All entries, also of tables inside."""
    for name, value in config.items():
        yield name, value
        if isinstance(value, dict):
            yield from _settings(value)
