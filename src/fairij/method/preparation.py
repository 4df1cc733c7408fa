"""From what the user gave to what the engine takes: labels, the training loss, validation rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from fairij.data.checks import Data, held_out
from fairij.data.labels import Labels, check_runs, encode_labels, warn_if_reversed
from fairij.data.rows import speaking_of
from fairij.method.losses import Loss
from fairij.method.objective import Objective, normalised_weights
from fairij.method.types import Rows
from fairij.models.base import Editable
from fairij.models.training_facts import (
    caveats_of,
    classes_of,
    held_back_of,
    l2_of,
    loss_of,
    trained_weights,
    weights_of,
)


@dataclass(frozen=True)
class Prepared:
    """All that a mitigation works on; ``held`` are validation rows that it must not see."""

    labels: Labels
    objective: Objective
    validation: Rows
    held: Rows | None
    caveats: tuple[str, ...]  # what the edit cannot keep, or know


def prepare(
    editable: Editable,
    data: Data,
    *,
    loss: str | Loss,
    weight_decay: float,
    reused: bool,
    holdout_fraction: float,
    seed: int,
) -> Prepared:
    """Run the model on the rows, and read labels and weights by what it says of its training.

    ``reused`` says whether the gradient will be of all validation rows, so that they are
    linearised once and for all.
    """
    check_runs("X", editable, data.X)
    model = editable.linearize(data.X)
    with speaking_of("X_val"):
        model_val = None
        if reused and holdout_fraction == 0:
            model_val = editable.linearize(data.X_val, keep=False)
        z_val = editable.outputs(data.X_val) if model_val is None else model_val.outputs
    labels = encode_labels(
        model.outputs,
        z_val,
        data.y,
        data.y_val,
        loss_of(editable, loss),
        classes_of(editable, data.y),
    )
    warn_if_reversed(labels, z_val, stacklevel=4)
    theta, rows = editable.theta, len(data.y)
    weight = weights_of(editable, labels.train, data.y, data.weight)
    held_back = held_back_of(editable, data.given_y)
    weight = trained_weights(held_back, len(data.given_y), data.rows, weight)
    caveats = caveats_of(editable, held_back)
    objective = Objective(
        model,
        labels.train,
        labels.loss,
        normalised_weights(weight, rows, theta),
        theta,
        l2_of(editable, rows, weight, weight_decay),
    )
    validation = Rows(data.X_val, labels.validation, data.groups, model_val)
    if holdout_fraction == 0:
        return Prepared(labels, objective, validation, None, caveats)
    away = held_out("holdout_fraction", holdout_fraction, data.groups, seed)
    held = validation.take(np.flatnonzero(away))
    validation = validation.take(np.flatnonzero(~away))
    labels = dataclasses.replace(labels, validation=validation.y)
    return Prepared(labels, objective, validation, held, caveats)
