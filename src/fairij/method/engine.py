"""The whole of Fair-IJ in one direction: gradient, solve, scores, candidates, choice, edit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.errors import FairIJWarning, InvalidInputError, NothingToDropWarning
from fairij.fairness.optimism import MOST_ROWS, Patterns
from fairij.method.candidates import Judge, candidates, performance_column, together
from fairij.method.curvature import largest_eigenvalue, make_curvature
from fairij.method.diagnostics import diagnose, warn_of_drift
from fairij.method.influence import (
    balanced_influence,
    check_finite,
    influence,
    most_harmful,
    nested_gradients,
)
from fairij.method.objective import Objective, normalised_weights
from fairij.method.progress import timed
from fairij.method.search.base import Scene
from fairij.method.search.dropping import Progress
from fairij.method.selection import pareto_front
from fairij.method.types import Outcome, Ranking, Rows, Settings, Target, Trial, folds
from fairij.models.base import Editable
from fairij.solvers.base import Inverse, Solution

AUTO_DAMPING = 1e-2  # of the largest eigenvalue


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
        pairs = folds(self.validation, self.settings)
        targets = [self.target(rows) for rows, _ in pairs]
        with self._timed("candidates"):
            judges = [self._judge(rows) for _, rows in pairs]
        trials = [self._trial(inverse, targets, judges) for inverse in self._inverses()]
        first, *others = [trial.table for trial in trials]
        table = pd.concat([first, *(t[t["k"] > 0] for t in others)], ignore_index=True)
        judged = pairs[-1][1]
        if self.settings.validation == "cross_fit":
            chosen = self._select(table)
            trial, judged = _trial_at(trials, table["damping"][chosen]), self.validation
            ranking = self.rank(self.target(judged), trial.inverse)  # now by all the rows
        else:
            chosen = self._select_solved(table, trials, judges[0])
            trial = _trial_at(trials, table["damping"][chosen])
            ranking = trial.rankings[0]
        if message := self.settings.selection.shortfall(float(table["gap"][chosen])):
            warnings.warn(message, FairIJWarning, stacklevel=4)
        table["pareto"] = pareto_front(table["gap"].to_numpy(), self._performance(table))
        if not (table["k"] > 0).any():
            warnings.warn(
                "No training point has positive influence on the gap"
                + (" and on the loss" if self.settings.drop == "loss_aware" else "")
                + f" (its surrogate is {ranking.target.value:.4f}); the model is returned "
                "unchanged. Another constraint, more validation rows or more editable parameters "
                "may find some.",
                NothingToDropWarning,
                stacklevel=4,
            )
        outcome = self._finish(table, chosen, trial, ranking, judged)
        outcome.direction = ranking.influence.direction
        with self._timed("candidates"):
            outcome.patterns = self._patterns(judges[0])
        if not self.settings.search.drops and self.settings.validation != "cross_fit":
            outcome.moves = self._all_moves(table, trials)
        return outcome

    def _all_moves(self, table: pd.DataFrame, trials: list[Trial]) -> Tensor:
        nothing = torch.zeros_like(self.objective.theta)
        keys = zip(table["damping"], table["k"], table["scale"], strict=True)
        return torch.stack(
            [
                _trial_at(trials, damping).moves.get((k, scale), nothing)
                for damping, k, scale in keys
            ]
        )

    def _patterns(self, judge: Judge) -> Patterns | None:
        labels = judge.labels()
        if labels is None:
            return None
        return Patterns.of(
            labels,
            judge.y.long().cpu().numpy(),
            judge.groups.codes,
            n_groups=len(judge.groups.names),
            n_classes=self.settings.n_classes,
        )

    def _trial(self, inverse: Inverse, targets: list[Target], judges: list[Judge]) -> Trial:
        rankings = [self.rank(target, inverse) for target in targets]
        shared = min(len(ranking.order) for ranking in rankings)  # what every fold can drop
        search, progress = self.settings.search, self.progress
        with self._timed("candidates"):
            alone = len(rankings) == 1  # of several folds none gives the edit that is taken
            found = [
                candidates(
                    search, self._scene(inverse, ranking, shared), judge, progress, keep=alone
                )
                for ranking, judge in zip(rankings, judges, strict=True)
            ]
        table = together(found, judges[0])
        return Trial(inverse, rankings, table, found[0].moves, found[0].screened)

    def _scene(self, inverse: Inverse, ranking: Ranking, most: int | None = None) -> Scene:
        target, weights = ranking.target, ranking.weights

        def inverse_at(moved: Tensor) -> Inverse:
            there = make_curvature(self.settings.curvature, self.objective.moved(moved))
            return self.settings.solver.unshared.prepare(there, inverse.damping)

        return Scene(
            self.objective,
            inverse,
            ranking.order[:most],
            ranking.influence,
            target.gradients @ weights.to(target.gradients),
            float(weights.to(target.gaps) @ target.gaps),
            self._gaps_at(target.rows),
            inverse_at,
        )

    def _gaps_at(self, rows: Rows) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        s = self.settings
        fitted = cache(lambda: self.editable.linearize(rows.X, keep=False))  # where it is asked for

        def gaps_at(moved: Tensor) -> tuple[Tensor, Tensor]:
            there = fitted().moved(moved)
            parts = s.constraint.part_gradients(
                there.outputs, rows.y, rows.groups, s.loss, s.temperature, hard=True
            )
            gaps = torch.tensor([gap for gap, _ in parts], dtype=torch.float64)
            return gaps, torch.stack([there.vjp(weights) for _, weights in parts], 1)

        return gaps_at

    def _select(self, table: pd.DataFrame) -> int:
        level = self._performance(table)
        return self.settings.selection.choose(
            table["gap"].to_numpy(), level, before=float(level[0])
        )

    def _select_solved(self, table: pd.DataFrame, trials: list[Trial], judge: Judge) -> int:
        """Select among candidates; the one taken was judged as solved to the solver's tolerance.

        Candidates are solved loosely, and some models screen several scales at once. So the one
        selected is solved again and judged anew by itself, which corrects the screening of the
        others, until it is selected still: what was judged is what is returned. A model that
        screens is first run on the rows in doubt alone, and on all rows when selected once more.
        """
        judged: set[int] = set()
        nearly: set[int] = set()
        while True:
            chosen = self._select(table)
            k, scale = int(table["k"][chosen]), float(table["scale"][chosen])
            trial = _trial_at(trials, float(table["damping"][chosen]))
            if k == 0 or chosen in judged:
                return chosen
            direction, by = trial.moves.get((k, scale)), 1.0
            if direction is None:
                if k not in trial.solved:
                    with self._timed("edit"):
                        trial.solved[k] = self._solve(trial.inverse, trial.rankings[0].order[:k])
                direction, by = trial.solved[k].x, scale
            with self._timed("candidates"):
                if judge.settles and chosen not in nearly:
                    found = judge.judge_nearly(direction, by)
                    nearly.add(chosen)
                else:
                    found = judge.judge(direction, (by,))
                    judged.add(chosen)
                changed = _put(table, chosen, found)
                if judge.screens and (changed or chosen not in judged):
                    _screen_again(table, trials, judge, judged | nearly)

    def _solve(self, inverse: Inverse, dropped: Tensor) -> Solution:
        return inverse.solve(nested_gradients(self.objective, dropped, [len(dropped)])[:, 0])

    def _performance(self, table: pd.DataFrame) -> NDArray[np.float64]:
        named = self.settings.selection.performance
        return table[named or performance_column(self.settings.loss)].to_numpy()

    def target(self, rows: Rows) -> Target:
        """What is to fall, on these validation rows: the surrogate and its gradient."""
        s, o = self.settings, self.objective
        with self._timed("gradient"):
            model = rows.model or self.editable.linearize(rows.X, keep=False)
            parts = s.constraint.group_gradients(
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
            check_finite(result.scores)
            loss_scores = None
            if target.loss_gradient is not None:
                loss_scores = influence(self.objective, inverse, target.loss_gradient).scores
            most = self.settings.search.most(len(result.scores))
            order, positive = most_harmful(result.scores, loss_scores, most=most)
        return Ranking(target, weights, result, loss_scores, order, positive)

    def _judge(self, rows: Rows) -> Judge:
        s = self.settings
        return Judge(
            self.editable.evaluator(rows.X),
            rows.y,
            rows.groups,
            s.loss,
            s.constraint,
            s.n_classes,
            recorded=[] if self._is_repeatable(rows) else None,
            counted=[] if s.pools else None,
        )

    def _is_repeatable(self, rows: Rows) -> bool:
        """Whether the choice can be made again on resamples of the rows."""
        s = self.settings
        return (
            s.constraint.is_counted(s.loss)
            and s.validation != "cross_fit"
            and s.n_classes < 256
            and len(rows.y) <= MOST_ROWS
        )

    def _finish(
        self, table: pd.DataFrame, chosen: int, trial: Trial, ranking: Ranking, judged: Rows
    ) -> Outcome:
        k, scale = int(table["k"][chosen]), float(table["scale"][chosen])
        dropped = ranking.order[: k if self.settings.search.drops else 0]
        delta = torch.zeros_like(self.objective.theta)
        diagnostics: dict[str, Any] = {"search": self.settings.search.name}
        if len(dropped):
            with self._timed("edit"):
                solution = trial.solved.get(k) or self._solve(trial.inverse, dropped)
            delta = scale * solution.x
            diagnostics |= {"edit_residual": float(solution.residual[0])}
        elif k:
            delta = self._moved(trial, ranking, k, scale)
        with self._timed("diagnostics"):
            warn_of_drift(self.objective, ranking, stacklevel=5)
            diagnostics = (
                diagnose(
                    self.editable, self.objective, self.settings, ranking, trial.inverse, delta
                )
                | diagnostics
            )
        return Outcome(
            ranking.influence.scores,
            ranking.loss_scores,
            dropped.cpu().numpy().astype(np.int64),
            table,
            chosen,
            delta,
            judged,
            diagnostics | {"seconds": self.seconds},
        )

    def _moved(self, trial: Trial, ranking: Ranking, k: int, scale: float) -> Tensor:
        """The candidate's change; proposed anew where the ranking is no longer the trial's."""
        if ranking is trial.rankings[0]:
            return trial.moves[k, scale]
        with self._timed("edit"):
            for proposal in self.settings.search.propose(self._scene(trial.inverse, ranking)):
                if proposal.label == scale:
                    return proposal.direction
                if proposal.label is None and scale in proposal.scales:
                    return scale * proposal.direction
        warnings.warn(
            f"The edit that the parts of the validation rows chose (scale {scale:g}) cannot be "
            "made by all of them together; the model is returned unchanged. Use "
            'validation="split" or "reuse", or more damping.',
            FairIJWarning,
            stacklevel=6,
        )
        return torch.zeros_like(self.objective.theta)

    def _inverses(self) -> Iterator[Inverse]:
        """An inverse for each damping; each is made of what the one before has gathered by then."""
        dampings, inverse = self.settings.dampings, None
        if isinstance(dampings, str):
            dampings = (AUTO_DAMPING * max(largest_eigenvalue(self.curvature), 1e-6),)
        for damping in dampings:
            with self._timed("prepare"):
                again = None if inverse is None else inverse.with_damping(damping)
                inverse = again or self.settings.solver.prepare(self.curvature, damping)
            yield inverse

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        self.progress(phase, 0, 1)
        try:
            with timed(self.seconds, phase):
                yield
        finally:
            self.progress(phase, 1, 1)


def _trial_at(trials: list[Trial], damping: float) -> Trial:
    return next(trial for trial in trials if trial.inverse.damping == damping)


def _put(table: pd.DataFrame, place: int, found: dict[str, NDArray[Any]]) -> bool:
    """Write what was found of one candidate into its row; whether that is news."""
    columns, values = list(found), np.array([value[0] for value in found.values()])
    before = table.loc[place, columns].to_numpy(dtype=np.float64)
    table.loc[place, columns] = values
    return not np.array_equal(before, values, equal_nan=True)


def _screen_again(table: pd.DataFrame, trials: list[Trial], judge: Judge, judged: set[int]) -> None:
    """Correct what was screened, all but what was judged by itself."""
    judge.forget_screened()
    k_of, scale_of = table["k"].to_numpy(), table["scale"].to_numpy()
    for trial in trials:
        here = (table["damping"] == trial.inverse.damping).to_numpy()
        places = [np.flatnonzero(here & (k_of == k)) for k in trial.screened]
        found = [
            pd.DataFrame(judge.judge(direction, tuple(scale_of[place])), index=place)
            for place, direction in zip(places, trial.screened.values(), strict=True)
        ]
        if found:
            values = pd.concat(found).drop(index=list(judged), errors="ignore")
            table.loc[values.index, values.columns] = values
