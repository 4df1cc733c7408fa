"""The work and the records of each method's unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from fairij import AccuracyBudget, adapt
from fairij.baselines import Predictor, Recipe, make_baseline
from fairij.datasets import Split, Splits
from fairij.errors import InvalidInputError
from fairij.method.selection import measures_of
from fairij_studies.tabular.config import Effort, Table
from fairij_studies.tabular.editing import (
    BUDGETS,
    DAMPINGS,
    SLACK,
    Pick,
    Searched,
    edited_models,
    fitted,
    search,
)
from fairij_studies.tabular.methods import COMPARED, EDITED, FAIR_IJ, Compared, Edited
from fairij_studies.tabular.stopwatch import Stopwatch
from fairij_studies.tabular.trial import Trial, load_trial

Record = dict[str, Any]
TRADE_OFF = "trade_off"
Edit = tuple[float, nn.Module, Record]  # the accuracy budget, the edited model, what was chosen


def base_records(table: Table, effort: Effort, seed: int) -> list[Record]:
    trial = load_trial(table, effort, seed)
    nature = {"needs_group": False, "refits": False, "randomised": False}
    measured = trial.measured(trial.as_predictor(trial.model))
    return [trial.record("ERM") | {"kind": TRADE_OFF} | nature | measured]


def baseline_records(
    table: Table, effort: Effort, seed: int, constraint: str, label: str
) -> list[Record]:
    """Run a baseline at every value of its sweep, on the base model."""
    trial, method = load_trial(table, effort, seed), COMPARED[label]
    if method.frozen_features:
        trial = _on_hidden_layer(trial)
    task = Task(trial, method, label, constraint, seed)
    sweep = effort.thinned(method.sweeps.get(constraint, ()))
    if not method.trains:
        return task.swept(sweep, trial.model, None)
    # without a penalty, training gives the base model
    unpenalised = task.measured(0.0, trial.as_predictor(trial.model)) | Stopwatch().reading
    return [unpenalised, *task.swept(sweep, trial.model, _from_scratch(effort))]


def further_records(
    table: Table,
    effort: Effort,
    seed: int,
    constraint: str,
    label: str,
    strengths: tuple[float, ...],
) -> list[Record]:
    """Run a baseline that trains, at further strengths."""
    trial, method = load_trial(table, effort, seed), COMPARED[label]
    task = Task(trial, method, label, constraint, seed)
    return task.swept(strengths, trial.model, _from_scratch(effort))


def _from_scratch(effort: Effort) -> Recipe:
    return Recipe(epochs=effort.epochs, checkpoint="objective")


def fair_ij_records(table: Table, effort: Effort, seed: int, constraint: str) -> list[Record]:
    """Run Fair-IJ at every accuracy budget, and baselines on one of its edits.

    Baselines that train continue from the edit. The others use its scores.
    """
    trial = load_trial(table, effort, seed)
    with Stopwatch() as watch:
        searched = search(trial, constraints=EDITED[FAIR_IJ].surrogates[constraint])
        edits = _edits(trial, searched, searched.picks(effort.thinned(BUDGETS)))
    records = _edit_records(trial, FAIR_IJ, constraint, edits, watch)
    edited = _nearly_lowest(trial, searched)
    for method in COMPARED.values():
        if method.on_edit is not None:
            sweep = effort.thinned(method.sweeps.get(constraint, ()))
            task = Task(trial, method, method.on_edit, constraint, seed)
            records += task.swept(sweep, edited, _tuning(effort) if method.trains else None)
    return records


def further_on_edit_records(
    table: Table, effort: Effort, seed: int, constraint: str
) -> list[Record]:
    """Fine-tune baselines from the edit at further strengths."""
    trial = load_trial(table, effort, seed)
    searched = search(trial, constraints=EDITED[FAIR_IJ].surrogates[constraint])
    edited = _nearly_lowest(trial, searched)
    return [
        record
        for method in COMPARED.values()
        if constraint in method.further_on_edit
        for record in Task(trial, method, str(method.on_edit), constraint, seed).swept(
            method.further_on_edit[constraint], edited, _tuning(effort)
        )
    ]


def _nearly_lowest(trial: Trial, searched: Searched) -> nn.Module:
    """Return the edit that baselines start from: accurate, with nearly the lowest gap."""
    ((_, edited, _),) = _edits(trial, searched, [searched.lowest(SLACK)])
    return edited


def _tuning(effort: Effort) -> Recipe:
    return Recipe(start="model", epochs=effort.tuning_epochs, checkpoint="objective")


def editing_records(
    table: Table, effort: Effort, seed: int, constraint: str, label: str
) -> list[Record]:
    """Run another form of Fair-IJ at every accuracy budget."""
    trial, form = load_trial(table, effort, seed), EDITED[label]
    with Stopwatch() as watch:
        edits = (_from_moves if form.keeps_moves else _one_table)(
            trial, form, constraint, effort.thinned(BUDGETS)
        )
    return _edit_records(trial, label, constraint, edits, watch)


def _edit_records(
    trial: Trial, label: str, constraint: str, edits: Sequence[Edit], watch: Stopwatch
) -> list[Record]:
    return [
        trial.record(label, constraint=constraint, parameter="accuracy budget", value=budget)
        | {"kind": TRADE_OFF, "needs_group": False, "refits": False, "randomised": False}
        | watch.reading  # of all budgets together
        | details
        | trial.measured(trial.as_predictor(model))
        for budget, model, details in edits
    ]


def _one_table(trial: Trial, form: Edited, constraint: str, budgets: Sequence[float]) -> list[Edit]:
    searched = search(trial, constraints=form.surrogates[constraint], **form.settings)
    return _edits(trial, searched, searched.picks(budgets))


def _edits(trial: Trial, searched: Searched, picks: Sequence[Pick]) -> list[Edit]:
    tried = {"candidates": len(searched.candidates)}
    return [
        (pick.budget, model, tried | {"k": pick.k, "scale": pick.scale, "damping": pick.damping})
        for pick, model in zip(picks, edited_models(trial, searched, picks), strict=True)
    ]


def _from_moves(
    trial: Trial, form: Edited, constraint: str, budgets: Sequence[float]
) -> list[Edit]:
    """Return edits of a search that keeps every candidate's change. Nothing is solved again."""
    surrogate = form.surrogates[constraint]
    fit = fitted(trial, constraints=surrogate, damping=DAMPINGS, **form.settings)
    editable, table = adapt(trial.model), fit.candidates_
    if fit.moves_ is None:
        raise InvalidInputError(f"The search of {form.label!r} must keep its moves, but has none.")
    edits = []
    for budget in budgets:
        row = AccuracyBudget(budget).choose(measures_of(table))
        details = {name: float(table[name].iloc[row]) for name in ("scale", "damping")}
        model = editable.edited(editable.theta + torch.from_numpy(fit.moves_[row]))
        edits.append((budget, model, {"candidates": len(table), **details}))
    return edits


