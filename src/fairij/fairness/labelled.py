"""True and predicted labels, checked and encoded as what every classification metric takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.fairness.counted import Counted
from fairij.fairness.groups import Groups, encode_groups, relative, vector, weights
from fairij.fairness.rates import Array, confusion_counts


@dataclass(frozen=True)
class Labelled:
    """True and predicted classes as indices into ``classes``, with groups and weights."""

    y_true: NDArray[np.int64]
    y_pred: NDArray[np.int64]
    groups: Groups
    classes: NDArray[Any]
    sample_weight: Array | None

    def counts(self, weight: Array | None) -> Array:
        """The table of confusion counts, ``(G, C, C)``, with these weights."""
        return confusion_counts(
            self.y_true,
            self.y_pred,
            self.groups.codes,
            n_groups=len(self.groups.names),
            n_classes=len(self.classes),
            sample_weight=weight,
        )

    @property
    def table(self) -> Array:
        return self.counts(self.sample_weight)

    @property
    def counted(self) -> Counted:
        """The tables that rates, gaps and their intervals follow from."""
        table, weight = self.table, self.sample_weight
        return Counted(table, table if weight is None else self.counts(weight**2))


def label(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> Labelled:
    """Check and encode what every classification metric takes."""
    truth = vector("y_true", y_true)
    predicted = vector("y_pred", y_pred, len(truth))
    groups = encode_groups(sensitive_features, expected_rows=len(truth))
    weight = weights(sample_weight, len(truth))
    if predicted.dtype.kind == "f" and not np.isin(predicted, truth).all():
        wrong = predicted[predicted != predicted.round()][:1]
        if len(wrong):
            raise InvalidInputError(
                f"`y_pred` must hold predicted labels, got the fraction {wrong[0]:g}: turn "
                "probabilities into labels first, as in `p > 0.5`."
            )
    values = np.concatenate([truth, predicted])
    try:
        classes, codes = np.unique(values, return_inverse=True)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values.tolist()})
        raise InvalidInputError(
            "`y_true` and `y_pred` must hold labels of one kind, got a mixture of "
            f"{' and '.join(kinds)}: encode both alike."
        ) from None
    if len(classes) == 1:  # a second class makes the rates well defined; 0 and -1 are negative
        only = classes[0]
        if only in (0, -1):
            classes = np.array([only, 1])
        else:
            classes, codes = np.array([0 if only == 1 else f"not {only}", only]), codes + 1
    elif len(classes) == 2 and set(classes.tolist()) == {-1, 0}:
        raise InvalidInputError("Labels -1 and 0 do not say which is positive; use 0 and 1.")
    return Labelled(codes[: len(truth)], codes[len(truth) :], groups, classes, relative(weight))
