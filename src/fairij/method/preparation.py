"""From what the user gave to what the engine takes: labels, the training loss, validation rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.fit_data import Data, held_out
from fairij.data.rows import speaking_of
from fairij.errors import Notice
from fairij.fairness.sizes import check_precision, check_sizes
from fairij.method.objective import Objective, normalised_weights
from fairij.method.settings import Settings
from fairij.method.types import GroupedRows
from fairij.models.base import HELD_BACK, Editable, Held
from fairij.models.labels import (
    Labels,
    check_runs,
    encode_labels,
    known_classes,
    reversed_labels,
)


@dataclass(frozen=True)
class Prepared:
    """Everything that the engine works on."""

    labels: Labels
    objective: Objective
    validation: GroupedRows
    held: GroupedRows | None  # validation rows that the engine must not see
    caveats: tuple[str, ...]  # what the edit does not keep, or cannot know
    notices: list[Notice]


def prepare(editable: Editable, data: Data, settings: Settings) -> Prepared:
    """Run the model on the rows; read labels and weights by what it knows of its training."""
    check_runs("X", editable, data.X)
    model = editable.linearize(data.X)
    with speaking_of("X_val"):
        model_val = None
        if settings.validation == "reuse" and settings.holdout_fraction == 0:
            model_val = editable.linearize(data.X_val, keep=False)  # for gradient and choice
        z_val = editable.outputs(data.X_val) if model_val is None else model_val.outputs
    loss = settings.loss
    if isinstance(loss, str) and loss == "auto":
        loss = editable.loss_name or loss
    labels = encode_labels(
        model.outputs, z_val, data.y, data.y_val, loss, known_classes(editable, data.y)
    )
    theta, rows = editable.theta, len(data.y)
    held_back = editable.held_back(data.given_y)
    weight = editable.row_weights(labels.train, data.weight)
    weight = _without(held_back, len(data.given_y), data.rows, weight)
    objective = Objective(
        model,
        labels.train,
        labels.loss,
        normalised_weights(weight, rows, theta),
        theta,
        _penalty(editable, rows, weight, settings.weight_decay),
    )
    caveats = (*editable.caveats, *((HELD_BACK,) if isinstance(held_back, str) else ()))
    notices = [*reversed_labels(labels, z_val), *map(Notice, caveats)]
    validation, held = GroupedRows(data.X_val, labels.validation, data.groups, model_val), None
    if settings.holdout_fraction != 0:
        away = held_out("holdout_fraction", settings.holdout_fraction, data.groups, settings.seed)
        held = validation.take(np.flatnonzero(away))
        validation = validation.take(np.flatnonzero(~away))
        labels = dataclasses.replace(labels, validation=validation.y)
    compared = (settings.constraint, validation.y.cpu().numpy(), labels.classes, validation.groups)
    notices += check_sizes(*compared)
    notices += check_precision(*compared, settings.selection)
    return Prepared(labels, objective, validation, held, caveats, notices)


def _without(
    held: Held, given: int, rows: NDArray[np.int64] | None, weight: Tensor | None
) -> Tensor | None:
    """The weights with zero for rows that training did not see, if they are known.

    ``rows`` says which of the ``given`` rows the weights are of; None for all.
    """
    if held is None or isinstance(held, str):
        return weight
    kept = torch.ones(given, dtype=torch.float64)
    kept[torch.from_numpy(held)] = 0
    kept = kept if rows is None else kept[torch.from_numpy(rows)]
    return kept if weight is None else weight * kept.to(weight)


def _penalty(editable: Editable, rows: int, weight: Tensor | None, weight_decay: float) -> Tensor:
    """The model's own L2 term plus the user's ``weight_decay``, shape ``()`` or ``(D,)``."""
    theta = editable.theta
    given = torch.as_tensor(float(weight_decay), dtype=theta.dtype, device=theta.device)
    own = editable.l2(rows, rows if weight is None else float(weight.sum()))
    return given if own is None else own.to(theta) + given
