"""The correction of a black box as one file: its parameters, and its functions as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairij.data.memory import TooLargeError
from fairij.errors import InvalidInputError
from fairij.models.black_box.correction import Correction
from fairij.storage.checksummed import UNREADABLE, read_sealed, write_sealed
from fairij.storage.reading import strict_json

FORMAT = "fairij.black_box/1"
SUFFIX = ".safetensors"
FILE = f"black_box{SUFFIX}"


@dataclass(frozen=True, eq=False)
class Stored:
    """What a file holds of a black box: everything but the model."""

    correction: Correction
    theta: NDArray[np.float64]
    clip: float
    classes: list[Any] | None


def write_box(target: Path, stored: Stored) -> None:
    """Write one safetensors file with a JSON header. It appears whole or not at all."""
    header = {
        "format": FORMAT,
        "correction": json.dumps(stored.correction.described()),
        "settings": json.dumps({"clip": stored.clip, "classes": stored.classes}),
    }
    write_sealed(target, {"theta": torch.from_numpy(stored.theta)}, header)


def read_box(path: Path) -> Stored:
    """Read a file. All of it is checked before use: sizes, columns, and that trees end."""
    try:
        header, tensors = read_sealed(path, FORMAT)
        made = Correction.read(strict_json(header["correction"]))
        settings = strict_json(header["settings"])
        theta = tensors["theta"]
        if theta.dtype != torch.float64 or tuple(theta.shape) != (made.size,):
            raise ValueError(
                f"`theta` must be {made.size} numbers of float64, got {tuple(theta.shape)} of "
                f"{theta.dtype}"
            )
        if not bool(torch.isfinite(theta).all()):
            raise ValueError("`theta` must be finite")
        return Stored(made, theta.numpy(), _clip(settings["clip"]), _classes(settings, made))
    except TooLargeError:
        raise
    except UNREADABLE as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise InvalidInputError(
            f"{path} does not hold the correction of a black box: {reason}. Write it with "
            "`black_box.save(folder)`."
        ) from None


def _clip(value: Any) -> float:
    if not isinstance(value, float) or not 0 < value < 0.5:
        raise ValueError(f"`clip` must be a number above 0 and below 0.5, got {value!r}")
    return value


def _classes(settings: Any, made: Correction) -> list[Any] | None:
    classes = settings["classes"]
    if classes is None:
        return None
    plain = isinstance(classes, list) and all(isinstance(c, (str, int, float)) for c in classes)
    if not plain or len(set(map(str, classes))) != max(made.n_outputs, 2):
        raise ValueError(f"`classes` must be {max(made.n_outputs, 2)} different labels")
    return list(classes)
