"""What a search sees of the run, and what it proposes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import nan
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from fairij.errors import Notice
from fairij.method.influence import Influence
from fairij.method.objective import Objective
from fairij.solvers.base import Inverse


@dataclass(frozen=True)
class SignedGaps:
    """Differences between groups that have a sign, at some parameters."""

    soft: Tensor  # (P,), of smooth scores
    hard: Tensor  # (P,), of hard predictions
    to_zero: Tensor  # (P,), whether zero is where it should be; else as low as it can be
    pull: Callable[[], Tensor]  # makes the gradients
    adds_up: bool = False  # whether the gap is the sum of their absolute values

    @cached_property
    def gradients(self) -> Tensor:
        """The gradients of the smooth ones, ``(D, P)``."""
        return self.pull()

    def wanted(self, first: Tensor, share: float) -> Tensor:
        """What they should be once they are closed by this share of what they were at first."""
        return first - share * torch.where(self.to_zero, first, first.abs())


SignedAt = Callable[[Objective, Tensor], SignedGaps]
"""(The objective at a move, the move) -> the gaps with a sign there."""

Posed = tuple[Objective, SignedAt, bool]
"""A constrained problem: what is to stay low, what is to be closed, and whether both are of the
same outputs."""


@dataclass(frozen=True)
class SearchContext:
    """One fairness gradient and what was computed from it, before any edit is tried."""

    objective: Objective
    inverse: Inverse
    order: Tensor  # the rows that may be dropped, most harmful first
    influence: Influence
    gradient: Tensor  # (D,) the gradient of M
    gap: float  # M
    # a move (D,) -> the gaps of hard predictions there (P,), gradients of the soft gaps (D, P)
    gaps_at: Callable[[Tensor], tuple[Tensor, Tensor]]
    inverse_at: Callable[[Tensor], Inverse]  # a move (D,) -> the damped inverse there
    signed_at: SignedAt
    # an objective, a damping, a number of products, the inverse nearby that was made before
    # -> an inverse that stops after so many products
    inverse_of: Callable[[Objective, float, int, Inverse | None], Inverse]
    # whether by chances, and on which rows the loss is -> the problem; see `posed`
    pose: Callable[[bool, str], Posed]
    # a move (D,) -> the nearest one within the model's bounds
    within: Callable[[Tensor], Tensor] = lambda move: move
    of_one_table: bool = False  # whether the gaps are those of the objective's outputs
    notices: list[Notice] = field(default_factory=list)  # what the search wants to be said

    def posed(self, *, chances: bool, loss_on: str) -> SearchContext:
        """The same with the gaps by chances of groups, or the loss on "validation" rows."""
        objective, signed_at, same = self.pose(chances, loss_on)
        return replace(self, objective=objective, signed_at=signed_at, of_one_table=same)


@dataclass(frozen=True)
class Proposal:
    """Edits ``theta + c direction`` to be judged, one for each scale c."""

    k: int  # the number of rows that are dropped, or whose weight is lowered
    direction: Tensor  # (D,)
    scales: tuple[float, ...]
    label: float | None = None  # the scale in the table of candidates, if it is not c
    error: float = nan  # in energy, of the solves behind the direction; NaN if not known


@dataclass(frozen=True)
class Forms:
    """The search that suits a model, and another one."""

    search: Search
    why: str  # a sentence
    # for where chances of groups cannot be had, with its own sentence; None if none is needed
    otherwise: tuple[Search, str] | None = None
    compared: bool = False  # by rows that no edit has seen, if both can be run


MOVES = "moves the numbers inside the model"
NOT_AGAIN = "The model was not trained again."


@dataclass(frozen=True)
class Account:
    """What an edit did, in words for the report."""

    sentence: str  # the end of a sentence that begins with "the edit"
    name: str  # what the size of the edit is called
    size: str
    note: str
    distance: str = ""  # a sentence: how far the edit goes, measured by the search's own estimate
    beyond: str = ""  # a sentence if it goes farther than the estimate is known to hold, or ""


class SearchDefaults(Protocol):
    """What a search need not offer: to be inherited by every search."""

    drops: ClassVar[bool] = False  # whether whole rows are dropped
    stops_early: ClassVar[bool] = False  # at the first proposal that does not lower the gap
    row_by_row: ClassVar[bool] = True  # whether it decides for each row to drop or reweight it
    recomputes_gradient: ClassVar[bool] = False  # then one linear estimate says little
    closes_other_rows: ClassVar[bool] = False  # gaps on rows of their own (`Counterfactual`)

    @property
    def quicker(self) -> Any:
        """The same with fewer edits, to compare it with another search."""
        return self

    def forms(
        self, *, trained_together: bool, drop: str, runs_model: bool = False, linear: bool = False
    ) -> Forms | None:
        """The search that is run in its place; None if it is itself one.

        ``trained_together``: see `Editable`. ``drop``: the setting of that name. ``runs_model``:
        whether a product with the curvature runs the whole model. ``linear``: whether few
        directions may stand for all, see `reduced`.
        """
        return None

    def most(self, rows: int) -> int | None:
        """The most rows that are ever dropped; None for no limit."""
        return None

    def account(self, k: int, scale: float, rows: int) -> Account:
        """The edit with these ``k`` and ``scale`` in words; ``rows`` were trained on."""
        return Account(
            f"{MOVES}. {NOT_AGAIN}",
            "size of the edit",
            f"{scale:g}",
            "as the search counts it",
        )


class Search(SearchDefaults, Protocol):
    """Settings that say which edits to try."""

    name: ClassVar[str]

    def propose(self, context: SearchContext) -> Iterator[Proposal]: ...

    def count(self, context: SearchContext) -> int:
        """The largest possible number of proposals."""
        ...


def way_to_zero(scale: float) -> tuple[str, str]:
    """`distance` and `beyond` of an account whose scale 1 is where the gap should be zero."""
    beyond = "Going farther makes up for what the straight-line estimate misses."
    return (
        f"The edit goes {scale:.0%} of the way to a closed gap.",
        beyond if scale > 1 else "",
    )
