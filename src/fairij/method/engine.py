"""The method, step by step: gradient, solve, scores, candidates, choice, edit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fairij.errors import InvalidInputError, NothingToDropWarning, Notice
from fairij.fairness.optimism import MOST_ROWS, Patterns
from fairij.method.candidates import Judge, Move, judged_candidates, pooled_table
from fairij.method.chooser import Chooser, trial_at
from fairij.method.contexts import Contexts
from fairij.method.curvature import largest_eigenvalue, make_curvature
from fairij.method.fairness_rows import FairnessRows, GroupedRows
from fairij.method.influence import (
    Influence,
    balanced_influence,
    check_finite,
    influence,
    most_harmful,
    nested_gradients,
)
from fairij.method.objective import Objective, as_tensor, normalised_weights
from fairij.method.other_rows import other_rows
from fairij.method.preparation import Prepared, Settings
from fairij.method.results import diagnose, drift_notices, scale_notices, unsolved_notices
from fairij.method.run import Progress, timed
from fairij.method.selection import measures_of, pareto_front
from fairij.method.types import Outcome, Ranking, Target, Trial, folds, pools
from fairij.models.base import Editable
from fairij.solvers.base import Inverse, Solution

AUTO_DAMPING = 1e-2  # of the largest eigenvalue


class Engine:
    """One model, one training loss, one set of validation rows; `run` does the rest."""

    def __init__(
        self, editable: Editable, prepared: Prepared, settings: Settings, progress: Progress
    ) -> None:
        self.editable, self.settings, self.progress = editable, settings, progress
        self.objective, self.validation = prepared.objective, prepared.validation
        self.training = prepared.training
        self.loss = prepared.labels.loss
        self.n_classes = len(prepared.labels.classes)
        self.curvature = make_curvature(settings.curvature, self.objective)
        self.others = other_rows(
            editable,
            settings.constraint.elsewhere,
            self.loss,
            settings.temperature,
            settings.decision,
        )
        self.contexts = Contexts(editable, self.objective, settings, self.others)
        self.seconds: dict[str, float] = {}
        self.notices: list[Notice] = []
        self.remarks: list[str] = []  # on the choice

    def run(self) -> Outcome:
        pairs = folds(self.validation, self.settings, self.loss, self.n_classes)
        trials, judges, table = self.tried(pairs)
        chooser = Chooser(self.settings.selection, self.loss, self._timed)
        if self.settings.validation_use == "cross_fit":
            chosen, judged = chooser.choose(table), self.validation
            trial = trial_at(trials, table["damping"][chosen])
            ranking = self.rank(self.target(judged), trial.inverse)  # now by all the rows
        else:
            chosen, judged = chooser.choose_confirmed(table, trials, judges[0]), pairs[-1][1]
            trial = trial_at(trials, table["damping"][chosen])
            ranking = trial.rankings[0]
        table["pareto"] = pareto_front(table["gap"].to_numpy(), chooser.performance(table))
        self._notice_choice(table, chosen, ranking)
        outcome = self._outcome(table, chosen, trial, ranking, judged)
        with self._timed("candidates"):
            outcome.patterns = self._patterns(judges[0], table)
            if outcome.patterns is not None:
                outcome.of_scores = judges[0].of_scores(table)
                outcome.squares = judges[0].squares
        if not self.settings.search.drops and self.settings.validation_use != "cross_fit":
            outcome.moves = self._all_moves(table, trials)
        return outcome

    def tried(
        self, pairs: list[tuple[GroupedRows, GroupedRows]]
    ) -> tuple[list[Trial], list[Judge], pd.DataFrame]:
        """All candidates of these pairs of validation rows, tried and judged; one table of them."""
        targets = [self.target(rows) for rows, _ in pairs]
        with self._timed("candidates"):
            judges = [self._judge(rows) for _, rows in pairs]
        trials = [self._trial(inverse, targets, judges) for inverse in self._inverses()]
        first, *others = [trial.table for trial in trials]
        table = pd.concat([first, *(t[t["k"] > 0] for t in others)], ignore_index=True)
        return trials, judges, table

    def target(self, rows: GroupedRows) -> Target:
        """The surrogate on these validation rows and known training rows, and its gradient."""
        s, o, on = self.settings, self.objective, FairnessRows(rows, self.training)
        with self._timed("gradient"):
            model = rows.model or self.editable.linearize(rows.X, keep=False)
            slopes = on.slopes(model)
            parts = s.constraint.group_gradients(
                slopes.outputs, on.y, on.groups, self.loss, s.temperature
            )
            gradients = torch.stack([slopes.vjp(weights) for _, weights in parts], 1)
            gaps = torch.tensor([value for value, _ in parts], dtype=torch.float64)
            if not bool(torch.isfinite(gaps).all() and torch.isfinite(gradients).all()):
                raise InvalidInputError(
                    f"The constraint {s.constraint.name!r} must have a finite value and gradient "
                    f"on the validation rows; its value is {float(gaps.sum())}. Look for a root, "
                    "logarithm or division that meets zero, or for a group without rows."
                )
            loss_gradient = None
            if s.drop == "loss_aware":
                mean = normalised_weights(as_tensor(rows.groups.weight), len(rows.y), o.theta)
                on_loss = Objective(model, rows.y, self.loss, mean, o.theta, 0 * o.l2)
                loss_gradient = on_loss.gradient
        return Target(on, gaps, gradients, loss_gradient)

    def rank(self, target: Target, inverse: Inverse) -> Ranking:
        """Score every training row; those that may be dropped, in order."""
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

    def _of_the_gap(self, ranking: Ranking, inverse: Inverse) -> Influence:
        """Scores of the gap itself, also where rows are ranked by several gaps together."""
        if len(ranking.weights) == 1:
            return ranking.influence
        s, rows = self.settings, ranking.target.rows
        seen = rows.validation
        with self._timed("influence"):
            slopes = rows.slopes(seen.model or self.editable.linearize(seen.X, keep=False))
            parts = s.constraint.part_gradients(
                slopes.outputs, rows.y, rows.groups, self.loss, s.temperature
            )
            slope = torch.stack([weights for _, weights in parts]).sum(0)
            found = influence(self.objective, inverse, slopes.vjp(slope))
            check_finite(found.scores)
        return found

    def _inverses(self) -> Iterator[Inverse]:
        """An inverse for each damping; each uses what the one before has gathered by then."""
        dampings, inverse = self.settings.dampings, None
        if isinstance(dampings, str):
            dampings = (AUTO_DAMPING * max(largest_eigenvalue(self.curvature), 1e-6),)
            self.notices += scale_notices(self.curvature, dampings[0])
        for damping in dampings:
            with self._timed("prepare"):
                again = None if inverse is None else inverse.with_damping(damping)
                inverse = again or self.settings.solver.prepare(self.curvature, damping)
            yield inverse

    def _judge(self, rows: GroupedRows) -> Judge:
        s = self.settings
        is_repeatable = (  # the choice, on resamples of the rows
            s.constraint.is_counted(self.loss)
            and s.validation_use != "cross_fit"
            and self.n_classes < 256
            and len(rows.y) <= MOST_ROWS
            and rows.groups.chances is None
            and not self.others
        )
        return Judge(
            self.editable.evaluator(rows.X),
            rows.y,
            rows.groups,
            self.loss,
            s.constraint,
            self.n_classes,
            recorded={} if is_repeatable else None,
            counted=[] if pools(s, self.loss) else None,
            decision=s.decision,
            others=self.others,
        )

    def _trial(self, inverse: Inverse, targets: list[Target], judges: list[Judge]) -> Trial:
        rankings = [self.rank(target, inverse) for target in targets]
        shared = min(len(ranking.order) for ranking in rankings)  # what every fold can drop
        contexts = [self.contexts.of(inverse, ranking, shared) for ranking in rankings]
        with self._timed("candidates"):
            found = [
                judged_candidates(
                    self.settings.search,
                    context,
                    judge,
                    self.progress,
                    keep=len(rankings) == 1,  # of several folds, no edit is taken
                )
                for context, judge in zip(contexts, judges, strict=True)
            ]
        said = [notice for context in contexts for notice in context.notices]
        self.notices += [notice for notice in dict.fromkeys(said) if notice not in self.notices]
        table = pooled_table(found, judges)
        return Trial(inverse, rankings, table, found[0].moves, found[0].estimated)

    def _solve(self, inverse: Inverse, dropped: Tensor) -> Solution:
        pull = nested_gradients(self.objective, dropped, [len(dropped)])[:, 0]
        return inverse.solve(pull)

    def _notice_choice(self, table: pd.DataFrame, chosen: int, ranking: Ranking) -> None:
        rule = self.settings.selection
        told = (
            rule.shortfall(float(table["gap"][chosen])),
            rule.remark(measures_of(table), chosen),
        )
        self.remarks = [text for text in told if text]
        self.notices += map(Notice, self.remarks)
        if not (table["k"] > 0).any():
            also = " and on the loss" if self.settings.drop == "loss_aware" else ""
            text = (
                f"No training point has positive influence on the gap{also} (its surrogate is "
                f"{ranking.target.value:.4f}); the model is returned unchanged. Another "
                "constraint, more validation rows or more editable parameters may find some."
            )
            self.notices.append(Notice(text, NothingToDropWarning))

    def _outcome(
        self, table: pd.DataFrame, chosen: int, trial: Trial, ranking: Ranking, judged: GroupedRows
    ) -> Outcome:
        k, scale = int(table["k"][chosen]), float(table["scale"][chosen])
        dropped = ranking.order[: k if self.settings.search.drops else 0]
        delta = torch.zeros_like(self.objective.theta)
        diagnostics: dict[str, Any] = {"search": self.settings.search.name}
        if k:
            with self._timed("edit"):
                move = self._move(trial, ranking, dropped, k, scale)
                error = self._error(move, trial.inverse, dropped)
                delta = self._stored(move.delta)
            if not math.isnan(error):
                diagnostics |= {"edit_residual": error}
        with self._timed("diagnostics"):
            self.notices += drift_notices(self.objective, ranking)
            diagnostics |= diagnose(
                self.editable, self.objective, self.settings, ranking, trial.inverse, delta
            )
            self.notices += unsolved_notices(diagnostics)
        of_gap = self._of_the_gap(ranking, trial.inverse)
        return Outcome(
            of_gap.scores,
            None if of_gap is ranking.influence else ranking.influence.scores,
            ranking.loss_scores,
            of_gap.direction,
            dropped.cpu().numpy().astype(np.int64),
            table,
            chosen,
            delta,
            judged,
            diagnostics | {"remarks": self.remarks, "seconds": self.seconds},
            notices=self.notices,
        )

    def _move(self, trial: Trial, ranking: Ranking, dropped: Tensor, k: int, scale: float) -> Move:
        """The candidate's parameter change; made again if the ranking is not the trial's."""
        if ranking is trial.rankings[0]:
            return trial.moves[k, scale]
        if self.settings.search.drops:
            solution = self._solve(trial.inverse, dropped)
            return Move(solution.x, scale, float(solution.told[0]))
        for proposal in self.settings.search.propose(self.contexts.of(trial.inverse, ranking)):
            if proposal.label == scale:
                return Move(proposal.direction, 1.0, proposal.error)
            if proposal.label is None and scale in proposal.scales:
                return Move(proposal.direction, scale, proposal.error)
        self.notices.append(
            Notice(
                f"The edit that the parts of the validation rows chose (scale {scale:g}) cannot "
                "be made with all of them together; the model is returned unchanged. Use "
                'validation_use="split" or "reuse", or more damping.'
            )
        )
        return Move(torch.zeros_like(self.objective.theta), 0.0)

    def _stored(self, delta: Tensor) -> Tensor:
        """The change to what the edited model has."""
        there = self.editable.theta + delta.to(self.editable.theta)
        stored = self.editable.stored(there)
        return delta if stored is there else stored - self.editable.theta

    def _error(self, move: Move, inverse: Inverse, dropped: Tensor) -> float:
        """The error in energy of the chosen edit; measured if the solver did not tell it."""
        if not math.isnan(move.error) or len(dropped) == 0:
            return move.error
        pull = nested_gradients(self.objective, dropped, [len(dropped)])
        return float(
            inverse.measured_error(self.curvature, inverse.damping, pull, move.direction)[0]
        )

    def _all_moves(self, table: pd.DataFrame, trials: list[Trial]) -> Tensor:
        nothing = Move(torch.zeros_like(self.objective.theta), 0.0)
        keys = zip(table["damping"], table["k"], table["scale"], strict=True)
        moves = [trial_at(trials, damping).moves.get((k, c), nothing) for damping, k, c in keys]
        return torch.stack([move.delta for move in moves])

    def _patterns(self, judge: Judge, table: pd.DataFrame) -> Patterns | None:
        labels = judge.labels(table)
        if labels is None:
            return None
        y, groups = judge.truth.cpu().numpy(), judge.groups
        sizes = {"n_groups": groups.slots, "n_classes": self.n_classes}
        return Patterns.of(labels, y, groups.codes, weight=groups.weight, **sizes)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        self.progress(phase, 0, 1)
        try:
            with timed(self.seconds, phase):
                yield
        finally:
            self.progress(phase, 1, 1)
