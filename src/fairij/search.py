"""Candidate edits and their judgement: how many points to drop, and how far to move.

An edit is ``theta + c (H + damping I)^-1 sum_{m in top k} g_m / N``. ``c = 1`` is the jackknife's
own estimate of refitting without the k points; other scales are the paper's multipliers of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.errors import InvalidInputError
from fairij.fairness import counts
from fairij.fairness.constraints import Constraint
from fairij.fairness.groups import Groups
from fairij.influence import nested_gradients
from fairij.losses import Loss
from fairij.models.base import Evaluator
from fairij.objective import Objective
from fairij.solvers.base import Inverse

PAPER_SCALES = (0.01, 0.1, 1.0, 2.0, 3.0, 5.0, 10.0)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Grid:
    """Every k with every scale (the paper's experiments: 40 values of k, 7 scales).

    Parameters
    ----------
    k : the numbers of points to drop; None for ``points`` values spread evenly up to ``max_k``
    max_k : None for 2000 or an eleventh of the training rows, whichever is more
    tolerance : relative residual to which candidates are solved; the chosen one is solved anew
        to the solver's own tolerance
    """

    k: tuple[int, ...] | None = None
    scales: tuple[float, ...] = PAPER_SCALES
    points: int = 40
    max_k: int | None = None
    tolerance: float = 5e-2

    def __post_init__(self) -> None:
        _check_scales(self.scales)
        if self.k is not None and np.ndim(self.k) != 1:
            raise InvalidInputError(f"`k` must be several numbers, as in (50, 100); got {self.k}.")
        if self.k is not None and not all(k == int(k) >= 0 for k in self.k):
            raise InvalidInputError(f"`k` must be whole numbers of at least 0, got {self.k}.")
        if self.points < 2:
            raise InvalidInputError(
                f"`points` must be at least 2, as the first is k = 0; got {self.points}."
            )
        if self.max_k is not None and self.max_k < 1:
            raise InvalidInputError(f"`max_k` must be at least 1 or None, got {self.max_k}.")

    def ks(self, positive: int, rows: int) -> list[int]:
        """The values of k to try, ascending, without 0 and none above the points there are."""
        if self.k is not None:
            values = {min(int(k), positive) for k in self.k}
        else:
            top = min(self.max_k or max(2000, rows // 11), positive)
            values = {int(k) for k in np.linspace(0, top, self.points).round()}
        return sorted(values - {0})


@dataclass(frozen=True)
class AllPositive:
    """Drop every point of positive influence (proposition 3.1), at the given scales."""

    scales: tuple[float, ...] = (1.0,)
    tolerance: float = 2e-2

    def __post_init__(self) -> None:
        _check_scales(self.scales)

    def ks(self, positive: int, rows: int) -> list[int]:
        return [positive] if positive else []


@dataclass(frozen=True)
class Sequential:
    """The loop of algorithms 1 and 2: one more step of points until the gap stops falling."""

    step: int = 1
    scales: tuple[float, ...] = field(default=(1.0,))
    max_k: int = 2000
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        _check_scales(self.scales)
        if not 1 <= self.step <= self.max_k:
            raise InvalidInputError(
                f"`step` must lie between 1 and `max_k`={self.max_k}, got {self.step}."
            )
        if len(self.scales) != 1:
            raise InvalidInputError(
                f"The sequential rule compares each k with the last: one scale; got {self.scales}."
            )

    def ks(self, positive: int, rows: int) -> list[int]:
        return list(range(self.step, min(positive, self.max_k) + 1, self.step))


Search = Grid | AllPositive | Sequential
SEARCHES: dict[str, type[Search]] = {
    "grid": Grid,
    "all_positive": AllPositive,
    "sequential": Sequential,
}


def get_search(search: str | Search) -> Search:
    """Look a search up by name, with its default settings; a search object is returned as it is."""
    if isinstance(search, (Grid, AllPositive, Sequential)):
        return search
    if not isinstance(search, str) or search not in SEARCHES:
        raise InvalidInputError(
            f"`search` must be one of {sorted(SEARCHES)} or a search object, as in "
            f"Grid(max_k=500); got {search!r}."
        )
    return SEARCHES[search]()


def _check_scales(scales: tuple[float, ...]) -> None:
    if np.ndim(scales) != 1 or not len(scales) or not all(0 < scale < np.inf for scale in scales):
        raise InvalidInputError(
            f"`scales` must be one or more positive multipliers of the edit (1 is the jackknife's "
            f"own), got {scales}."
        )


@dataclass(frozen=True)
class Judge:
    """Hard metrics of edited models on one set of rows."""

    evaluator: Evaluator
    y: Tensor
    groups: Groups
    loss: Loss
    constraint: Constraint
    n_classes: int

    def judge(self, direction: Tensor, scales: tuple[float, ...]) -> dict[str, NDArray[Any]]:
        """Gap and performance at ``theta + c direction`` for each scale c."""
        steps = torch.tensor(scales, dtype=torch.float64)
        z = self.evaluator.along(direction, steps)  # (S, N) or (S, N, C)
        finite = torch.isfinite(z).flatten(1).all(1).cpu().numpy()
        z = z.nan_to_num(0.0, 0.0, 0.0)  # a candidate that blew up gets no value from these
        table = self._table(z) if self.loss.is_classification else None
        gap = self.constraint.gap(z, self.y, self.groups, table)
        result = {"gap": np.where(finite & ~np.isnan(gap), gap, np.inf)}
        if table is not None:
            result["accuracy"] = np.where(finite, counts.accuracy(table), 0.0)
            result["balanced_accuracy"] = np.where(finite, counts.balanced_accuracy(table), 0.0)
        else:
            error = ((z - self.y) ** 2).mean(-1).double() / self.y.var(correction=0).double()
            result["r2"] = np.where(finite, 1 - error.cpu().numpy(), -np.inf)
        return result

    def _table(self, z: Tensor) -> NDArray[np.float64]:
        return counts.confusion_counts(
            self.y.long().cpu().numpy(),
            self.loss.predict(z).cpu().numpy(),
            self.groups.codes,
            n_groups=len(self.groups.names),
            n_classes=self.n_classes,
        )


def performance_column(loss: Loss) -> str:
    return "accuracy" if loss.is_classification else "r2"


def candidates(
    search: Search,
    objective: Objective,
    inverse: Inverse,
    order: Tensor,
    judge: Judge,
    progress: Progress,
) -> pd.DataFrame:
    """Judge every candidate of a search; the first row is the model as it is (k = 0).

    ``order`` lists the training points that may be dropped, the most harmful first.
    """
    nothing = torch.zeros_like(objective.theta)
    parts = [_rows(0, (1.0,), inverse.damping, judge.judge(nothing, (1.0,)))]
    ks = search.ks(len(order), len(objective.y))
    best = float(parts[0]["gap"].iloc[0])
    for done, (k, direction) in enumerate(_directions(search, objective, inverse, order, ks)):
        result = judge.judge(direction, search.scales)
        parts.append(_rows(k, search.scales, inverse.damping, result))
        progress("candidates", done + 1, len(ks))
        if isinstance(search, Sequential):
            if not result["gap"][0] < best:
                break
            best = float(result["gap"][0])
    return pd.concat(parts, ignore_index=True)


def _directions(
    search: Search, objective: Objective, inverse: Inverse, order: Tensor, ks: list[int]
) -> Iterator[tuple[int, Tensor]]:
    """``(k, (H + damping I)^-1 sum_{m < k} g_m / N)``; all solved at once where all are needed."""
    chunk = 16 if isinstance(search, Sequential) else max(len(ks), 1)
    start = torch.zeros_like(objective.theta)
    before = 0
    for first in range(0, len(ks), chunk):
        some = ks[first : first + chunk]
        pulls = nested_gradients(objective, order[before:], [k - before for k in some])
        pulls = pulls + start[:, None]
        start, before = pulls[:, -1], some[-1]
        moved = inverse.solve(pulls, tolerance=search.tolerance).x
        yield from zip(some, moved.T, strict=True)


def _rows(
    k: int, scales: tuple[float, ...], damping: float, result: dict[str, NDArray[Any]]
) -> pd.DataFrame:
    return pd.DataFrame({"damping": damping, "k": k, "scale": scales, **result})
