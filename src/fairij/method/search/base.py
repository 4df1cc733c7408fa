"""What a search sees of the run, and what it proposes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from fairij.method.influence import Influence
from fairij.method.objective import Objective
from fairij.solvers.base import Inverse


@dataclass(frozen=True)
class Scene:
    """One fairness gradient with all that it led to, before any edit is tried."""

    objective: Objective
    inverse: Inverse
    order: Tensor  # the rows that may be dropped, the most harmful first
    influence: Influence
    gradient: Tensor  # (D,) of M, in whose fall edits are measured
    gap: float  # M
    # (D,) moved by -> the gaps of hard predictions there (P,), with soft gradients (D, P)
    gaps_at: Callable[[Tensor], tuple[Tensor, Tensor]]
    inverse_at: Callable[[Tensor], Inverse]  # (D,) moved by -> the damped inverse there


@dataclass(frozen=True)
class Proposal:
    """Edits ``theta + c direction`` to be judged, one for each scale c."""

    k: int  # rows that are dropped, or whose weight is lowered
    direction: Tensor  # (D,)
    scales: tuple[float, ...]
    label: float | None = None  # what the table calls the scale, where it is not c


@dataclass(frozen=True)
class Account:
    """What an edit did, in words for the report."""

    sentence: str  # the end of a sentence that begins with "the edit"
    name: str  # what the size of the edit is called
    size: str
    note: str


class Search(Protocol):
    """Settings that say which edits to try."""

    name: ClassVar[str]
    # whether whole rows are dropped: then candidates are solved loosely and the chosen one again
    drops: ClassVar[bool]
    stops_early: ClassVar[bool]  # at the first proposal that does not lower the gap

    def propose(self, scene: Scene) -> Iterator[Proposal]: ...

    def count(self, scene: Scene) -> int:
        """The largest possible number of proposals."""
        ...

    def most(self, rows: int) -> int | None:
        """The most rows that are ever dropped; None for no limit."""
        ...

    def account(self, k: int, scale: float, rows: int) -> Account:
        """The edit with these ``k`` and ``scale`` in words; ``rows`` were trained on."""
        ...


class SearchDefaults:
    """A search that moves parameters without dropping rows and judges every proposal."""

    drops: ClassVar[bool] = False
    stops_early: ClassVar[bool] = False

    def most(self, rows: int) -> int | None:
        return None

    def account(self, k: int, scale: float, rows: int) -> Account:
        return Account(
            "moved the parameters, without training again.",
            "size of the edit",
            f"{scale:g}",
            "as the search counts it",
        )
