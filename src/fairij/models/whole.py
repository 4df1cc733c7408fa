"""Models whose parts do not fit together, as files of others may hold them, end in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from fairij.errors import FairIJError, InvalidInputError
from fairij.models.base import Editable

# what code raises that finds a part of a model missing, or of another kind or shape
UNFIT = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)


def whole(model: Any, make: Callable[..., Editable], options: Mapping[str, Any]) -> Editable:
    """The adapter of a model, if its parts fit together."""
    try:
        editable = make(model, **options)
    except (FairIJError, NotFittedError):
        raise
    except UNFIT as error:
        said = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise InvalidInputError(
            f"The model, a {type(model).__name__}, must be whole as its library fits it, but its "
            f"parts do not fit together: {type(error).__name__}: {said}. Load it from the file "
            "that its training saved, or train it again."
        ) from error
    _check_classes(model, editable.classes)
    return editable


def _check_classes(model: Any, classes: Any) -> None:
    if classes is None:
        return
    found = np.asarray(classes)
    if found.ndim != 1 or len(found) < 2 or len(set(map(str, found.tolist()))) < len(found):
        raise InvalidInputError(
            f"The classes of the model, a {type(model).__name__}, must be at least two different "
            f"labels, got {found.tolist()!r}: load it from the file that its training saved."
        )


def real_numbers(name: str, values: Any, *dimensions: int) -> np.ndarray[Any, Any]:
    """A part of a fitted model: an array of real numbers with one of these numbers of axes."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" or array.ndim not in dimensions or array.size == 0:
        axes = " or ".join(map(str, dimensions))
        raise InvalidInputError(
            f"The model's `{name}` must be real numbers with {axes} axes, got {array.dtype} of "
            f"shape {array.shape}: load it from the file that its training saved."
        )
    return array
