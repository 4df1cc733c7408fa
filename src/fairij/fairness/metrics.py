"""Group metrics of predictions, with fairlearn's names and signatures.

For each family of gaps in `fairij.fairness.rates` there are generated functions such as
``equal_opportunity_difference`` and ``equal_opportunity_ratio``:
``f(y_true, y_pred, *, sensitive_features, method, sample_weight, agg)``. Where the table folds a
gap in another way there is one for it too, such as ``equalized_odds_sum``, the paper's definition.

As in fairlearn, a rate over no rows (true positives in a group without positive rows) is 0 in these
functions, and a group without rows or weight takes no part. `group_rates` and audits say instead
that such a rate is not defined: it is NaN, and so are the gaps that need it.

Several sensitive columns mean their intersection. With more than two classes each class is taken
against the rest. Of two labels the larger one is positive, as in scikit-learn's ``classes_[1]``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fairij.fairness import rates
from fairij.fairness.audits import rates_frame
from fairij.fairness.groups import encode_groups, numbers, relative, vector, weights
from fairij.fairness.labelled import label
from fairij.fairness.rates import GAPS, Aggregate, Array, Gap, Method

Metric = Callable[..., float]


def accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """The share of rows that is predicted right."""
    return float(rates.accuracy(_table(y_true, y_pred, None, sample_weight)))


def balanced_accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """The mean over classes of the share of their rows that is predicted right."""
    return float(rates.balanced_accuracy(_table(y_true, y_pred, None, sample_weight)))


def group_rates(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> pd.DataFrame:
    """The size of each group, its accuracy, selection rate, true and false positive rate.

    Also its precision (of those predicted positive, the share that is) and negative predictive
    value (of those predicted negative, the share that is).

    With more than two classes the rates have one column per class.
    """
    data = label(y_true, y_pred, sensitive_features=sensitive_features, sample_weight=sample_weight)
    return rates_frame(data.counted.rate_intervals(data.classes, 0.95), data.groups)


def _table(y_true: Any, y_pred: Any, groups: Any, sample_weight: Any) -> Array:
    """The confusion counts; without groups all rows are one."""
    if groups is None:
        groups = np.zeros(len(vector("y_true", y_true)))
    return label(y_true, y_pred, sensitive_features=groups, sample_weight=sample_weight).table


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
        return float(gap.of_counts(table, method=method, agg=agg, ratio=ratio))

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
        truth = numbers("y_true", y_true)
        predicted = numbers("y_pred", y_pred, len(truth))
        groups = encode_groups(sensitive_features, expected_rows=len(truth))
        return float(
            gap.of_means(predicted, truth, groups, relative(weights(sample_weight, len(truth))))
        )

    metric.__doc__ = f"The {gap.words}: {gap.formula}."
    return metric


def _functions() -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for gap in GAPS.values():
        if gap.is_classification and gap.form == "difference":
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
