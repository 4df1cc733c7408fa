"""The whole of Fair-IJ in one direction: gradient, solve, scores, candidates, choice, edit."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.curvature import largest_eigenvalue, make_curvature
from fairij.errors import NothingToDropWarning, NotStationaryWarning
from fairij.fairness.constraints import Constraint
from fairij.fairness.groups import Groups
from fairij.influence import Influence, influence, nested_gradients
from fairij.losses import Loss
from fairij.models.base import Editable
from fairij.models.rows import take_rows
from fairij.objective import Objective, normalised_weights
from fairij.search import Judge, Progress, Search, candidates, performance_column
from fairij.selection import Selection, pareto_front
from fairij.solvers.base import Inverse, Solver

AUTO_DAMPING = 1e-2  # of the largest eigenvalue
DRIFT_WARNING = 0.5  # of the gap

Drop = Literal["fairness", "loss_aware"]
Reuse = Literal["reuse", "split", "cross_fit"]


@dataclass(frozen=True)
class Rows:
    """Validation rows: features as the user holds them, labels as a tensor, groups."""

    X: Any
    y: Tensor
    groups: Groups

    def take(self, index: NDArray[np.int64]) -> Rows:
        return Rows(
            take_rows(self.X, index), self.y[torch.as_tensor(index)], self.groups.take(index)
        )


@dataclass(frozen=True)
class Settings:
    """What is asked for, all of it checked."""

    constraint: Constraint
    loss: Loss
    solver: Solver
    curvature: str
    dampings: tuple[float, ...] | Literal["auto"]
    search: Search
    selection: Selection
    drop: Drop
    validation: Reuse
    temperature: float
    n_classes: int
    seed: int


@dataclass(frozen=True)
class Ranking:
    """The training points that may be dropped, most harmful first, by one fairness gradient."""

    value: float  # the surrogate M
    influence: Influence
    loss_scores: Tensor | None
    order: Tensor


@dataclass
class Outcome:
    """Everything that came of it."""

    influence: Tensor
    loss_influence: Tensor | None
    dropped: NDArray[np.int64]
    candidates: pd.DataFrame
    chosen: int
    delta: Tensor
    judged: Rows
    diagnostics: dict[str, Any] = field(default_factory=dict)


class Mitigation:
    """One model, one training loss, one set of validation rows; `run` does the rest."""

    def __init__(
        self,
        editable: Editable,
        objective: Objective,
        validation: Rows,
        settings: Settings,
        progress: Progress,
    ) -> None:
        self.editable, self.objective, self.validation = editable, objective, validation
        self.settings, self.progress = settings, progress
        self.curvature = make_curvature(settings.curvature, objective)
        self.seconds: dict[str, float] = {}

    def run(self) -> Outcome:
        inverses = self._inverses()
        folds = self._folds()
        tables, rankings = [], {}
        for inverse in inverses:
            parts = []
            for fit_on, judge_on in folds:
                ranking = self.rank(fit_on, inverse)
                parts.append(self._candidates(ranking, inverse, judge_on))
            tables.append(_average(parts))
            rankings[inverse.damping] = ranking
        table = pd.concat([tables[0], *(t[t["k"] > 0] for t in tables[1:])], ignore_index=True)
        performance = performance_column(self.settings.loss)
        gap, level = table["gap"].to_numpy(), table[performance].to_numpy()
        table["pareto"] = pareto_front(gap, level)
        chosen = self.settings.selection.choose(gap, level, before=float(level[0]))
        inverse = next(i for i in inverses if i.damping == table["damping"][chosen])
        ranking = rankings[inverse.damping]
        if self.settings.validation == "cross_fit":
            ranking = self.rank(self.validation, inverse)
        if all(len(r.order) == 0 for r in rankings.values()):
            warnings.warn(
                "No training point has positive influence on the gap"
                + (" and on the loss" if self.settings.drop == "loss_aware" else "")
                + f" (its surrogate is {ranking.value:.4f}); the model is returned unchanged.",
                NothingToDropWarning,
                stacklevel=3,
            )
        return self._finish(table, chosen, inverse, ranking, folds[-1][1])

    def rank(self, rows: Rows, inverse: Inverse) -> Ranking:
        """Score every training point by the fairness gradient on these validation rows."""
        s = self.settings
        with self._timed("gradient"):
            model = self.editable.linearize(rows.X)
            value, weights = s.constraint.gradient(
                model.outputs, rows.y, rows.groups, s.loss, s.temperature
            )
            gradient = model.vjp(weights)
        with self._timed("influence"):
            result = influence(self.objective, inverse, gradient)
            eligible = result.scores > 0
            loss_scores = None
            if s.drop == "loss_aware":
                mean = normalised_weights(None, len(rows.y), self.objective.theta)
                on_loss = Objective(
                    model, rows.y, s.loss, mean, self.objective.theta, 0 * self.objective.l2
                )
                loss_scores = influence(self.objective, inverse, on_loss.gradient).scores
                eligible &= loss_scores > 0
            order = torch.argsort(result.scores, descending=True, stable=True)
            order = order[eligible[order]]
        return Ranking(value, result, loss_scores, order)

    def _candidates(self, ranking: Ranking, inverse: Inverse, rows: Rows) -> pd.DataFrame:
        with self._timed("candidates"):
            return candidates(
                self.settings.search,
                self.objective,
                inverse,
                ranking.order,
                self._judge(rows),
                self.progress,
            )

    def _judge(self, rows: Rows) -> Judge:
        s = self.settings
        evaluator = self.editable.evaluator(rows.X)
        return Judge(evaluator, rows.y, rows.groups, s.loss, s.constraint, s.n_classes)

    def _finish(
        self, table: pd.DataFrame, chosen: int, inverse: Inverse, ranking: Ranking, judged: Rows
    ) -> Outcome:
        k, scale = int(table["k"][chosen]), float(table["scale"][chosen])
        dropped = ranking.order[:k]
        delta = torch.zeros_like(self.objective.theta)
        diagnostics: dict[str, Any] = {}
        if k:
            with self._timed("edit"):
                pull = nested_gradients(self.objective, ranking.order, [k])[:, 0]
                solution = inverse.solve(pull)
                delta = scale * solution.x
            diagnostics |= {"edit_residual": float(solution.residual[0])}
        diagnostics = self._diagnose(ranking, inverse, dropped, scale, delta) | diagnostics
        return Outcome(
            ranking.influence.scores,
            ranking.loss_scores,
            dropped.cpu().numpy().astype(np.int64),
            table,
            chosen,
            delta,
            judged,
            diagnostics | {"seconds": dict(self.seconds)},
        )

    def _diagnose(
        self, ranking: Ranking, inverse: Inverse, dropped: Tensor, scale: float, delta: Tensor
    ) -> dict[str, Any]:
        o, s = self.objective, self.settings
        # a further step of training to the minimum would move M by this much on its own
        drift = -float(ranking.influence.direction @ o.gradient)
        if abs(drift) > DRIFT_WARNING * ranking.value:
            warnings.warn(
                f"The model is not at a minimum of its training loss (gradient norm "
                f"{float(o.gradient.norm()):.2e}): training on would by itself change the fairness "
                f"surrogate, now {ranking.value:.4f}, by about {drift:+.4f}. The edit is still "
                "judged by what it does on validation rows, but read 'as if these rows had been "
                "dropped' with care, or train the model further.",
                NotStationaryWarning,
                stacklevel=4,
            )
        rows = self.validation
        z = self.editable.outputs(rows.X, o.theta + delta)
        after, _ = s.constraint.gradient(z, rows.y, rows.groups, s.loss, s.temperature)
        before, _ = s.constraint.gradient(
            self.editable.outputs(rows.X), rows.y, rows.groups, s.loss, s.temperature
        )
        return {
            "damping": inverse.damping,
            "solver": s.solver.name,
            "curvature": self.curvature.name,
            "n_parameters": len(o.theta),
            "n_train": len(o.y),
            "n_positive": len(ranking.order),
            "train_loss": o.value,
            "gradient_norm": float(o.gradient.norm()),
            "drift": drift,
            "influence_residual": float(ranking.influence.solution.residual[0]),
            "influence_steps": ranking.influence.solution.steps,
            "curvature_products": getattr(inverse, "products", None),
            "jvp_mode": getattr(o.model, "mode", "exact"),
            "surrogate_before": before,
            "surrogate_predicted": before - scale * float(ranking.influence.scores[dropped].sum()),
            "surrogate_after": after,
        }

    def _inverses(self) -> list[Inverse]:
        with self._timed("prepare"):
            dampings = self.settings.dampings
            if isinstance(dampings, str):
                dampings = (AUTO_DAMPING * max(largest_eigenvalue(self.curvature), 1e-6),)
            first = self.settings.solver.prepare(self.curvature, dampings[0])
            inverses = [first]
            for damping in dampings[1:]:
                again = getattr(first, "with_damping", None)
                inverses.append(
                    again(damping)
                    if again
                    else self.settings.solver.prepare(self.curvature, damping)
                )
        return inverses

    def _folds(self) -> list[tuple[Rows, Rows]]:
        """Pairs of validation rows: what the gradient sees, what candidates are judged on."""
        rows, s = self.validation, self.settings
        if s.validation == "reuse":
            return [(rows, rows)]
        strata = rows.groups.codes.astype(np.int64)
        if s.loss.is_classification:
            strata = strata * s.n_classes + rows.y.cpu().numpy().astype(np.int64)
        half = halves(strata, s.seed)
        first, second = rows.take(np.flatnonzero(half)), rows.take(np.flatnonzero(~half))
        return [(first, second)] if s.validation == "split" else [(first, second), (second, first)]

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        self.progress(phase, 0, 1)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0) + time.perf_counter() - start
            self.progress(phase, 1, 1)


def halves(strata: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """A random half of each stratum; an odd row goes to the first half."""
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(strata), dtype=bool)
    for stratum in np.unique(strata):
        members = rng.permutation(np.flatnonzero(strata == stratum))
        chosen[members[: -(-len(members) // 2)]] = True
    return chosen


def _average(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """The mean over folds of the candidates that all folds have."""
    if len(parts) == 1:
        return parts[0]
    keys = ["damping", "k", "scale"]
    together = pd.concat(parts).groupby(keys, sort=True)
    mean = together.mean().reset_index()
    complete = together.size().to_numpy() == len(parts)
    return mean[complete].reset_index(drop=True)
