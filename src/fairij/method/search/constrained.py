"""Follow the model of the least training loss while its gaps are closed, by Newton's method.

Closing a gap is a constrained problem: the least loss at which the gaps are at most so much. The
fitted model is made its own minimum,

``Phi(theta) = L(theta) - <grad L(theta_0), theta> + damping |theta - theta_0|^2 / 2``,

because a model that was stopped early would otherwise just go on training. The gaps have a sign
here: for two groups, the rate of one less that of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fairij.data.checks import number_between, one_of, whole_number
from fairij.data.row_vectors import blocks
from fairij.errors import Notice, SolverError
from fairij.method.influence import gram_of, weights_to_close
from fairij.method.objective import Objective
from fairij.method.search.allocation import cheapest
from fairij.method.search.base import (
    MOVES,
    NOT_AGAIN,
    Account,
    Proposal,
    SearchContext,
    SearchDefaults,
    SignedGaps,
    way_to_zero,
)
from fairij.method.search.reduced import reduced
from fairij.solvers.base import Inverse

# of FairIJ's damping, which is made for edits of one step; less where the loss is on rows that the
# model was not trained on, whose curvature is larger
LossOn = Literal["training", "validation"]
SHARE: dict[LossOn, float] = {"training": 0.3, "validation": 0.1}
PRICE = 10.0  # of a gap in the merit, in units of its multiplier
FACTOR = 4.0  # by which the extra damping is changed
HALVINGS = 8  # of a step, before it is given up
REFUSED = 3  # steps in a row, after which the search ends
LEAST = 1e-3  # of the damping is the extra damping
NOISE, MEMORY, SLOWEST = 0.01, 0.8, 0.25  # of `Response`
CLOSED = 0.1  # of the gap at the start: a search that ends below it says nothing


@dataclass(frozen=True)
class Constrained(SearchDefaults):
    """Close the gaps in small steps, and after each return to the least training loss there.

    Each step is ``d = -A^-1 r + A^-1 G w``. ``A`` is the damped curvature, ``r`` the gradient of
    ``Phi``, ``G`` the gradients of the gaps; ``w`` closes what the schedule asks for. A step is
    halved until loss and gaps together fall, so no edit is worse than the one that it started at.

    Parameters
    ----------
    steps : int, default=12
        How many stages close the gap. Stage i asks for a gap of ``1 - i / steps`` of the first.
    beyond : float, default=1/3
        Extra stages, as a fraction of ``steps``, that ask for a gap of zero.
    newton : int, default=2
        Newton steps in each stage. Each of them is a candidate.
    products : int, default=10
        Products with the curvature for each Newton step, if the solver counts them.
    damping : float or None, default=None
        What is added to the curvature. None for 0.3 of FairIJ's damping, which is made for edits of
        one step (0.1 with the loss of validation rows). Lower it to lose less accuracy, raise it if
        the gap is wider on new rows.
    chances : bool, default=False
        Whether steps close gaps between chances: how likely a row belongs to each group with each
        label, by a small model of the group and by the model itself. They are less noisy than what
        was observed. How far a step goes is decided by observed groups and hard predictions.
    loss_on : {"training", "validation"}, default="training"
        The rows whose loss is kept low. Trees have memorised the training rows, so their loss there
        says little. No label is used: the loss is measured from the model as it was.
    cheapest_first : bool, default=False
        Where the gap is a sum, as that of "equalized_odds": close the gaps first whose closing
        costs the least loss. Otherwise close all of them together.
    directions : int or None, default=None
        Search in so many directions of the parameters only (at least five for each gap), which
        takes far less time. For tree ensembles; None for all directions.

    Examples
    --------
    >>> fair = FairIJ(model, search=Constrained(steps=6), verbose=False)
    >>> fair = fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=groups_val)
    >>> len(fair.candidates_)  # the model as it was, and two for each of 6 + 2 stages
    17
    """

    steps: int = 12
    beyond: float = 1 / 3
    newton: int = 2
    products: int = 10
    damping: float | None = None
    chances: bool = False
    loss_on: LossOn = "training"
    cheapest_first: bool = False
    directions: int | None = None

    name: ClassVar[str] = "constrained"
    row_by_row: ClassVar[bool] = False
    recomputes_gradient: ClassVar[bool] = True
    closes_other_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("steps", "newton", "products"):
            whole_number(name, getattr(self, name), 1)
        number_between("beyond", self.beyond, 0, including_low=True)
        if self.damping is not None:
            number_between("damping", self.damping, 0)
        for name in ("chances", "cheapest_first"):
            one_of(name, getattr(self, name), (True, False))
        if self.directions is not None:
            whole_number("directions", self.directions, 1)
        one_of("loss_on", self.loss_on, tuple(SHARE))

    @property
    def quicker(self) -> Constrained:
        return replace(self, steps=max(1, self.steps // 2), newton=1)

    def most(self, rows: int) -> int:
        return 1  # none is dropped, so none is held in memory; one says that the gap can be lowered

    @property
    def _length(self) -> int:
        return round(self.steps * (1 + self.beyond)) * self.newton

    def count(self, context: SearchContext) -> int:
        return self._length

    def account(self, k: int, scale: float, rows: int) -> Account:
        way = "of the way to a closed gap"
        return Account(
            f"{MOVES} in small steps, {min(scale, 1.0):.0%} {way}, and keeps its mistakes as small "
            f"as they can be there. {NOT_AGAIN}",
            "how far the edit goes",
            f"{scale:.0%}",
            f"{way}; above 100%: the gap stays closed, and mistakes become fewer",
            way_to_zero(min(scale, 1.0))[0],
        )

    def propose(self, context: SearchContext) -> Iterator[Proposal]:
        if len(context.order) == 0:
            return
        damping = SHARE[self.loss_on] * context.inverse.damping
        if self.damping is not None:
            damping = self.damping
        if self.chances or self.loss_on != "training":
            context = context.posed(chances=self.chances, loss_on=self.loss_on)
        basis, within = None, context.within
        if self.directions is not None:
            context, basis = reduced(context, self.directions)
        descent = Descent(context, damping, self.products, cheapest_first=self.cheapest_first)
        for step in range(self._length):
            stage = step // self.newton + 1
            descent.step(min(1.0, stage / self.steps))
            label = round((step + 1) / (self.steps * self.newton), 6)
            # also where a step was refused: then folds have candidates of the same names
            move = descent.point.move if basis is None else within(basis @ descent.point.move)
            yield Proposal(len(context.order), move, (1.0,), label=label)


@dataclass(frozen=True)
class Point:
    """The model at ``theta_0 + move``: its loss, its gaps, and their gradients."""

    start: Objective
    damping: float
    move: Tensor  # (D,)
    objective: Objective
    gaps: SignedGaps

    @cached_property
    def phi(self) -> float:
        """``Phi`` less a constant, in float64."""
        o, move = self.objective, self.move.double()
        z, y, w = o.model.outputs, o.y, o.weights
        data = sum(float(w[b].double() @ o.loss.value(z[b].double(), y[b])) for b in blocks(len(z)))
        penalty = float((o.l2.double() * o.theta.double() ** 2).sum() / 2)
        kept = float(self.start.gradient.double() @ move)
        return data + penalty - kept + self.damping * float(move @ move) / 2

    @cached_property
    def pull(self) -> Tensor:
        """The gradient of ``Phi``, ``(D,)``."""
        return self.objective.gradient - self.start.gradient + self.damping * self.move

    def merit(self, goal: Tensor, price: float) -> float:
        return self.phi + price * float((self.gaps.soft - goal).abs().sum())


class Descent:
    """A point that moves by Newton steps, each of them only if its merit falls."""

    def __init__(
        self,
        context: SearchContext,
        damping: float,
        products: int,
        *,
        cheapest_first: bool = False,
    ) -> None:
        self._context, self._damping, self._products = context, damping, products
        self._cheapest_first = cheapest_first
        self._extra = damping  # of Levenberg and Marquardt
        self._inverse: Inverse | None = None  # of the last step
        self._refused = 0
        self.point = self._at(torch.zeros_like(context.objective.theta))
        self._first = self.point.gaps.hard
        self._weights = torch.zeros_like(self._first)  # (P,), the multipliers of the gaps
        self._response = Response.of(self._first)

    def _at(self, move: Tensor) -> Point:
        context = self._context
        move = context.within(move)
        there = context.objective.moved(move)
        return Point(context.objective, self._damping, move, there, context.signed_at(there, move))

    def step(self, share: float) -> None:
        """Ask for gaps that are closed by this share, and go there as far as the merit falls."""
        if self._refused == REFUSED:
            return
        gaps = self.point.gaps
        found = self._newton(share)
        halvings = None if found is None else self._go(*found)
        if halvings is None:
            self._refused += 1
            self._extra *= FACTOR**REFUSED
            if self._refused == REFUSED:
                self._say_why(share)
            return
        self._refused = 0
        self._extra = max(self._extra * (FACTOR if halvings else 1 / FACTOR), LEAST * self._damping)
        self._response = self._response.after(gaps, self.point.gaps)

    def _newton(self, share: float) -> tuple[Tensor, Tensor] | None:
        """The step, and the gaps of scores that it goes for; None if it cannot be solved for.

        Along the path ``r`` is nearly ``G w``, so what differs is solved for: ``r - G w`` with the
        last weights. A few products are then enough.
        """
        point, damping = self.point, self._damping + self._extra
        gradients = point.gaps.gradients
        pull = point.pull - gradients @ self._weights.to(gradients)
        self._inverse = self._context.inverse_of(
            point.objective, damping, self._products, self._inverse
        )
        try:
            solved = self._inverse.solve(torch.cat([gradients, pull[:, None]], 1)).x
        except SolverError:  # a curvature that is not positive definite
            return None
        if not bool(torch.isfinite(solved).all()):
            return None
        solved, base = solved[:, :-1], -solved[:, -1]
        relaxed = (gradients.T @ base).to(point.gaps.soft)
        goal = self._goal(share, gram_of(gradients, solved), relaxed)
        missing = goal - point.gaps.soft - relaxed
        if not bool(torch.isfinite(missing).all()):
            return None
        weights = weights_to_close(gradients, solved, missing).to(goal)
        self._weights = self._weights + weights
        return base + solved @ weights.to(solved), goal

    def _goal(self, share: float, gram: Tensor, relaxed: Tensor) -> Tensor:
        """The gaps of scores to go for.

        ``gram`` is ``G^T A^-1 G``, ``relaxed`` how far the gaps go without further weights.
        """
        gaps, response = self.point.gaps, self._response.share
        wanted = gaps.wanted(self._first, share)
        if self._cheapest_first and gaps.adds_up:
            freely = relaxed - (gram @ self._weights.to(gram)).to(relaxed)
            cost = response[:, None] * torch.linalg.pinv(gram).to(response) * response
            wanted = cheapest(gaps.hard + freely / response, cost, float(wanted.abs().sum()))
        return gaps.soft + response * (wanted - gaps.hard)

    def _go(self, step: Tensor, goal: Tensor) -> int | None:
        """Take the step, halved until the merit falls; how often, or None if it never did."""
        price = PRICE * float(self._weights.abs().max())
        before, move = self.point.merit(goal, price), self.point.move
        for halvings in range(HALVINGS + 1):
            there = self._at(move + 0.5**halvings * step)
            if there.merit(goal, price) < before:
                self.point = there
                return halvings
        return None

    def _say_why(self, share: float) -> None:
        gaps, first = self.point.gaps, self._first
        left = (gaps.hard - gaps.wanted(first, 1.0)).abs().sum()
        if bool(left > CLOSED * first.abs().sum()):
            text = (
                f"The search went {share:.0%} of the way and no farther: no step lowered loss and "
                "gap together. Its later candidates are the last one again. More damping, more "
                "validation rows or more editable parameters may let it go on."
            )
            self._context.notices.append(Notice(text))


@dataclass(frozen=True)
class Response:
    """How far gaps of scores move where those of hard predictions move by one, so far.

    A step changes the scores. Where predictions move faster, a step that asks the scores for all
    that the predictions lack goes too far, and the next one goes back.
    """

    soft: Tensor  # (P,), the distance gone, with less weight on earlier steps
    hard: Tensor

    @classmethod
    def of(cls, like: Tensor) -> Response:
        return cls(torch.full_like(like, NOISE), torch.full_like(like, NOISE))

    @property
    def share(self) -> Tensor:
        return (self.soft / self.hard).clamp(SLOWEST, 1.0)

    def after(self, before: SignedGaps, now: SignedGaps) -> Response:
        soft, hard = (now.soft - before.soft).abs(), (now.hard - before.hard).abs()
        return Response(MEMORY * self.soft + soft, MEMORY * self.hard + hard)
