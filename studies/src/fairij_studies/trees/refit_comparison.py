"""Compare what an edit predicts with models that are trained without the same rows.

There are four ways to leave out k rows. Each is compared with the edit at scale 1:

* Train the whole ensemble again, with other splits.
* LightGBM's own ``refit``: keep the splits, and compute all leaves again, tree after tree, as
  boosting does. On all rows it returns the same model. (The model is trained without
  ``boost_from_average``, which ``refit`` ignores.)
* Move the leaves to the minimum of the damped loss without the rows,
  ``L_kept(theta) - grad L . (theta - theta_hat) + damping |theta - theta_hat|^2 / 2``. Because of
  the linear term, the fitted leaves are the minimum when no row is left out. The edit is the
  first-order estimate of this.
* The same without that term. This mixes dropping the rows with more training.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from fairij import ConjugateGradient, FairIJ, Grid, adapt
from fairij.method.curvature import GGN
from fairij.method.objective import Objective
from fairij.method.selection import Measures, SelectionDefaults
from fairij.models.constant import ConstantLinearization
from fairij.models.losses import get_loss
from fairij_studies.objectives import training_objective
from fairij_studies.trees.data import ADULT, Places
from fairij_studies.trees.models import LIGHTGBM
from fairij_studies.trees.runs import Case, Fitted, Record, edit, fitted

EDIT, REFIT, LEAVES = "edit", "ensemble refitted", "leaves refitted by LightGBM"
PROXIMAL, TRAINED_ON = "leaves at the damped minimum", "leaves trained on"
COUNTS = (50, 100, 200, 500, 1000, 1500, 2000)
DAMPING = 1e-2


class OnlyEdit(SelectionDefaults):
    """Choose the only edit that was tried."""

    def choose(self, candidates: Measures) -> int:
        return len(candidates["gap"]) - 1


def refit_records(
    places: Places, seed: int, counts: tuple[int, ...] = COUNTS, rows: int | None = None
) -> list[Record]:
    base = fitted(Case(ADULT, LIGHTGBM, False, seed, places, rows))
    plain = clone(base.model).set_params(boost_from_average=False)
    base = replace(base, model=plain.fit(base.splits.train.X, base.splits.train.y))
    records = []
    for k in (0, *counts):
        fair = edit_without(base, k) if k else None
        dropped = np.zeros(0, np.int64) if fair is None else fair.dropped_
        for form, model in _answers(base, fair, dropped).items():
            record = base.record(form, base.as_predictor(model), constraint="demographic_parity")
            outputs = adapt(model).outputs(base.splits.validation.X)
            records.append(
                record | {"k": k, "kind": "left out", "damping": DAMPING} | _soft(base, outputs)
            )
    return records


def edit_without(base: Fitted, k: int) -> FairIJ:
    """Edit the model as if the k most harmful rows had been left out, at scale 1."""
    search, only = Grid(k=(k,), scales=(1.0,)), OnlyEdit()
    return edit(base, "demographic_parity", search=search, selection=only, damping=DAMPING)


def _answers(base: Fitted, fair: FairIJ | None, dropped: NDArray[np.int64]) -> dict[str, Any]:
    train, editable = base.splits.train, adapt(base.model)
    kept = np.setdiff1d(np.arange(len(train)), dropped)
    X, y = train.X[kept], train.y[kept]
    objective = training_objective(base.model, train.X, train.y)
    moved = {
        form: editable.edited(editable.theta + damped_minimum(objective, dropped, DAMPING, held))
        for form, held in ((PROXIMAL, True), (TRAINED_ON, False))
    }
    return {
        EDIT: base.model if fair is None else fair.estimator_,
        REFIT: clone(base.model).fit(X, y),
        LEAVES: base.model.booster_.refit(X, y, decay_rate=0.0),
        **moved,
    }


def damped_minimum(
    objective: Objective,
    dropped: NDArray[np.int64],
    damping: float,
    held: bool,
    *,
    tolerance: float = 1e-6,
    max_steps: int = 50,
) -> Tensor:
    """Return the change ``d`` of the leaves that minimises the damped loss of the other rows.

    ``sum_kept w_n l(z_n + J_n d) - [held] grad L . d + damping |d|^2 / 2`` is convex. Newton's
    method stops when the gradient is at most ``tolerance * damping * |leaves|``.
    """
    model = objective.model
    assert isinstance(model, ConstantLinearization)
    weights = objective.weights.clone()
    weights[torch.as_tensor(dropped)] = 0
    pull = objective.gradient if held else torch.zeros_like(objective.theta)
    d = torch.zeros_like(objective.theta)
    small = tolerance * damping * float(objective.theta.norm())
    for _ in range(max_steps):
        there = ConstantLinearization(model.outputs + model.jvp(d), model.jacobian)
        kept = replace(objective, model=there, weights=weights, theta=d)
        gradient = kept.gradient - pull + damping * d
        if gradient.norm() <= small:
            break
        solver = ConjugateGradient(tolerance=1e-3)
        step = solver.prepare(GGN(kept), damping).solve(gradient).x

        def value(at: Tensor) -> float:
            loss = (
                weights * objective.loss.value(model.outputs + model.jvp(at), objective.y)
            ).sum()
            return float(loss - pull @ at + damping * (at @ at) / 2)

        size, before = 1.0, value(d)
        while value(d - size * step) > before and size > 1e-4:
            size /= 2
        d = d - size * step
    return d


def _soft(base: Fitted, outputs: Tensor) -> dict[str, float]:
    """Return the surrogate and the loss on validation rows."""
    validation = base.splits.validation
    scores = torch.sigmoid(outputs.double()).numpy()
    means = [scores[validation.s == g].mean() for g in np.unique(validation.s)]
    y = torch.as_tensor(validation.y).double()
    loss = get_loss("binary_cross_entropy").value(outputs.double(), y).mean()
    return {"validation_surrogate": float(max(means) - min(means)), "validation_loss": float(loss)}
