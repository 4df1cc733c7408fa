"""Which validation rows the gradient sees, and which ones candidates are judged on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairij.method.settings import Settings
from fairij.method.types import GroupedRows
from fairij.models.losses import Loss

FOLDS = 5  # of a cross-fit


def pools(settings: Settings, loss: Loss) -> bool:
    """Whether cross-fitting pools fold predictions; otherwise it averages two halves.

    A search that stops by the gap of its own fold needs more than a fifth of the rows per fold.
    """
    counted = settings.constraint.is_counted(loss)
    return counted and settings.validation == "cross_fit" and not settings.search.stops_early


def folds(
    rows: GroupedRows, settings: Settings, loss: Loss, n_classes: int
) -> list[tuple[GroupedRows, GroupedRows]]:
    """Pairs of validation rows: what the gradient sees, what candidates are judged on."""
    if settings.validation == "reuse":
        return [(rows, rows)]
    strata = rows.groups.codes.astype(np.int64)
    if loss.is_classification:
        strata = strata * n_classes + rows.y.cpu().numpy().astype(np.int64)
    fold = assigned(strata, FOLDS if pools(settings, loss) else 2, settings.seed)
    judged = range(fold.max() + 1) if settings.validation == "cross_fit" else (1,)
    return [
        (rows.take(np.flatnonzero(fold != f)), rows.take(np.flatnonzero(fold == f))) for f in judged
    ]


def assigned(strata: NDArray[np.int64], parts: int, seed: int) -> NDArray[np.int64]:
    """Assign rows at random to stratified folds of near-equal size: the fold of each row.

    Sizes differ by at most one in any run of strata, so a group of two rows is in two folds.
    """
    shuffled = np.random.default_rng(seed).permutation(len(strata))
    part = np.empty(len(strata), dtype=np.int64)
    part[np.lexsort((shuffled, strata))] = np.arange(len(strata)) % parts
    return part
