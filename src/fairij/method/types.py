"""What the engine works with on the way, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.rows import part_of
from fairij.errors import Notice
from fairij.fairness.groups import Groups
from fairij.fairness.optimism import Patterns
from fairij.method.candidates import Moves
from fairij.method.influence import Influence
from fairij.models.base import Linearization
from fairij.solvers.base import Inverse, Solution


@dataclass(frozen=True)
class GroupedRows:
    """Rows that carry a group: features as the user holds them, labels as a tensor."""

    X: Any
    y: Tensor
    groups: Groups
    model: Linearization | None = None  # on these rows, if it was made already

    def take(self, index: NDArray[np.int64]) -> GroupedRows:
        y, groups = self.y[torch.as_tensor(index)], self.groups.take(index)
        return GroupedRows(part_of(self.X, index), y, groups)


@dataclass(frozen=True)
class Target:
    """The surrogate ``M`` on some validation rows, and its gradient."""

    rows: GroupedRows
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
    moves: Moves = field(default_factory=dict)  # of candidates that need no second solve
    estimated: dict[int, Tensor] = field(default_factory=dict)  # directions by k
    solved: dict[int, Solution] = field(default_factory=dict)  # by k, to the solver's tolerance


@dataclass
class Outcome:
    """The result of a run."""

    influence: Tensor
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
    notices: list[Notice] = field(default_factory=list)
