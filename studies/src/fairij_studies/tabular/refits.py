"""The curve of influences, as in the paper, and real refits, which the paper lacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairij import adapt
from fairij.models.torch.training import train_mlp
from fairij_studies.tabular.config import REPORTED_SEEDS, Effort, Table
from fairij_studies.tabular.editing import directions, fitted
from fairij_studies.tabular.trial import Trial, load_trial

REFIT_SEEDS = REPORTED_SEEDS[:3]
DAMPING = 1e-2
MARKED = 500
CURVE_POINTS = 200
ANOTHER_SEED = 1000  # added to the training seed, to measure the effect of the seed alone


def influence_records(
    table: Table, effort: Effort, seed: int, constraint: str
) -> list[dict[str, Any]]:
    """Return the positive influences in rising order, thinned, and the gap after the edit."""
    trial = load_trial(table, effort, seed)
    fair = fitted(trial, constraints=constraint, damping=DAMPING)
    positive = np.sort(fair.influence_[fair.influence_ > 0])
    places = np.unique(np.linspace(0, len(positive) - 1, CURVE_POINTS).round().astype(int))
    after = trial.measured(trial.as_predictor(fair.estimator_))
    chosen = fair.candidates_.iloc[fair.chosen_]
    return [
        trial.record("influence", constraint=constraint)
        | {
            "kind": "influence",
            "n_positive": len(positive),
            "marked": min(MARKED, len(positive)),
            "ranks": (places + 1).tolist(),
            "scores": positive[places].tolist(),
            "k": int(chosen["k"]),
            "scale": float(chosen["scale"]),
            "damping": DAMPING,
        }
        | after
    ]


def refit_records(
    table: Table, effort: Effort, seed: int, constraint: str, k: int
) -> list[dict[str, Any]]:
    """Compare the edit at scale 1 with a network that is trained without the same k rows.

    With k = 0, compare the base model with a network trained on all rows from another seed.
    """
    trial = load_trial(table, effort, seed)
    train, validation, _ = trial.splits
    kept, training_seed, edited = np.arange(len(train)), seed + ANOTHER_SEED, trial.model
    if k:
        fair = fitted(trial, constraints=constraint, damping=DAMPING)
        order = np.argsort(-fair.influence_, kind="stable")
        edited = _edited(trial, fair.influence_, k)
        kept, training_seed = np.sort(order[k:]), seed
    refitted = train_mlp(
        train.X[kept],
        train.y[kept],
        validation.X,
        validation.y,
        epochs=effort.epochs,
        seed=training_seed,
    )
    return [
        trial.record(name, constraint=constraint, parameter="k", value=k)
        | {"kind": "refit", "damping": DAMPING, "scale": 1.0}
        | trial.measured(trial.as_predictor(model))
        for name, model in (("edit", edited), ("refit", refitted))
    ]


def _edited(trial: Trial, influence: Any, k: int) -> Any:
    editable = adapt(trial.model)
    (move,) = directions(trial.model, trial.splits.train, influence, [k], DAMPING)
    return editable.edited(editable.theta + move)
