"""What a model trained again without some of its rows would be, predicted without training.

A refit without the rows S minimises ``Phi(theta) = L(theta) - sum_{m in S} w_m l_m(theta) / W -
<grad L(theta_0), theta>``. The last term makes the fitted model the minimum if no row is left out,
even if its training stopped early. Parameters that were not trained together (the leaves of trees)
have no such minimum near them; they are held by ``damping |theta - theta_0|^2 / 2``. Two steps:

1. `without`: a Newton step from ``theta_0`` with the curvature of the kept rows alone,
   ``(H - H_S + damping I) x = g_S``. An edit keeps ``H_S``, and so moves less.
2. A further Newton step from there, with the model linearised again. Its damping holds this step,
   not the whole way. If it does not lower ``Phi``, it is halved up to three times; if that does not
   help, it is not taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.row_vectors import blocks
from fairij.errors import InvalidInputError
from fairij.method.candidates import Judge
from fairij.method.curvature import GGN
from fairij.method.fairness_rows import GroupedRows
from fairij.method.influence import most_harmful, nested_gradients
from fairij.method.objective import Objective
from fairij.method.preparation import Prepared, Settings
from fairij.method.types import Outcome
from fairij.models.base import Editable
from fairij.solvers.base import Inverse, Solver
from fairij.solvers.conjugate_gradient import ConjugateGradient

KEPT_TOLERANCE, MOST_STEPS = 1e-3, 100
FURTHER_TOLERANCE, HALVINGS = 1e-2, 3


@dataclass(frozen=True)
class Prediction:
    """Predicted parameters of a refit, as changes of the fitted ones."""

    move: Tensor  # (D,)
    first: Tensor  # (D,) of the first step alone
    objective: tuple[float, float, float]  # Phi as fitted, after the first step, after the further

    @property
    def further_step(self) -> bool:
        """Whether the further step was taken."""
        return self.objective[2] < self.objective[1]


def predict(
    objective: Objective, inverse: Inverse, solver: Solver, dropped: Tensor, *, held: bool
) -> Prediction:
    """A refit without the ``dropped`` rows; ``inverse`` is ``(H + damping I)^-1`` of all rows."""
    weights = objective.weights.clone()
    weights[dropped] = 0
    pull, damping = objective.gradient, inverse.damping
    hold = damping if held else 0.0
    first = without(objective, inverse, dropped)
    there = replace(objective.moved(first), weights=weights)
    slope = there.gradient - pull + hold * first
    step = solver.prepare(GGN(there), damping).solve(slope, tolerance=FURTHER_TOLERANCE).x

    def value(at: Objective, move: Tensor) -> float:
        far = move.double()
        return _loss(at) - float(pull.double() @ far) + hold / 2 * float(far @ far)

    start, reached = value(replace(objective, weights=weights), 0 * first), value(there, first)
    for _ in range(HALVINGS + 1):
        further = value(there.moved(-step), first - step)
        if further < reached:
            return Prediction(first - step, first, (start, reached, further))
        step = step / 2
    return Prediction(first, first, (start, reached, further))


def _loss(objective: Objective) -> float:
    """``L`` in float64: the further step may lower it by little."""
    o, z = objective, objective.model.outputs
    data = sum(
        float((o.weights[b].double() * o.loss.value(z[b], o.y[b]).double()).sum())
        for b in blocks(len(z))
    )
    return data + float((o.l2.double() * o.theta.double() ** 2).sum()) / 2


def without(objective: Objective, inverse: Inverse, dropped: Tensor) -> Tensor:
    """``x = (A - H_S)^-1 g_S`` with ``A = H + damping I``; products with the rows S alone.

    Conjugate gradients with ``A^-1`` as preconditioner. Their directions are sums of solutions
    ``A^-1 r``, so the products of these with ``A`` are the same sums of ``r``.
    """
    o = objective
    alone = replace(
        o,
        model=o.model.restrict(dropped, keep=True),
        y=o.y[dropped],
        weights=o.weights[dropped],
        l2=torch.zeros_like(o.l2),
    )
    curvature, residual = GGN(alone), alone.gradient
    x, p, Ap = torch.zeros_like(residual), torch.zeros_like(residual), torch.zeros_like(residual)
    enough, before = KEPT_TOLERANCE * residual.norm(), residual.new_tensor(torch.inf)
    for _ in range(MOST_STEPS):
        if residual.norm() <= enough:
            break
        z = inverse.solve(residual).x
        size = residual @ z
        p, Ap = z + (size / before) * p, residual + (size / before) * Ap
        Kp = Ap - curvature.product(p)
        if not p @ Kp > 0:  # rounding
            break
        step, before = size / (p @ Kp), size
        x, residual = x + step * p, residual - step * Kp
    return x


@dataclass(frozen=True)
class PredictedRefit:
    """What a refit without the k most harmful rows would do, and what it was compared with."""

    k: int
    gap: float  # on the rows that the edit was chosen on
    performance: float  # accuracy; in regression R^2
    surrogate: float  # the smooth gap
    further_step: bool  # whether the further step was taken
    parameters: Tensor | None = None  # (D,); None in a result that was read from files
    dropped: NDArray[np.int64] | None = None  # most harmful first; likewise

    def figures(self) -> dict[str, Any]:
        """All but parameters and rows."""
        names = ("k", "gap", "performance", "surrogate", "further_step")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Refits:
    """What a fit keeps by reference to predict refits: its rows, labels and scores.

    Copies and pickles of the fitted object do not have it, so no row travels with them.
    """

    training: Any  # the rows
    objective: Objective  # of the training rows, its model left out
    judged: GroupedRows
    settings: Settings
    n_classes: int
    damping: float
    scores: Tensor  # (N,) by which rows are dropped
    loss_scores: Tensor | None
    rows: NDArray[np.int64] | None  # the numbers of the training rows among those given

    def predict(self, editable: Editable, ks: list[int]) -> list[PredictedRefit]:
        """Refits without the k most harmful rows, for each k; they share their products."""
        return [self._judged(editable, order, move) for order, _, move in self.moves(editable, ks)]

    def moves(
        self, editable: Editable, ks: list[int]
    ) -> Iterator[tuple[Tensor, Tensor, Prediction]]:
        """For each k the dropped rows, the edit at scale 1, and the predicted refit."""
        order, able = most_harmful(self.scores, self.loss_scores, most=max(ks))
        if max(ks) > able:
            raise InvalidInputError(
                f"`k` must be at most {able}, as no more rows may be dropped; got {max(ks)}."
            )
        s = self.settings
        objective = replace(self.objective, model=editable.linearize(self.training))
        solver = s.solver if s.solver.name in ("cg", "exact") else ConjugateGradient()
        inverse = solver.prepare(GGN(objective), self.damping)
        held = not editable.trained_together
        for k in ks:
            edit = inverse.solve(nested_gradients(objective, order[:k], [k])[:, 0]).x
            yield (
                order[:k],
                edit,
                predict(objective, inverse, solver.unshared, order[:k], held=held),
            )

    def _judged(self, editable: Editable, dropped: Tensor, found: Prediction) -> PredictedRefit:
        s, judged, loss = self.settings, self.judged, self.objective.loss
        judge = Judge(
            editable.evaluator(judged.X),
            judged.y,
            judged.groups,
            loss,
            s.constraint,
            self.n_classes,
            decision=s.decision,
        )
        values = judge.judge(found.move, (1.0,))
        z = editable.outputs(judged.X, editable.theta + found.move.to(editable.theta))
        parts = s.constraint.part_gradients(z, judged.y, judged.groups, loss, s.temperature)
        rows = dropped.cpu().numpy().astype(np.int64)
        return PredictedRefit(
            len(rows),
            float(values["gap"][0]),
            float(values["accuracy" if loss.is_classification else "r2"][0]),
            sum(gap for gap, _ in parts),
            found.further_step,
            editable.theta + found.move.to(editable.theta),
            rows if self.rows is None else self.rows[rows],
        )


def refits_of(
    X: Any,
    rows: NDArray[np.int64] | None,
    prepared: Prepared,
    settings: Settings,
    outcome: Outcome,
) -> Refits:
    """What a fit keeps; of the given rows, ``rows`` were trained on (None: all)."""
    nothing: Any = None  # the model is made again, so that no graph stays in memory
    return Refits(
        X,
        replace(prepared.objective, model=nothing),
        replace(outcome.judged, model=None),
        settings,
        len(prepared.labels.classes),
        float(outcome.diagnostics["damping"]),
        outcome.influence if outcome.joint_influence is None else outcome.joint_influence,
        outcome.loss_influence,
        rows,
    )
