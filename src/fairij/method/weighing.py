"""Whether the model looks trained with weights, or on rows, other than those given.

A model that was trained by the log loss gives each label, on average over its training rows, about
as often as it occurs there. Weights by label and oversampled labels end that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fairij.data.row_vectors import blocks
from fairij.data.rows import processes
from fairij.errors import Notice
from fairij.method.objective import Objective

LOSSES = ("binary_cross_entropy", "softmax_cross_entropy")
APART = 2.0  # times the odds of a label that the model gives differ from its odds among the rows
SURE = 3.3  # standard errors
TEXT = (
    "Averaged over the training rows, the model gives {name!r} a chance of {given:.1%}, but "
    "{found:.1%} of them {weighted}have that label. A model that was trained on these rows as they "
    "are would be right on average. If weights or oversampling were used in training, give fit "
    "the same `sample_weight` (on the command line: `--weights`), or the rows as trained on. Else "
    "influence and edit are those of another training than the model's."
)


def weighing_notices(objective: Objective, classes: Sequence[object]) -> list[Notice]:
    """A notice if the model's chances of a label are far from its share among training rows."""
    loss, z = objective.loss, objective.model.outputs
    if loss.name not in LOSSES or len(classes) < 2 or processes() > 1:
        return []
    given = torch.zeros(len(classes), dtype=torch.float64)
    found, squares = torch.zeros_like(given), 0.0
    for some in blocks(len(z)):
        outputs, w = z[some].double().cpu(), objective.weights[some].double().cpu()
        chances = _chances(outputs)
        labels = objective.y[some].long().cpu()
        given += w @ chances
        found += torch.zeros_like(given).index_add_(0, labels, w)
        squares += float(w.square().sum())
    if not bool(torch.isfinite(given).all()) or bool((found <= 0).any()):
        return []
    error = (found * (1 - found) * squares).sqrt()  # of a share, as the weights are
    odds = (given / (1 - given)).log() - (found / (1 - found)).log()
    far = (odds.abs() > torch.tensor(APART).log()) & ((given - found).abs() > SURE * error)
    if not bool(far.any()):
        return []
    place = len(found) - 1 if len(found) == 2 else int(torch.where(far, odds.abs(), 0.0).argmax())
    weights = objective.weights
    weighted = "" if bool((weights == weights[0]).all()) else "(by their weights) "
    name = classes[place]
    numbers = {"given": float(given[place]), "found": float(found[place])}
    return [Notice(TEXT.format(name=name, weighted=weighted, **numbers))]


def _chances(z: torch.Tensor) -> torch.Tensor:
    """The chance of each label, ``(B, C)``."""
    if z.ndim > 1:
        return torch.softmax(z, 1)
    p = torch.sigmoid(z)
    return torch.stack([1 - p, p], 1)
