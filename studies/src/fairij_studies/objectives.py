"""The training objective of a binary classifier, for studies that solve with its curvature."""

from __future__ import annotations

from typing import Any

import torch

from fairij import adapt
from fairij.method.objective import Objective, normalised_weights
from fairij.models.losses import get_loss


def training_objective(model: Any, X: Any, y: Any) -> Objective:
    """Return the mean cross-entropy of a model on labelled rows, linearised at its parameters."""
    editable = adapt(model)
    theta = editable.theta
    return Objective(
        editable.linearize(X),
        torch.as_tensor(y).to(theta),
        get_loss("binary_cross_entropy"),
        normalised_weights(None, len(y), theta),
        theta,
        torch.zeros_like(theta[0]),
    )
