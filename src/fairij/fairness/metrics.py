"""Group metrics of predictions, with fairlearn's names and signatures.

For each family of gaps in `fairij.fairness.gaps` there are generated functions such as
``equal_opportunity_difference`` and ``equal_opportunity_ratio``:
``f(y_true, y_pred, *, sensitive_features, method, sample_weight, agg)``. Where the table folds a
gap in another way there is one for it too, such as ``equalized_odds_sum``, the paper's definition.

Any number of groups is allowed. Several sensitive columns mean their intersection. With more than
two classes each class is taken against the rest. Of two labels the larger one is positive, as in
scikit-learn's ``classes_[1]``. (For labels other than 0, 1 and -1, 1 fairlearn raises an error in
some functions and takes 1 in others.) `fairij.fairness.rates` says how groups without rows and
rates over no rows are treated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.fairness import counts as tables
from fairij.fairness.arrays import check_rows, numbers, vector, weights
from fairij.fairness.gaps import GAPS, Aggregate, Gap, Method
from fairij.fairness.groups import Groups, encode_groups
from fairij.fairness.rates import shown_rates

Array = NDArray[np.float64]
Metric = Callable[..., float]


@dataclass(frozen=True)
class Labelled:
    """True and predicted classes as indices into ``classes``, with groups and weights."""

    y_true: NDArray[np.int64]
    y_pred: NDArray[np.int64]
    groups: Groups
    classes: NDArray[Any]
    sample_weight: Array | None

    @property
    def counts(self) -> Array:
        return self._counts(self.sample_weight)

    @property
    def squared_counts(self) -> Array:
        """The same table, of squared weights."""
        return self._counts(None if self.sample_weight is None else self.sample_weight**2)

    def _counts(self, weight: Array | None) -> Array:
        return tables.confusion_counts(
            self.y_true,
            self.y_pred,
            self.groups.codes,
            n_groups=len(self.groups.names),
            n_classes=len(self.classes),
            sample_weight=weight,
        )


def label(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> Labelled:
    """Check and encode what every classification metric takes."""
    truth, predicted = vector("y_true", y_true), vector("y_pred", y_pred)
    check_rows("y_pred", predicted, len(truth))
    groups = encode_groups(sensitive_features, expected_rows=len(truth))
    weight = weights(sample_weight, len(truth))
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
    return Labelled(codes[: len(truth)], codes[len(truth) :], groups, classes, weight)


def accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """The share of rows that is predicted right."""
    return float(tables.accuracy(_ungrouped(y_true, y_pred, sample_weight)))


def balanced_accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """The mean over classes of the share of their rows that is predicted right."""
    return float(tables.balanced_accuracy(_ungrouped(y_true, y_pred, sample_weight)))


def group_rates(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> pd.DataFrame:
    """The size, accuracy, selection rate, true and false positive rate of each group.

    With more than two classes the rates have one column per class.
    """
    data = label(y_true, y_pred, sensitive_features=sensitive_features, sample_weight=sample_weight)
    return rates_frame(data.counts, data.groups, data.classes)


def rates_frame(table: Array, groups: Groups, classes: NDArray[Any]) -> pd.DataFrame:
    """`group_rates` of a table of counts."""
    columns: dict[str, NDArray[Any]] = {"count": groups.sizes}
    for rate, values in shown_rates(table):
        for place in range(values.shape[-1]):
            suffix = "" if values.shape[-1] == 1 else f"[{classes[place]}]"
            columns[rate.name + suffix] = values[:, place]
    return pd.DataFrame(columns, index=pd.Index(groups.names, name="group"))


def pair(y_true: Any, y_pred: Any) -> tuple[Array, Array]:
    """Check what every regression metric takes."""
    truth, predicted = numbers("y_true", y_true), numbers("y_pred", y_pred)
    check_rows("y_pred", predicted, len(truth))
    return truth, predicted


def _ungrouped(y_true: Any, y_pred: Any, sample_weight: Any) -> Array:
    one_group = np.zeros(len(vector("y_true", y_true)))
    return _table(y_true, y_pred, one_group, sample_weight)


def _table(y_true: Any, y_pred: Any, sensitive_features: Any, sample_weight: Any) -> Array:
    return label(
        y_true, y_pred, sensitive_features=sensitive_features, sample_weight=sample_weight
    ).counts


def _difference_or_ratio(gap: Gap, *, ratio: bool) -> Metric:
    """``NAME_difference`` or ``NAME_ratio`` of a family of gaps of counts."""

    def metric(
        y_true: Any,
        y_pred: Any,
        *,
        sensitive_features: Any,
        method: Method = "between_groups",
        sample_weight: Any = None,
        agg: Aggregate = "worst_case",
    ) -> float:
        table = _table(y_true, y_pred, sensitive_features, sample_weight)
        return float(gap.measured(table, method=method, agg=agg, ratio=ratio))

    form = "smallest ratio" if ratio else "largest difference"
    metric.__doc__ = (
        f"The {form} of {gap.rates_in_words} between groups.\n\n"
        "``agg`` folds several rates and classes to one number; ``method`` compares groups with\n"
        "each other or with all rows. Values equal fairlearn's where fairlearn has the metric."
    )
    return metric


def _folded(gap: Gap) -> Metric:
    """The metric of one gap, with its own fold."""

    def metric(
        y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
    ) -> float:
        if gap.is_classification:
            return float(gap.metric(_table(y_true, y_pred, sensitive_features, sample_weight)))
        truth, predicted = pair(y_true, y_pred)
        groups = encode_groups(sensitive_features, expected_rows=len(truth))
        weight = weights(sample_weight, len(truth))
        return float(gap.of_means(predicted, truth, groups, weight))

    metric.__doc__ = f"The {gap.words}: {gap.formula}."
    return metric


def _functions() -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for gap in GAPS.values():
        if gap.is_classification:
            found[f"{gap.family}_difference"] = _difference_or_ratio(gap, ratio=False)
            found[f"{gap.family}_ratio"] = _difference_or_ratio(gap, ratio=True)
    for gap in GAPS.values():
        if gap.metric_name not in found:
            found[gap.metric_name] = _folded(gap)
    for name, function in found.items():
        function.__name__ = function.__qualname__ = name
    return found


METRICS: dict[str, Metric] = _functions()
globals().update(METRICS)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Metric: ...
