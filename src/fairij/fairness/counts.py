"""The table of confusion counts, from which every thresholded metric follows.

``counts[..., g, t, p]`` is the (weighted) number of rows of group ``g`` with true class ``t`` and
predicted class ``p``. Leading axes, if any, run over candidate models or bootstrap resamples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def confusion_counts(
    y_true: NDArray[np.int64],
    y_pred: NDArray[np.int64],
    codes: NDArray[np.int64],
    *,
    n_groups: int,
    n_classes: int,
    sample_weight: Array | None = None,
) -> Array:
    """Count by (group, true class, predicted class); ``y_pred`` may have leading axes."""
    cell = (codes * n_classes + y_true) * n_classes  # (N,)
    size = n_groups * n_classes * n_classes
    flat = y_pred.reshape(-1, y_pred.shape[-1])
    table = np.stack(
        [np.bincount(cell + row, weights=sample_weight, minlength=size) for row in flat]
    )
    return table.reshape(*y_pred.shape[:-1], n_groups, n_classes, n_classes).astype(np.float64)


def overall(counts: Array) -> Array:
    """The same table with all groups together, shape ``(..., 1, C, C)``."""
    return counts.sum(-3, keepdims=True)


def accuracy(counts: Array) -> Array:
    """The share of all rows that is predicted right, ``(...)``."""
    table = overall(counts)[..., 0, :, :]
    return ratio_of(np.trace(table, axis1=-2, axis2=-1), table.sum((-2, -1)), empty=np.nan)


def balanced_accuracy(counts: Array) -> Array:
    """The mean recall of the classes that occur, ``(...)``."""
    table = overall(counts)[..., 0, :, :]
    occurs = table.sum(-1) > 0
    recalls = ratio_of(np.diagonal(table, axis1=-2, axis2=-1), table.sum(-1), empty=0)
    return ratio_of(recalls.sum(-1), occurs.sum(-1), empty=np.nan)


def ratio_of(part: NDArray[Any], whole: NDArray[Any], *, empty: float) -> Array:
    """``part / whole``, and ``empty`` where ``whole`` is 0."""
    out = np.full(np.broadcast_shapes(np.shape(part), np.shape(whole)), float(empty))
    return np.divide(part, whole, out=out, where=whole != 0)
