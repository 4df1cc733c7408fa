"""Drop whole rows: how many, and how far to move.

An edit is ``theta + c (H + damping I)^-1 sum_{m in top k} g_m / N``. Scale ``c = 1`` is the
jackknife's estimate of a refit without the k rows; other scales multiply it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from fairij.data.checks import check_scales, whole_number
from fairij.errors import InvalidInputError
from fairij.method.influence import nested_gradients
from fairij.method.search.base import (
    MOVES,
    NOT_AGAIN,
    Account,
    Proposal,
    SearchContext,
    SearchDefaults,
)

PAPER_SCALES = (0.01, 0.1, 1.0, 2.0, 3.0, 5.0, 10.0)


class _Dropping(SearchDefaults):
    """What the searches that drop whole rows share."""

    scales: tuple[float, ...]
    drops: ClassVar[bool] = True
    at_once: ClassVar[int | None] = None  # how many k are solved together; None for all

    def ks(self, positive: int, rows: int) -> list[int]:
        raise NotImplementedError

    def most(self, rows: int) -> int:
        return max(self.ks(rows, rows), default=0)

    def account(self, k: int, scale: float, rows: int) -> Account:
        far = "" if scale == 1 else f", but {scale:g} times as far"
        return Account(
            f"{MOVES} as if {k:,} of the {rows:,} training rows, those that push the gap up most, "
            f"had been left out{far}. {NOT_AGAIN}",
            "training rows left out in effect",
            f"{k:,}",
            f"{k / rows:.1%} of the training rows, at scale {scale:g}",
            f"The edit is {scale:g} times the estimated effect of leaving those rows out.",
            "It goes farther than training without those rows would." if scale > 1 else "",
        )

    def count(self, context: SearchContext) -> int:
        return len(self.ks(len(context.order), len(context.objective.y)))

    def propose(self, context: SearchContext) -> Iterator[Proposal]:
        """``(H + damping I)^-1 sum_{m < k} g_m / N`` for each k."""
        ks = self.ks(len(context.order), len(context.objective.y))
        chunk = self.at_once or max(len(ks), 1)
        start, before = torch.zeros_like(context.objective.theta), 0
        for first in range(0, len(ks), chunk):
            some = ks[first : first + chunk]
            steps = [k - before for k in some]
            pulls = (
                nested_gradients(context.objective, context.order[before:], steps) + start[:, None]
            )
            start, before = pulls[:, -1], some[-1]
            solution = context.inverse.solve(pulls)
            solved = zip(some, solution.x.T, solution.told.tolist(), strict=True)
            for k, direction, error in solved:
                yield Proposal(k, direction, self.scales, error=error)


@dataclass(frozen=True)
class Grid(_Dropping):
    """Every k with every scale (the paper's experiments: 40 values of k, 7 scales).

    Parameters
    ----------
    k : tuple of int or None, default=None
        The numbers of rows to drop. None for ``points`` values spread evenly up to ``max_k``.
    scales : tuple of float
        Multipliers of the edit.
    points : int, default=40
        How many values of k to try, counting 0.
    max_k : int or None, default=None
        None for 2000 or an eleventh of the training rows, whichever is more.

    Examples
    --------
    >>> fair = FairIJ(model, search=Grid(k=(10, 100), scales=(1.0, 2.0)), verbose=False)
    >>> fair = fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=groups_val)
    >>> len(fair.candidates_)  # two k by two scales, and the model as it was
    5
    """

    k: tuple[int, ...] | None = None
    scales: tuple[float, ...] = PAPER_SCALES
    points: int = 40
    max_k: int | None = None

    name: ClassVar[str] = "grid"

    def __post_init__(self) -> None:
        check_scales(self.scales)
        if self.k is not None and np.ndim(self.k) != 1:
            raise InvalidInputError(f"`k` must be several numbers, as in (50, 100); got {self.k}.")
        if self.k is not None and not all(k == int(k) >= 0 for k in self.k):
            raise InvalidInputError(f"`k` must be whole numbers of at least 0, got {self.k}.")
        whole_number("points", self.points, 2)
        if self.max_k is not None:
            whole_number("max_k", self.max_k, 1, otherwise=" or None")

    def ks(self, positive: int, rows: int) -> list[int]:
        """The values of k to try, ascending, above 0 and at most ``positive``."""
        if self.k is not None:
            values = {min(int(k), positive) for k in self.k}
        else:
            top = min(self.max_k or max(2000, rows // 11), positive)
            values = {int(k) for k in np.linspace(0, top, self.points).round()}
        return sorted(values - {0})


@dataclass(frozen=True)
class AllPositive(_Dropping):
    """Drop every row of positive influence (proposition 3.1), at the given scales.

    Examples
    --------
    >>> FairIJ(model, search=AllPositive(scales=(0.5, 1.0))).search
    AllPositive(scales=(0.5, 1.0))
    """

    scales: tuple[float, ...] = (1.0,)

    name: ClassVar[str] = "all_positive"

    def __post_init__(self) -> None:
        check_scales(self.scales)

    def ks(self, positive: int, rows: int) -> list[int]:
        return [positive] if positive else []


@dataclass(frozen=True)
class Sequential(_Dropping):
    """The loop of algorithms 1 and 2: drop ``step`` more rows until the gap stops falling.

    Examples
    --------
    >>> FairIJ(model, search=Sequential(step=50)).search.step
    50
    """

    step: int = 1
    scales: tuple[float, ...] = field(default=(1.0,))
    max_k: int = 2000

    name: ClassVar[str] = "sequential"
    stops_early: ClassVar[bool] = True
    at_once: ClassVar[int | None] = 16

    def __post_init__(self) -> None:
        check_scales(self.scales)
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
