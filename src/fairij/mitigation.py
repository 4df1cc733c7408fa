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
from fairij.errors import (
    FairIJWarning,
    InvalidInputError,
    NothingToDropWarning,
    NotStationaryWarning,
)
from fairij.fairness.constraints import Constraint
from fairij.fairness.groups import Groups
from fairij.influence import Influence, balanced_influence, influence, nested_gradients
from fairij.losses import Loss
from fairij.models.base import Editable
from fairij.models.rows import take_rows
from fairij.objective import Objective, normalised_weights
from fairij.search import Judge, Progress, Search, candidates, performance_column
from fairij.selection import Selection, pareto_front
from fairij.solvers.base import Inverse, Solution, Solver

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
class Target:
    """The surrogate ``M`` on some validation rows, and its gradient (and their loss's)."""

    rows: Rows
    gaps: Tensor  # (P,) the parts of M; one alone where it is not made of parts
    gradients: Tensor  # (D, P)
    loss_gradient: Tensor | None

    @property
    def value(self) -> float:
        return float(self.gaps.sum())


@dataclass(frozen=True)
class Ranking:
    """The training points that may be dropped, most harmful first, by one fairness gradient."""

    target: Target
    weights: Tensor  # (P,) of the parts of M
    influence: Influence
    loss_scores: Tensor | None
    order: Tensor


