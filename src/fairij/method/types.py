"""What the engine works with on the way, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from fairij.errors import Notice
from fairij.fairness.optimism import Patterns
from fairij.method.candidates import Move
from fairij.method.fairness_rows import FairnessRows, GroupedRows
from fairij.method.influence import Influence
from fairij.models.losses import Loss
from fairij.solvers.base import Inverse

if TYPE_CHECKING:
    from fairij.method.preparation import Settings

FOLDS = 5  # of a cross-fit


@dataclass(frozen=True)
class Target:
    """The surrogate ``M`` on some rows with groups, and its gradient."""

    rows: FairnessRows
    gaps: Tensor  # (P,) the parts of M
    gradients: Tensor  # (D, P)
    loss_gradient: Tensor | None  # of the validation loss, if it is asked for

    @property
    def value(self) -> float:
        return float(self.gaps.sum())


@dataclass(frozen=True)
class Ranking:
    """The training rows that may be dropped, most harmful first, by one fairness gradient."""

    target: Target
    weights: Tensor  # (P,) of the parts of M
    influence: Influence
    loss_scores: Tensor | None
    order: Tensor  # no more rows than the search drops
    positive: int  # how many rows have positive scores


@dataclass(frozen=True)
class Trial:
    """Everything tried at one damping."""

    inverse: Inverse
    rankings: list[Ranking]  # one per fold
    table: pd.DataFrame
    moves: dict[tuple[int, float], Move] = field(default_factory=dict)  # by k and scale
    estimated: dict[int, Tensor] = field(default_factory=dict)  # directions by k


@dataclass
class Outcome:
    """The result of a run."""

    influence: Tensor  # on the gap
    joint_influence: Tensor | None  # by which rows are dropped, if it is another
    loss_influence: Tensor | None
    direction: Tensor  # (D,) behind the influence
    dropped: NDArray[np.int64]
    candidates: pd.DataFrame
    chosen: int
    delta: Tensor
    judged: GroupedRows
    diagnostics: dict[str, Any]
    moves: Tensor | None = None  # (R, D) the parameter change of each candidate
    patterns: Patterns | None = None  # what all candidates predict on the rows of the choice
    squares: NDArray[np.float64] | None = None  # of the weights of these rows, (G, C, C)
    of_scores: dict[str, NDArray[np.float64]] = field(default_factory=dict)  # of the same
    notices: list[Notice] = field(default_factory=list)


def pools(settings: Settings, loss: Loss) -> bool:
    """Whether cross-fitting pools the predictions of five folds; else it averages two halves."""
    can_pool = settings.constraint.is_counted(loss) and not settings.search.stops_early
    return can_pool and settings.validation_use == "cross_fit"


def folds(
    rows: GroupedRows, settings: Settings, loss: Loss, n_classes: int, parts: int = FOLDS
) -> list[tuple[GroupedRows, GroupedRows]]:
    """Pairs of validation rows: what the gradient sees, what candidates are judged on."""
    if settings.validation_use == "reuse":
        return [(rows, rows)]
    strata = rows.groups.codes.astype(np.int64)
    if loss.is_classification:
        strata = strata * n_classes + rows.y.cpu().numpy().astype(np.int64)
    fold = assigned(strata, parts if pools(settings, loss) else 2, settings.seed)
    judged = range(fold.max() + 1) if settings.validation_use == "cross_fit" else (1,)
    return [
        (rows.take(np.flatnonzero(fold != f)), rows.take(np.flatnonzero(fold == f))) for f in judged
    ]


def assigned(strata: NDArray[np.int64], parts: int, seed: int) -> NDArray[np.int64]:
    """The fold of each row: each stratum is spread at random, as evenly as possible."""
    shuffled = np.random.default_rng(seed).permutation(len(strata))
    part = np.empty(len(strata), dtype=np.int64)
    part[np.lexsort((shuffled, strata))] = np.arange(len(strata)) % parts
    return part
