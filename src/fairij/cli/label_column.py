"""The label column of a table as the model takes it, and the table's words for 0 and 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.models import adapt
from fairij.storage.model_files import ModelFile

Words = tuple[str, str] | None


def read_labels(
    label: pd.Series[Any], positive: str | None, file: ModelFile, path: Path
) -> tuple[NDArray[Any], Words]:
    """The labels, and the words for 0 and 1. ``positive`` is the label that counts as 1."""
    is_numeric = label.dtype.kind in "iufb"
    if positive is None and is_numeric:
        return np.asarray(label), None
    found, known = sorted(map(str, label.unique())), _known(file)
    if positive is not None and positive not in found:
        raise InvalidInputError(
            f"--positive {positive} is no value of {label.name!r} in {path}; found: "
            f"{', '.join(found[:8])}."
        )
    if known is not None and set(found) <= set(known):
        if positive is not None:
            _check_is_the_models(positive, known)
        if not file.labels:
            return np.asarray(label if is_numeric else label.astype(object)), None
        words = (known[0], known[1]) if len(known) == 2 else None
        return label.map(str).map(file.labels).to_numpy(dtype=np.int64), words
    if positive is not None:
        others = [name for name in found if name != positive]
        other = others[0] if len(others) == 1 else f"not {positive}"
        return (label.map(str) == positive).to_numpy().astype(np.int64), (other, positive)
    if len(found) == 2 and known is None:
        first, second = found
        raise InvalidInputError(
            f"The labels in {label.name!r} of {path} are text ({first!r}, {second!r}), and the "
            "model file does not say which of them it was trained to call 1: pass it by "
            "--positive."
        )
    return np.asarray(label.astype(object)), None


def _known(file: ModelFile) -> list[str] | None:
    """The model's names of the labels, in the order of its outputs."""
    if file.labels:
        return sorted(file.labels, key=lambda name: file.labels[name])
    classes = adapt(file.model).classes
    return None if classes is None else [str(name) for name in classes.tolist()]


def _check_is_the_models(positive: str, known: list[str]) -> None:
    if len(known) != 2:
        raise InvalidInputError(
            f"The model tells {len(known)} labels apart, so none is the positive one: leave "
            "--positive out."
        )
    if positive != known[1]:
        raise InvalidInputError(
            f"The model was trained with {known[1]!r} as the positive label, not {positive!r}: "
            "leave --positive out."
        )
