"""Tables of rows in any of the forms that people hold them: count them, take some, check them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairij.errors import InvalidInputError


def n_rows(X: Any) -> int:
    """The number of rows of an array, frame, tensor, or tuple or dict of those."""
    parts = list(X.values()) if isinstance(X, Mapping) else X if isinstance(X, tuple) else [X]
    if not parts:
        raise InvalidInputError("`X` must hold at least one array, got an empty collection.")
    lengths = {len(part) for part in parts}
    if len(lengths) != 1:
        raise InvalidInputError(
            f"All parts of `X` must have as many rows as each other, got {sorted(lengths)}."
        )
    return lengths.pop()


def take_rows(X: Any, index: Any) -> Any:
    """Some rows of ``X``, in the same form."""
    if isinstance(X, Mapping):
        return {name: take_rows(part, index) for name, part in X.items()}
    if isinstance(X, tuple):
        return tuple(take_rows(part, index) for part in X)
    if isinstance(X, Tensor):
        return X[torch.as_tensor(index, device=X.device)]
    index = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    return X.iloc[index] if hasattr(X, "iloc") else np.asarray(X)[index]


def to_tensors(X: Any, *, dtype: torch.dtype, device: torch.device) -> Any:
    """``X`` as tensors on a device, real numbers in ``dtype``, checked to be finite."""
    if isinstance(X, Mapping):
        return {name: to_tensors(part, dtype=dtype, device=device) for name, part in X.items()}
    if isinstance(X, tuple):
        return tuple(to_tensors(part, dtype=dtype, device=device) for part in X)
    if isinstance(X, Tensor):
        tensor = X.detach()
    else:
        array = _numeric(X)
        # torch reads neither foreign byte order nor negative strides
        array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    if tensor.is_floating_point():
        tensor = tensor.to(device=device, dtype=dtype)
        check_finite(tensor, X)
        return tensor
    # integers are token or category ids in a collection, but numbers when they are the whole table
    return tensor.to(device=device)


def check_finite(tensor: Tensor, original: Any) -> None:
    """Raise on NaN or infinity, naming the first place."""
    if bool(torch.isfinite(tensor.sum())):  # one pass; a NaN or infinity cannot vanish from a sum
        return
    bad = ~torch.isfinite(tensor)
    if not bool(bad.any()):
        return  # the sum overflowed, the values are finite
    place = torch.nonzero(bad)[0].tolist()
    column = f", column {place[1]}" if len(place) > 1 else ""
    if len(place) > 1 and hasattr(original, "columns"):
        column = f", column {original.columns[place[1]]!r}"
    raise InvalidInputError(
        f"`X` must be finite: row {place[0]}{column} holds {tensor[tuple(place)].item()} "
        f"({int(bad.sum())} such value(s) in all); impute or drop those rows."
    )


def _numeric(X: Any) -> np.ndarray[Any, Any]:
    if hasattr(X, "toarray"):
        X = X.toarray()
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise InvalidInputError(
            "`X` is a masked array with masked values; fill them first, as in `X.filled(...)`."
        )
    array = np.asarray(X)
    if array.dtype.kind not in "fiub":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                "`X` must be numeric for this model: encode text and categories first, as with "
                f"scikit-learn's OneHotEncoder ({error})."
            ) from None
    return array
