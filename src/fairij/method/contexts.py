"""What a search may ask of a run: gaps, gradients and inverses at edits that are not made yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from fairij.fairness.chances import Chances
from fairij.method.curvature import make_curvature
from fairij.method.fairness_rows import FairnessRows
from fairij.method.group_model import chances_of
from fairij.method.objective import Objective, as_tensor, normalised_weights
from fairij.method.other_rows import OtherRows
from fairij.method.preparation import Settings
from fairij.method.search.base import Posed, SearchContext, SignedAt, SignedGaps
from fairij.method.types import Ranking
from fairij.models.base import Editable, Linearization
from fairij.solvers.base import Inverse


@dataclass(frozen=True)
class Contexts:
    """Makes the context of each search of one run."""

    editable: Editable
    objective: Objective
    settings: Settings
    others: tuple[OtherRows, ...] = ()  # constraints on rows of their own

    def of(self, inverse: Inverse, ranking: Ranking, most: int | None = None) -> SearchContext:
        """What the search sees; it may drop ``most`` rows."""
        target, weights = ranking.target, ranking.weights

        def inverse_at(move: Tensor) -> Inverse:
            there = make_curvature(self.settings.curvature, self.objective.moved(move))
            return self.settings.solver.unshared.prepare(there, inverse.damping)

        fitted = cache(lambda: self.editable.linearize(target.rows.validation.X))
        return SearchContext(
            self.objective,
            inverse,
            ranking.order[:most],
            ranking.influence,
            target.gradients @ weights.to(target.gradients),
            float(weights.to(target.gaps) @ target.gaps),
            self._gaps_at(target.rows),
            inverse_at,
            self._signed_at(target.rows, fitted),
            self._inverse_of,
            lambda chances, loss_on: self._posed(target.rows, fitted, chances, loss_on),
            self._within,
        )

    def _within(self, move: Tensor) -> Tensor:
        there = self.editable.theta + move
        nearest = self.editable.within(there)
        return move if nearest is there else nearest - self.editable.theta

    def _inverse_of(
        self, there: Objective, damping: float, products: int, last: Inverse | None
    ) -> Inverse:
        curvature = make_curvature(self.settings.curvature, there)
        near = None if last is None else last.near(curvature, damping)
        solver = self.settings.solver.stopped_after(products)
        return near or solver.prepare(curvature, damping)

    def _posed(
        self, rows: FairnessRows, fitted: Callable[[], Linearization], chances: bool, loss_on: str
    ) -> Posed:
        """The objective on these rows, and the gaps with a sign, if asked for by chances."""
        s, o = self.settings, self.objective
        if loss_on == "validation":
            seen = rows.validation
            mean = normalised_weights(as_tensor(seen.groups.weight), len(seen.y), o.theta)
            o = Objective(fitted(), seen.y, o.loss, mean, o.theta, o.l2)
        on_these = loss_on == "validation" and not self.others
        if not chances:
            return o, self._signed_at(rows, fitted, loss_on), on_these and rows.training is None
        about = (rows, fitted().outputs, o.loss, s.constraint, s.seed)
        found = chances_of(*about, closely=loss_on == "validation")
        alone = FairnessRows(rows.validation)
        return o, self._signed_at(alone, fitted, loss_on, found), on_these

    def _signed_at(
        self,
        rows: FairnessRows,
        fitted: Callable[[], Linearization],
        loss_on: str = "training",
        chances: Chances | None = None,
    ) -> SignedAt:
        s = self.settings

        def signed_at(objective: Objective, move: Tensor) -> SignedGaps:
            if loss_on == "validation":  # then the objective has the model on these rows
                own = None if rows.training is None else rows.training.model
                there = rows.slopes(objective.model, None if own is None else own.moved(move))
            else:
                there = rows.slopes(fitted().moved(move), objective.model)
            parts = s.constraint.signed_gradients(
                there.outputs, rows.y, rows.groups, self.objective.loss, s.temperature, chances
            )
            found: list[tuple[float, float, Callable[[], Tensor]]] = [
                (soft, hard, partial(there.vjp, slope)) for soft, hard, slope in parts
            ]
            # few rows have few hard gaps, so there the scores themselves say how far to go
            for other in self.others:
                found += [(gap, gap, pull) for gap, pull in other.signed_at(move)]
            soft, hard, pulls = zip(*found, strict=True)
            to_zero = [
                s.constraint.signed is not None or n >= len(parts) for n in range(len(found))
            ]
            return SignedGaps(
                torch.tensor(soft, dtype=torch.float64),
                torch.tensor(hard, dtype=torch.float64),
                torch.tensor(to_zero),
                lambda: torch.stack([pull() for pull in pulls], 1),
                adds_up=s.constraint.adds_up and len(rows.groups.names) == 2 and not self.others,
            )

        return signed_at

    def _gaps_at(self, rows: FairnessRows) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        s, X = self.settings, rows.validation.X
        fitted = cache(lambda: self.editable.linearize(X, keep=False))  # once, if asked for

        def gaps_at(move: Tensor) -> tuple[Tensor, Tensor]:
            there = rows.slopes_moved(fitted(), move)
            parts = s.constraint.part_gradients(
                there.outputs, rows.y, rows.groups, self.objective.loss, s.temperature, hard=True
            )
            gaps = torch.tensor([gap for gap, _ in parts], dtype=torch.float64)
            return gaps, torch.stack([there.vjp(weights) for _, weights in parts], 1)

        return gaps_at
