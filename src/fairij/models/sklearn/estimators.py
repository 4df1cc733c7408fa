"""What scikit-learn's estimators share: columns, class weights, rows kept for early stopping."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from torch import Tensor

from fairij.data.rows import Columns
from fairij.models.base import HELD_BACK, Held


def caveats_of(estimator: Any) -> tuple[str, ...]:
    """A warning if early stopping kept rows out of training; the solver lbfgs never does."""
    stops = getattr(estimator, "early_stopping", False)
    return (HELD_BACK,) if stops and getattr(estimator, "solver", None) != "lbfgs" else ()


def usual_loss(classes: Any, n_outputs: int) -> str:
    """The engine's name for the loss of most estimators; regression has no classes."""
    of_classes = "binary_cross_entropy" if n_outputs == 1 else "softmax_cross_entropy"
    return "squared_error" if classes is None else of_classes


def check_columns(estimator: Any, X: Any) -> None:
    """Raise unless ``X`` has the columns that the estimator was fitted on."""
    width = getattr(estimator, "n_features_in_", None)
    names = getattr(estimator, "feature_names_in_", ())
    Columns(() if width is None else (int(width),), tuple(names)).check("X", X)


def class_weighted(
    class_weight: Mapping[Any, float] | str | None,
    classes: Any,
    y: Tensor,
    weight: Tensor | None,
    *,
    balance_weights: bool = True,
) -> Tensor | None:
    """Sample weights times an estimator's class weights; ``y`` holds class indices.

    "balanced" is ``n / (C n_c)``; with ``balance_weights`` the counts are sums of sample weights.
    """
    if class_weight is None:
        return weight
    index = y.long().cpu()
    if isinstance(class_weight, str):
        ones = torch.ones(len(y), dtype=torch.float64)
        counted = times(weight, ones) if balance_weights else ones
        sizes = torch.zeros(len(classes), dtype=torch.float64).index_add_(0, index, counted)
        factor = counted.sum() / (len(classes) * sizes)
    else:
        labels = np.asarray(classes).tolist()
        factor = torch.tensor([float(class_weight.get(label, 1.0)) for label in labels]).double()
    return times(weight, factor[index])


def times(weight: Tensor | None, factor: Tensor) -> Tensor:
    """Sample weights times a factor of each row, in float64."""
    return factor.double() if weight is None else weight.double().cpu() * factor.double()


def split_off(model: Any, y: NDArray[Any], is_trained: Callable[[int], bool], seed: Any) -> Held:
    """The rows kept out by early stopping, if ``is_trained`` accepts the number of the others."""
    if is_trained(len(y)):
        return None
    fraction, classes = model.validation_fraction, y if hasattr(model, "classes_") else None
    if fraction is None or not isinstance(seed, Integral):
        return "unknown"
    try:
        _, held = train_test_split(
            np.arange(len(y)), test_size=fraction, stratify=classes, random_state=int(seed)
        )
    except ValueError:  # too few rows of a class
        return "unknown"
    return np.asarray(held) if is_trained(len(y) - len(held)) else "unknown"
