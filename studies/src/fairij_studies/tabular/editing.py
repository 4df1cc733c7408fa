"""Fair-IJ along its whole trade-off, from one table of candidates.

A fit ranks the training rows and judges hundreds of edits on validation rows. Each accuracy budget
picks one of them. The picks are solved to the solver's tolerance, all picks of a damping at once.
Only the picks are measured on test rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairij import AccuracyBudget, FairIJ, LowestGap, adapt
from fairij.datasets import Split
from fairij.method.curvature import make_curvature
from fairij.method.influence import nested_gradients
from fairij.method.preparation import get_solver
from fairij.method.selection import Selection, measures_of
from fairij.solvers import Solver
from fairij_studies.objectives import training_objective
from fairij_studies.tabular.trial import Trial

DAMPINGS = (3e-3, 1e-2, 3e-2)
SLACK = 0.005  # of the edit that baselines start from
BUDGETS = (0.0, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 1.0)  # the last is the lowest gap of all


@dataclass(frozen=True)
class Pick:
    """The edit that an accuracy budget picks."""

    budget: float
    k: int
    scale: float
    damping: float


@dataclass(frozen=True)
class Searched:
    """One fit per damping, and all their candidates in one table."""

    fits: dict[float, FairIJ]
    candidates: pd.DataFrame

    def picks(self, budgets: Sequence[float]) -> list[Pick]:
        return [self._pick(AccuracyBudget(budget), budget) for budget in budgets]

    def lowest(self, slack: float) -> Pick:
        """Pick the most accurate edit with a gap within ``slack`` of the lowest."""
        return self._pick(LowestGap(slack), 1.0)

    def _pick(self, rule: Selection, budget: float) -> Pick:
        row = self.candidates.iloc[rule.choose(measures_of(self.candidates))]
        return Pick(budget, int(row["k"]), float(row["scale"]), float(row["damping"]))


def search(trial: Trial, *, dampings: Sequence[float] = DAMPINGS, **settings: Any) -> Searched:
    fits = {d: fitted(trial, damping=d, **settings) for d in dampings}
    tables = [fit.candidates_ for fit in fits.values()]
    together = pd.concat([tables[0], *(t[t["k"] > 0] for t in tables[1:])], ignore_index=True)
    return Searched(fits, together)


def fitted(trial: Trial, **settings: Any) -> FairIJ:
    train, validation, _ = trial.splits
    given = {"search": "grid", "selection": "lowest_gap"} | settings
    return FairIJ(trial.model, verbose=False, **given).fit(
        train.X,
        train.y,
        X_val=validation.X,
        y_val=validation.y,
        sensitive_features_val=validation.s,
    )


def edited_models(trial: Trial, searched: Searched, picks: Sequence[Pick]) -> list[nn.Module]:
    """Return an edited copy of the base model for each pick, in order."""
    editable = adapt(trial.model)
    moves: dict[tuple[float, int], Tensor] = {}
    for damping, fit in searched.fits.items():
        ks = sorted({pick.k for pick in picks if pick.damping == damping} - {0})
        if ks:
            solved = directions(
                trial.model, trial.splits.train, fit.influence_, ks, damping, solver=fit.solver
            )
            moves |= {(damping, k): x for k, x in zip(ks, solved, strict=True)}
    nothing = torch.zeros_like(editable.theta)
    return [
        editable.edited(editable.theta + pick.scale * moves.get((pick.damping, pick.k), nothing))
        for pick in picks
    ]


def directions(
    model: nn.Module,
    train: Split,
    influence: NDArray[np.float64],
    ks: Sequence[int],
    damping: float,
    *,
    solver: str | Solver = "cg",
) -> Tensor:
    """Return ``(H + damping I)^-1 sum_{m < k} g_m / N`` (K, D), rows by influence."""
    objective = training_objective(model, train.X, train.y)
    order = torch.as_tensor(np.argsort(-influence, kind="stable"))
    inverse = get_solver(solver).prepare(make_curvature("ggn", objective), damping)
    return inverse.solve(nested_gradients(objective, order, list(ks))).x.T
