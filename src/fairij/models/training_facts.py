"""What an `Editable` may know of how its model was trained, asked for by name; all is optional.

* ``loss_name``: the loss it was trained on, a name in `fairij.LOSSES`;
* ``classes``: the class labels in the order of its outputs; or ``class_names``, which labels may
  be given by as well as by number;
* ``row_weights(y, weight)``: sample weights with class weights in them, ``y`` as class indices; or
  ``label_weights(y)``: only the factors, ``y`` as the user's labels;
* ``held_back(y)``: of the rows with these labels, those that it kept from training, None, or
  "unknown";
* ``caveats``: what an edit does not keep, or cannot know, of this model;
* ``l2(rows, weight_sum)``: its own penalty, ``(D,)``, in ``sum w l / W + sum l2 theta^2 / 2``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.models.base import Editable
from fairij.models.sklearn.estimators import HELD_BACK, Held


def loss_of(editable: Editable, asked: Any) -> Any:
    """The loss asked for; where that is "auto", the one that the model was trained on."""
    if isinstance(asked, str) and asked == "auto":
        return editable.loss_name or asked
    return asked


def classes_of(editable: Editable, y: NDArray[Any] | None = None) -> NDArray[Any] | None:
    """The class labels; where labels ``y`` are all among the model's names of them, those."""
    names = np.asarray(editable.class_names)
    if y is not None and len(names) and y.dtype.kind in "UO" and np.isin(y, names).all():
        return names
    return editable.classes


def held_back_of(editable: Editable, given: NDArray[Any]) -> Held:
    """Which of the rows with these labels, all that the user has given, were not trained on."""
    return editable.held_back(given)


def caveats_of(editable: Editable, held: Held) -> tuple[str, ...]:
    unknown = (HELD_BACK,) if isinstance(held, str) else ()
    return (*editable.caveats, *unknown)


def weights_of(
    editable: Editable, y: Tensor, labels: NDArray[Any], weight: Tensor | None
) -> Tensor | None:
    """Sample weights as the model's training had them; None where all rows weigh alike."""
    return editable.row_weights(y, weight)


def trained_weights(
    held: Held, given: int, rows: NDArray[np.int64] | None, weight: Tensor | None
) -> Tensor | None:
    """The same weights, zero for rows that are held back, as far as they are known.

    ``rows`` says which of the ``given`` rows the weights are of; None for all.
    """
    if held is None or isinstance(held, str):
        return weight
    kept = torch.ones(given, dtype=torch.float64)
    kept[torch.from_numpy(held)] = 0
    kept = kept if rows is None else kept[torch.from_numpy(rows)]
    return kept if weight is None else weight * kept.to(weight)


def l2_of(editable: Editable, rows: int, weight: Tensor | None, weight_decay: float) -> Tensor:
    """The model's own penalty and the ``weight_decay`` that the user adds, ``()`` or ``(D,)``."""
    theta = editable.theta
    given = torch.as_tensor(float(weight_decay), dtype=theta.dtype, device=theta.device)
    own = editable.l2(rows, rows if weight is None else float(weight.sum()))
    return given if own is None else own.to(theta) + given
