"""Class labels: which there are, and their places in the order of the model's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from fairij.errors import InvalidInputError

ENCODED_AT_ONCE = 2**18  # labels


def class_labels(y: NDArray[Any], z: Tensor) -> NDArray[Any]:
    """The class labels in the order of the model's outputs."""
    chunks = range(0, len(y), ENCODED_AT_ONCE)
    parts = [np.unique(y[start : start + ENCODED_AT_ONCE]) for start in chunks]
    found = np.unique(np.concatenate(parts))
    fractions = found[found != found.round()] if found.dtype.kind == "f" else found[:0]
    if len(fractions):
        raise InvalidInputError(
            f"`y` must hold class labels, got the fraction {fractions[0]:g}; pass "
            "loss='squared_error' for regression."
        )
    if z.ndim == 2:
        indices = np.arange(z.shape[1])
        if found.dtype.kind in "iufb" and np.isin(found, indices).all():
            return indices
        if len(found) == z.shape[1]:
            return found
        raise InvalidInputError(
            f"The model has {z.shape[1]} outputs, so labels must be 0 to {z.shape[1] - 1} or have "
            f"as many distinct values; found {found[:8].tolist()}."
        )
    if len(found) == 1:
        raise one_class(found[0])
    if len(found) > 2:
        raise InvalidInputError(
            f"A model with one output takes two classes, found {len(found)} label values "
            f"({', '.join(str(v) for v in found[:5])}, ...); pass loss='squared_error' for "
            "regression."
        )
    return found


def one_class(found: Any) -> InvalidInputError:
    return InvalidInputError(
        f"The training labels must hold both classes, found only {found!s}; give all the rows that "
        "the model was trained on."
    )


def positive_label(classes: NDArray[Any]) -> Any:
    """Of two classes the second, whose rates are measured; None of several and in regression."""
    if len(classes) != 2:
        return None
    label = classes.tolist()[1]
    return int(label) if isinstance(label, float) and label.is_integer() else label


def encode_classes(name: str, y: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """The place of each label among the classes."""
    kind = np.float64 if {classes.dtype.kind, y.dtype.kind} <= set("biuf") else np.str_
    smallest = np.min_scalar_type(-len(classes))
    known, place = pd.Index(classes.astype(kind)), np.empty(len(y), smallest)
    for start in range(0, len(y), ENCODED_AT_ONCE):  # what is made on the way is much larger
        some = slice(start, start + ENCODED_AT_ONCE)
        place[some] = known.get_indexer(pd.Index(y[some].astype(kind)))
    if place.min(initial=0) < 0:
        row = int(np.flatnonzero(place < 0)[0])
        raise InvalidInputError(
            f"`{name}` must hold only the labels {classes.tolist()}: row {row} holds "
            f"{y[row : row + 1].tolist()[0]!r}; drop such rows, or encode both tables alike."
        )
    return place
