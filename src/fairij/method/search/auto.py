"""The search that suits the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from fairij.data.checks import one_of
from fairij.method.search.base import Account, Forms, Proposal, SearchContext, SearchDefaults
from fairij.method.search.constrained import Constrained
from fairij.method.search.dropping import Grid

DIRECTIONS = 20  # in which a tree ensemble is searched, where that is possible
BY_CHANCES = (
    "The constrained search was taken with the validation loss and chances of groups: the many "
    "leaves of trees have memorised the training rows, and would fit the groups of few rows."
)
OF_LOSS = (
    "The constrained search was taken: it keeps the training loss low, which says much of a model "
    "whose parameters were trained together."
)
AS_OBSERVED = "The constrained search was taken with the training loss and groups as observed."


@dataclass(frozen=True)
class Auto(SearchDefaults):
    """Take `Constrained`, in the form that suits the model.

    Networks and linear models: as it is; in half of the steps if each product runs the whole model,
    as with large language models. Tree ensembles: with the validation loss, with chances of groups
    in place of observed ones, and in few directions. With ``drop="loss_aware"``: `Grid`, as only
    rows can be dropped by two scores.

    Parameters
    ----------
    compare : bool, default=False
        Try two forms in short, chances of groups and groups as observed. Each is tried on two
        halves of the validation rows and judged on the half that its edits had not seen; the rule
        of choice takes one. Not the default: it takes several times as long, and gaps of half of
        the rows are so noisy that it often takes the worse one.

    Examples
    --------
    >>> FairIJ(model, search=Auto()).search  # the same as search="auto"
    Auto(compare=False)
    """

    compare: bool = False

    name: ClassVar[str] = "auto"
    recomputes_gradient: ClassVar[bool] = True
    closes_other_rows: ClassVar[bool] = True

    def forms(
        self, *, trained_together: bool, drop: str, runs_model: bool = False, linear: bool = False
    ) -> Forms:
        if drop == "loss_aware":
            why = "Rows are dropped, because `drop='loss_aware'` asks for a list of them."
            return Forms(Grid(), why)
        if trained_together:
            if runs_model:
                slow = " It takes half of its steps, as every product runs the whole model."
                return Forms(Constrained().quicker, OF_LOSS + slow)
            if self.compare:
                return Forms(Constrained(chances=True), "", (Constrained(), OF_LOSS), True)
            return Forms(Constrained(), OF_LOSS)
        directions = DIRECTIONS if linear else None
        held = Constrained(
            steps=8,
            chances=True,
            loss_on="validation",
            cheapest_first=True,
            directions=directions,
        )
        plain = (Constrained(directions=directions), AS_OBSERVED)
        return Forms(held, BY_CHANCES, plain, self.compare)

    def __post_init__(self) -> None:
        one_of("compare", self.compare, (True, False))

    def propose(self, context: SearchContext) -> Iterator[Proposal]:
        return Constrained().propose(context)

    def count(self, context: SearchContext) -> int:
        return Constrained().count(context)

    def account(self, k: int, scale: float, rows: int) -> Account:
        return Constrained().account(k, scale, rows)