@dataclass(frozen=True)
class Task:
    """One baseline for one constraint of a trial. ``label`` is its name in the records."""

    trial: Trial
    method: Compared
    label: str
    constraint: str
    seed: int

    def swept(
        self, sweep: Sequence[float], model: nn.Module, recipe: Recipe | None
    ) -> list[Record]:
        """Fit and measure the baseline at every value of the sweep."""
        settings: dict[str, Any] = {} if recipe is None else {"recipe": recipe}
        if self.method.frozen_features:
            settings["estimator"] = LogisticRegression(max_iter=200)
        records = []
        for value in sweep or (None,):
            baseline = make_baseline(
                self.method.baseline,
                constraint=self.constraint,
                value=value,
                seed=self.seed,
                **settings,
            )
            with Stopwatch() as watch:
                predictor = baseline.fit(
                    model, self.trial.splits.train, self.trial.splits.validation
                )
            records.append(self.measured(value, predictor) | watch.reading)
        return records

    def measured(self, value: float | None, predictor: Predictor) -> Record:
        face, trial = self.method.face, self.trial
        on_features = self.method.frozen_features
        return (
            trial.record(
                self.label,
                constraint=self.constraint,
                parameter=self.method.parameter,
                value=value,
            )
            | {
                "kind": TRADE_OFF,
                "needs_group": face.needs_group_at_test,
                "refits": face.refits,
                "randomised": face.randomised,
                "learner": "logistic regression on the hidden layer" if on_features else "network",
            }
            | trial.measured(predictor)
        )


def _on_hidden_layer(trial: Trial) -> Trial:
    """Return the trial with the base model's hidden layer as its features."""
    if not isinstance(trial.model, nn.Sequential):
        raise TypeError(f"The base model must be a Sequential, got {type(trial.model).__name__}.")
    below = trial.model[:-1]

    def seen(part: Split) -> Split:
        with torch.no_grad():
            return Split(below(torch.from_numpy(part.X)).numpy(), part.y, part.s)

    old = trial.splits
    splits: Splits = replace(
        old, train=seen(old.train), validation=seen(old.validation), test=seen(old.test)
    )
    return replace(trial, splits=splits, model=trial.model[-1])
