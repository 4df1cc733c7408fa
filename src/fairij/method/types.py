"""What a mitigation is asked for, what it works with on the way, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import part_of
from fairij.fairness.constraints import Constraint
from fairij.fairness.groups import Groups
from fairij.fairness.optimism import Patterns
from fairij.method.candidates import Moves
from fairij.method.influence import Influence
from fairij.method.losses import Loss
from fairij.method.search.base import Search
from fairij.method.selection import Selection
from fairij.models.base import Linearization
from fairij.solvers.base import Inverse, Solution, Solver

Drop = Literal["fairness", "loss_aware"]
Reuse = Literal["reuse", "split", "cross_fit"]
FOLDS = 5  # of a cross-fit


@dataclass(frozen=True)
class Rows:
    """Validation rows: features as the user holds them, labels as a tensor, groups."""

    X: Any
    y: Tensor
    groups: Groups
    model: Linearization | None = None  # on these rows, where there is one already

    def take(self, index: NDArray[np.int64]) -> Rows:
        return Rows(part_of(self.X, index), self.y[torch.as_tensor(index)], self.groups.take(index))


@dataclass(frozen=True)
class Settings:
    """What is asked for, all of it checked."""

    constraint: Constraint
    loss: Loss
    solver: Solver
    curvature: str
    dampings: tuple[float, ...] | Literal["auto"]
    search: Search
    selection: Selection
    drop: Drop
    validation: Reuse
    temperature: float
    n_classes: int
    seed: int

    @property
    def pools(self) -> bool:
        """Whether a cross-fit counts what its folds predict together: else it has two, averaged.

        A search that stops by the gap of its own fold wants more rows than a fifth in each.
        """
        counted = self.constraint.is_counted(self.loss)
        return counted and self.validation == "cross_fit" and not self.search.stops_early


@dataclass(frozen=True)
class Target:
    """The surrogate ``M`` on some validation rows, and its gradient (and their loss's)."""

    rows: Rows
    gaps: Tensor  # (P,) the parts of M; one alone where it is not made of parts
    gradients: Tensor  # (D, P)
    loss_gradient: Tensor | None

    @property
    def value(self) -> float:
        return float(self.gaps.sum())


@dataclass(frozen=True)
class Ranking:
    """The training points that may be dropped, most harmful first, by one fairness gradient."""

    target: Target
    weights: Tensor  # (P,) of the parts of M
    influence: Influence
    loss_scores: Tensor | None
    order: Tensor  # no more of them than the search drops
    positive: int  # how many there are


@dataclass(frozen=True)
class Trial:
    """All that was tried at one damping."""

    inverse: Inverse
    rankings: list[Ranking]  # one a fold
    table: pd.DataFrame
    moves: Moves = field(default_factory=dict)  # of candidates that are solved for good
    screened: dict[int, Tensor] = field(default_factory=dict)  # directions, by k
    solved: dict[int, Solution] = field(default_factory=dict)  # by k, to the solver's tolerance


@dataclass
class Outcome:
    """Everything that came of it."""

    influence: Tensor
    loss_influence: Tensor | None
    dropped: NDArray[np.int64]
    candidates: pd.DataFrame
    chosen: int
    delta: Tensor
    judged: Rows
    diagnostics: dict[str, Any] = field(default_factory=dict)
    direction: Tensor | None = None  # (D,) behind the influence
    moves: Tensor | None = None  # (R, D) the change of each candidate, where none is solved anew
    patterns: Patterns | None = None  # what all candidates predict on the rows of the choice


def folds(rows: Rows, settings: Settings) -> list[tuple[Rows, Rows]]:
    """Pairs of validation rows: what the gradient sees, what candidates are judged on."""
    if settings.validation == "reuse":
        return [(rows, rows)]
    strata = rows.groups.codes.astype(np.int64)
    if settings.loss.is_classification:
        strata = strata * settings.n_classes + rows.y.cpu().numpy().astype(np.int64)
    fold = parted(strata, FOLDS if settings.pools else 2, settings.seed)
    judged = range(fold.max() + 1) if settings.validation == "cross_fit" else (1,)
    return [
        (rows.take(np.flatnonzero(fold != f)), rows.take(np.flatnonzero(fold == f))) for f in judged
    ]


def parted(strata: NDArray[np.int64], parts: int, seed: int) -> NDArray[np.int64]:
    """The part, 0 ... parts - 1, of each row: each has a like share of every stratum at random.

    So has it of every run of strata, give or take one: a group of two rows is in two parts.
    """
    shuffled = np.random.default_rng(seed).permutation(len(strata))
    part = np.empty(len(strata), dtype=np.int64)
    part[np.lexsort((shuffled, strata))] = np.arange(len(strata)) % parts
    return part
