"""True and predicted labels, checked and encoded as what every classification metric takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.fairness.counted import Counted
from fairij.fairness.groups import Groups, MissingGroups, encode_groups, relative, vector, weights
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
        """The table of confusion counts, ``(G, C, C)``, with these weights.

        There is one more group if some rows have none.
        """
        count = partial(
            confusion_counts,
            self.y_true,
            self.y_pred,
            n_groups=self.groups.slots,
            n_classes=len(self.classes),
        )
        codes = self.groups.codes
        if self.groups.chances is None:
            return count(codes, sample_weight=weight)
        # each row counts for several groups
        parts = enumerate(self.groups.membership(weight).T)
        tables = [count(np.full_like(codes, code), sample_weight=own) for code, own in parts]
        return np.sum(tables, axis=0)

    @property
    def table(self) -> Array:
        return self.counts(self.sample_weight)

    @property
    def counted(self) -> Counted:
        """The tables that rates, gaps and their intervals follow from."""
        table, weight, groups = self.table, self.sample_weight, self.groups
        known = len(groups.names)
        if groups.chances is None:
            return Counted(table, table if weight is None else self.counts(weight**2), known)
        squared = None if weight is None else weight**2
        of_groups = replace(self, groups=replace(groups, chances=groups.chances**2))
        return Counted(table, of_groups.counts(squared), known, self.counts(squared).sum(0))

    def about(self, pos_label: Any) -> Labelled:
        """The same with this label as the favourable one: the second of two."""
        if pos_label is None:
            return self
        names = [str(name) for name in self.classes.tolist()]
        if len(names) != 2 or np.ndim(pos_label) or str(pos_label) not in names:
            raise InvalidInputError(
                "`pos_label` must be one of two labels that rows have; got "
                f"{pos_label!r}, and labels {self.classes.tolist()[:8]}."
            )
        if str(pos_label) == names[1]:
            return self
        truth, predicted, classes = 1 - self.y_true, 1 - self.y_pred, self.classes[::-1]
        return replace(self, y_true=truth, y_pred=predicted, classes=classes)


def label(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    missing_groups: MissingGroups = "error",
) -> Labelled:
    """Check and encode what every classification metric takes."""
    truth = vector("y_true", y_true)
    predicted = vector("y_pred", y_pred, len(truth))
    n = len(truth)
    groups = encode_groups(sensitive_features, expected_rows=n, missing=missing_groups)
    weight = weights(sample_weight, n)
    if groups.weight is not None:
        weight = groups.weight if weight is None else weight * groups.weight
        groups = replace(groups, weight=None)
    if predicted.dtype.kind == "f" and not np.isin(predicted, truth).all():
        wrong = predicted[predicted != predicted.round()][:1]
        if len(wrong):
            raise InvalidInputError(
                "`y_pred` must hold predicted labels, or chances from 0 to 1 of the larger of two "
                f"labels; got the fraction {wrong[0]:g}: turn other scores into labels first, as "
                "in `score > 5`."
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
