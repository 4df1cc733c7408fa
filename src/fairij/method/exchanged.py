"""Whether training and validation rows look exchanged: the model fits the wrong ones better.

Training leaves two traces. The loss is lower on the rows that were trained on, and its gradient
there is zero, or near it. Validation rows with both traces were probably trained on.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairij.errors import Notice
from fairij.method.objective import Objective
from fairij.models.base import Linearization
from fairij.models.losses import Loss

SURE = 3.0  # standard errors by which the loss on training rows is higher
CLEAR = 0.05  # of the loss on validation rows
NEARER = 5.0  # times nearer to zero the gradient on validation rows is
MOST = 50_000_000  # rows times parameters for which the gradient is looked at
TEXT = (
    "The model fits the validation rows better than the training rows ({}), as if the two had been "
    "exchanged. Rows that it was trained on flatter it, so gaps measured on them mislead, and the "
    "influence of other rows means little. Check which table is which."
)


def exchanged_notices(
    objective: Objective, z_val: Tensor, y_val: Tensor, model_val: Linearization | None
) -> list[Notice]:
    """A notice if the rows look exchanged; ``model_val`` is the model on validation rows."""
    found = lower_loss(objective, z_val, y_val)
    if found is None and model_val is not None:
        found = smaller_gradient(objective, z_val, y_val, model_val)
    return [] if found is None else [Notice(TEXT.format(found))]


def lower_loss(objective: Objective, z_val: Tensor, y_val: Tensor) -> str | None:
    """What to say if the loss is clearly lower on the validation rows."""
    loss, z, y = objective.loss, objective.model.outputs, objective.y
    ours, theirs = (_losses(loss, *rows) for rows in ((z, y), (z_val, y_val)))
    apart, variance, total = 0.0, 0.0, 0.0
    labels = y_val.unique().tolist() if loss.is_classification else [None]
    for label in labels:  # so that another share of each class makes no difference
        a = ours if label is None else ours[y == label]
        b = theirs if label is None else theirs[y_val == label]
        if min(len(a), len(b)) < 2:
            return None
        share = len(b) / len(theirs)
        apart += share * float(a.mean() - b.mean())
        variance += share**2 * float(a.var() / len(a) + b.var() / len(b))
        total += share * float(b.mean())
    if apart <= SURE * math.sqrt(variance) or apart <= CLEAR * total:
        return None
    return f"its loss is {total:.3g} there, and {total + apart:.3g} on the training rows"


def smaller_gradient(
    objective: Objective, z_val: Tensor, y_val: Tensor, model_val: Linearization
) -> str | None:
    """What to say if the validation rows are where the gradient is zero."""
    rows, theta = len(y_val), objective.theta
    if rows * len(theta) > MOST or not bool(torch.isfinite(z_val).all()):
        return None
    # the same penalty in all, which weighs more among fewer rows
    pull = objective.l2 * theta * (len(objective.y) / rows)
    slope = objective.loss.slope(z_val, y_val.to(objective.y)) / rows
    theirs = float((model_val.vjp(slope.to(z_val)) + pull).norm())
    ours = float(objective.gradient.norm())
    if not (math.isfinite(theirs) and ours > NEARER * theirs):
        return None
    return f"the gradient of its loss is {theirs:.2g} there, and {ours:.2g} on the training rows"


def _losses(loss: Loss, z: Tensor, y: Tensor) -> Tensor:
    return loss.value(z, y.to(z) if y.is_floating_point() else y).double()