@dataclass(frozen=True)
class Trial:
    """All that was tried at one damping."""

    inverse: Inverse
    rankings: list[Ranking]  # one a fold
    table: pd.DataFrame
    solved: dict[int, Solution] = field(default_factory=dict)  # by k, to the solver's tolerance


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
        folds = self._folds()
        targets = [self.target(rows) for rows, _ in folds]
        judges = [self._judge(rows) for _, rows in folds]
        trials = [self._trial(inverse, targets, judges) for inverse in self._inverses()]
        first, *others = [trial.table for trial in trials]
        table = pd.concat([first, *(t[t["k"] > 0] for t in others)], ignore_index=True)
        judged = folds[-1][1]
        if self.settings.validation == "cross_fit":
            chosen = self._select(table)
            trial, judged = _trial_at(trials, table["damping"][chosen]), self.validation
            ranking = self.rank(self.target(judged), trial.inverse)  # now by all the rows
        else:
            chosen = self._select_solved(table, trials, judges[0])
            trial = _trial_at(trials, table["damping"][chosen])
            ranking = trial.rankings[0]
        shortfall = getattr(self.settings.selection, "shortfall", lambda gap: None)
        if message := shortfall(float(table["gap"][chosen])):
            warnings.warn(message, FairIJWarning, stacklevel=3)
        table["pareto"] = pareto_front(table["gap"].to_numpy(), self._performance(table))
        if not (table["k"] > 0).any():
            warnings.warn(
                "No training point has positive influence on the gap"
                + (" and on the loss" if self.settings.drop == "loss_aware" else "")
                + f" (its surrogate is {ranking.target.value:.4f}); the model is returned "
                "unchanged. Another constraint, more validation rows or more editable parameters "
                "may find some.",
                NothingToDropWarning,
                stacklevel=3,
            )
        return self._finish(table, chosen, trial, ranking, judged)

    def _trial(self, inverse: Inverse, targets: list[Target], judges: list[Judge]) -> Trial:
        rankings = [self.rank(target, inverse) for target in targets]
        shared = min(len(ranking.order) for ranking in rankings)  # what every fold can drop
        with self._timed("candidates"):
            parts = [
                candidates(
                    self.settings.search,
                    self.objective,
                    inverse,
                    ranking.order[:shared],
                    judge,
                    self.progress,
                )
                for ranking, judge in zip(rankings, judges, strict=True)
            ]
        return Trial(inverse, rankings, _average(parts))

    def _select(self, table: pd.DataFrame) -> int:
        level = self._performance(table)
        return self.settings.selection.choose(
            table["gap"].to_numpy(), level, before=float(level[0])
        )

    def _select_solved(self, table: pd.DataFrame, trials: list[Trial], judge: Judge) -> int:
        """Select among candidates; the one taken was judged as solved to the solver's tolerance.

        Candidates are solved loosely. So the one selected is solved again and judged anew, until
        it is selected still: what was judged is what is returned.
        """
        judged: set[int] = set()
        while True:
            chosen = self._select(table)
            k, scale = int(table["k"][chosen]), float(table["scale"][chosen])
            if k == 0 or chosen in judged:
                return chosen
            trial = _trial_at(trials, float(table["damping"][chosen]))
            if k not in trial.solved:
                with self._timed("edit"):
                    trial.solved[k] = self._solve(trial.inverse, trial.rankings[0].order[:k])
            with self._timed("candidates"):
                for column, values in judge.judge(trial.solved[k].x, (scale,)).items():
                    table.loc[chosen, column] = values[0]
            judged.add(chosen)

    def _solve(self, inverse: Inverse, dropped: Tensor) -> Solution:
        return inverse.solve(nested_gradients(self.objective, dropped, [len(dropped)])[:, 0])

    def _performance(self, table: pd.DataFrame) -> NDArray[np.float64]:
        return table[performance_column(self.settings.loss)].to_numpy()

    def target(self, rows: Rows) -> Target:
        """What is to fall, on these validation rows: the surrogate and its gradient."""
        s, o = self.settings, self.objective
        with self._timed("gradient"):
            model = self.editable.linearize(rows.X, keep=False)
            parts = s.constraint.part_gradients(
                model.outputs, rows.y, rows.groups, s.loss, s.temperature
            )
            gradients = torch.stack([model.vjp(weights) for _, weights in parts], 1)
            gaps = torch.tensor([value for value, _ in parts], dtype=torch.float64)
            if not bool(torch.isfinite(gaps).all() and torch.isfinite(gradients).all()):
                raise InvalidInputError(
                    f"The constraint {s.constraint.name!r} must have a finite value and gradient "
                    f"on the validation rows; its value is {float(gaps.sum())}. Look for a root, "
                    "logarithm or division that meets zero, or for a group without rows."
                )
            loss_gradient = None
            if s.drop == "loss_aware":
                mean = normalised_weights(None, len(rows.y), o.theta)
                on_loss = Objective(model, rows.y, s.loss, mean, o.theta, 0 * o.l2)
                loss_gradient = on_loss.gradient
        return Target(rows, gaps, gradients, loss_gradient)

    def rank(self, target: Target, inverse: Inverse) -> Ranking:
        """Score every training point; those that may be dropped, in order."""
        with self._timed("influence"):
            weights = torch.ones_like(target.gaps)
            if len(weights) == 1:
                result = influence(self.objective, inverse, target.gradients[:, 0])
            else:
                result, weights = balanced_influence(
                    self.objective, inverse, target.gradients, target.gaps
                )
            eligible, loss_scores = result.scores > 0, None
            if target.loss_gradient is not None:
                loss_scores = influence(self.objective, inverse, target.loss_gradient).scores
                eligible &= loss_scores > 0
            order = torch.argsort(result.scores, descending=True, stable=True)
        return Ranking(target, weights, result, loss_scores, order[eligible[order]])

    def _judge(self, rows: Rows) -> Judge:
        s = self.settings
        evaluator = self.editable.evaluator(rows.X)
        return Judge(evaluator, rows.y, rows.groups, s.loss, s.constraint, s.n_classes)

    def _finish(
        self, table: pd.DataFrame, chosen: int, trial: Trial, ranking: Ranking, judged: Rows
    ) -> Outcome:
        k, scale = int(table["k"][chosen]), float(table["scale"][chosen])
        inverse, dropped = trial.inverse, ranking.order[:k]
        delta = torch.zeros_like(self.objective.theta)
        diagnostics: dict[str, Any] = {}
        if len(dropped):
            with self._timed("edit"):
                solution = trial.solved.get(k) or self._solve(inverse, dropped)
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
        before = ranking.target.value
        weighted = float(ranking.weights.cpu() @ ranking.target.gaps)
        if abs(drift) > DRIFT_WARNING * abs(weighted):
            warnings.warn(
                f"The model is not at a minimum of its training loss (gradient norm "
                f"{float(o.gradient.norm()):.2e}): training on would by itself change the fairness "
                f"surrogate, now {weighted:.4f}, by about {drift:+.4f}. The edit is still "
                "judged by what it does on validation rows, but read 'as if these rows had been "
                "dropped' with care, or train the model further.",
                NotStationaryWarning,
                stacklevel=5,
            )
        rows = ranking.target.rows
        z = self.editable.outputs(rows.X, o.theta + delta)
        after, _ = s.constraint.gradient(z, rows.y, rows.groups, s.loss, s.temperature)
        return {
            "damping": inverse.damping,
            "solver": s.solver.name,
            "curvature": self.curvature.name,
            "n_parameters": len(o.theta),
            "n_train": len(o.y),
            "n_positive": len(ranking.order),
            "part_weights": ranking.weights.tolist(),
            "train_loss": o.value,
            "gradient_norm": float(o.gradient.norm()),
            "drift": drift,
            "influence_residual": float(ranking.influence.solution.residual[0]),
            "influence_steps": ranking.influence.solution.steps,
            "curvature_products": getattr(inverse, "products", None),
            "jvp_mode": getattr(o.model, "mode", "exact"),
            "surrogate_before": before,
            "surrogate_predicted": before + float((delta @ ranking.target.gradients).sum()),
            "surrogate_after": after,
        }

    def _inverses(self) -> Iterator[Inverse]:
        """An inverse for each damping; each is made of what the one before has gathered by then."""
        dampings, inverse = self.settings.dampings, None
        if isinstance(dampings, str):
            dampings = (AUTO_DAMPING * max(largest_eigenvalue(self.curvature), 1e-6),)
        for damping in dampings:
            with self._timed("prepare"):
                again = getattr(inverse, "with_damping", None)
                inverse = (
                    again(damping)
                    if again
                    else self.settings.solver.prepare(self.curvature, damping)
                )
            yield inverse

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
    """A random half of the rows: of each stratum, and of each run of strata, give or take one."""
    shuffled = np.random.default_rng(seed).permutation(len(strata))
    chosen = np.zeros(len(strata), dtype=bool)
    chosen[np.lexsort((shuffled, strata))[::2]] = True
    return chosen


def _trial_at(trials: list[Trial], damping: float) -> Trial:
    return next(trial for trial in trials if trial.inverse.damping == damping)


def _average(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """The mean over folds of the candidates that all folds have."""
    if len(parts) == 1:
        return parts[0]
    keys = ["damping", "k", "scale"]
    together = pd.concat(parts).groupby(keys, sort=True)
    mean = together.mean().reset_index()
    complete = together.size().to_numpy() == len(parts)
    return mean[complete].reset_index(drop=True)
