"""Group metrics of predictions, with fairlearn's names and signatures.

``f(y_true, y_pred, *, sensitive_features, sample_weight=None)``. Any number of groups; several
sensitive columns mean their intersection; with more than two classes each class is taken against
the rest. Of two labels the larger is the positive one, as in scikit-learn's ``classes_[1]`` (of
labels other than 0, 1 and -1, 1 fairlearn refuses some and takes 1 in others).
All but the regression forms are functions of one table (`fairij.fairness.counts`), which also says
what becomes of empty groups and of rates over no rows: what fairlearn makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.fairness import counts as tables
from fairij.fairness.arrays import check_rows, numbers, vector, weights
from fairij.fairness.counts import Aggregate, Method
from fairij.fairness.groups import Groups, encode_groups


@dataclass(frozen=True)
class Labelled:
    """True and predicted classes as indices into ``classes``, with groups and weights."""

    y_true: NDArray[np.int64]
    y_pred: NDArray[np.int64]
    groups: Groups
    classes: NDArray[Any]
    sample_weight: NDArray[np.float64] | None

    @property
    def counts(self) -> NDArray[np.float64]:
        return self._counts(self.sample_weight)

    @property
    def squared_counts(self) -> NDArray[np.float64]:
        """The same table of squared weights."""
        return self._counts(None if self.sample_weight is None else self.sample_weight**2)

    def _counts(self, weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
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


def demographic_parity_difference(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    method: Method = "between_groups",
    sample_weight: Any = None,
    agg: Aggregate = "worst_case",
) -> float:
    """``max_g P(yhat = 1 | g) - min_g P(yhat = 1 | g)``; ``agg`` folds more than two classes."""
    table = _table(y_true, y_pred, sensitive_features, sample_weight)
    return float(tables.demographic_parity(table, method=method, agg=agg))


def demographic_parity_ratio(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    method: Method = "between_groups",
    sample_weight: Any = None,
    agg: Aggregate = "worst_case",
) -> float:
    """``min_g P(yhat = 1 | g) / max_g P(yhat = 1 | g)`` (the four-fifths rule asks for 0.8)."""
    table = _table(y_true, y_pred, sensitive_features, sample_weight)
    return float(tables.demographic_parity(table, method=method, agg=agg, ratio=True))


def equalized_odds_difference(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    method: Method = "between_groups",
    sample_weight: Any = None,
    agg: Aggregate = "worst_case",
) -> float:
    """The gaps of true and false positive rates: the worst, their mean, or their sum."""
    table = _table(y_true, y_pred, sensitive_features, sample_weight)
    return float(tables.equalized_odds(table, method=method, agg=agg))


def equalized_odds_sum(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> float:
    """``sum_y |P(yhat = 1 | y, g) - P(yhat = 1 | y, g')|``: equalized odds as the paper has it."""
    table = _table(y_true, y_pred, sensitive_features, sample_weight)
    return float(tables.equalized_odds(table, agg="sum"))


def equalized_odds_ratio(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    method: Method = "between_groups",
    sample_weight: Any = None,
    agg: Aggregate = "worst_case",
) -> float:
    """The ratios of true and false positive rates: the worst, or their mean."""
    table = _table(y_true, y_pred, sensitive_features, sample_weight)
    return float(tables.equalized_odds(table, method=method, agg=agg, ratio=True))


def equal_opportunity_difference(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    method: Method = "between_groups",
    sample_weight: Any = None,
    agg: Aggregate = "worst_case",
) -> float:
    """``max_g P(yhat = 1 | y = 1, g) - min_g P(yhat = 1 | y = 1, g)``."""
    table = _table(y_true, y_pred, sensitive_features, sample_weight)
    return float(tables.equal_opportunity(table, method=method, agg=agg))


def equal_opportunity_ratio(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    method: Method = "between_groups",
    sample_weight: Any = None,
    agg: Aggregate = "worst_case",
) -> float:
    """``min_g P(yhat = 1 | y = 1, g) / max_g P(yhat = 1 | y = 1, g)``."""
    table = _table(y_true, y_pred, sensitive_features, sample_weight)
    return float(tables.equal_opportunity(table, method=method, agg=agg, ratio=True))


def accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    return float(tables.accuracy(_ungrouped(y_true, y_pred, sample_weight)))


def balanced_accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """The mean over classes of the share that is predicted right."""
    return float(tables.balanced_accuracy(_ungrouped(y_true, y_pred, sample_weight)))


def group_rates(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> pd.DataFrame:
    """Each group's size, accuracy, selection rate, true and false positive rate.

    With more than two classes the rates have one column per class.
    """
    data = label(y_true, y_pred, sensitive_features=sensitive_features, sample_weight=sample_weight)
    return rates_frame(data.counts, data.groups, data.classes)


def rates_frame(table: NDArray[np.float64], groups: Groups, classes: NDArray[Any]) -> pd.DataFrame:
    """`group_rates` of a table of counts."""
    columns: dict[str, NDArray[Any]] = {
        "count": groups.sizes,
        "accuracy": tables.accuracy_rates(table),
    }
    for name, rates in (
        ("selection_rate", tables.selection_rates(table)),
        ("true_positive_rate", tables.true_positive_rates(table)),
        ("false_positive_rate", tables.false_positive_rates(table)),
    ):
        shown = tables.of_interest(rates)
        for column in range(shown.shape[-1]):
            suffix = "" if shown.shape[-1] == 1 else f"[{classes[column]}]"
            columns[name + suffix] = shown[:, column]
    return pd.DataFrame(columns, index=pd.Index(groups.names, name="group"))


def mean_prediction_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> float:
    """Regression: ``max_g E[yhat | g] - min_g E[yhat | g]``."""
    _, predicted = pair(y_true, y_pred)
    return _mean_gap(predicted, sensitive_features, sample_weight)


def mean_error_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> float:
    """Regression: ``max_g E[yhat - y | g] - min_g E[yhat - y | g]``."""
    truth, predicted = pair(y_true, y_pred)
    return _mean_gap(predicted - truth, sensitive_features, sample_weight)


def pair(y_true: Any, y_pred: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Check what every regression metric takes."""
    truth, predicted = numbers("y_true", y_true), numbers("y_pred", y_pred)
    check_rows("y_pred", predicted, len(truth))
    return truth, predicted


def group_means(
    values: NDArray[np.float64], groups: Groups, weight: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """The mean of ``values (..., N)`` in each group, ``(..., G)``; NaN where a group is empty."""
    member = np.zeros((len(groups), len(groups.names)))
    member[np.arange(len(groups)), groups.codes] = 1.0 if weight is None else weight
    return tables.ratio_of(values @ member, member.sum(0), empty=np.nan)


def _mean_gap(values: NDArray[np.float64], sensitive_features: Any, sample_weight: Any) -> float:
    groups = encode_groups(sensitive_features, expected_rows=len(values))
    means = group_means(values, groups, weights(sample_weight, len(values)))
    return float(np.nanmax(means) - np.nanmin(means))


def _ungrouped(y_true: Any, y_pred: Any, sample_weight: Any) -> NDArray[np.float64]:
    one_group = np.zeros(len(vector("y_true", y_true)))
    return _table(y_true, y_pred, one_group, sample_weight)


def _table(
    y_true: Any, y_pred: Any, sensitive_features: Any, sample_weight: Any
) -> NDArray[np.float64]:
    return label(
        y_true, y_pred, sensitive_features=sensitive_features, sample_weight=sample_weight
    ).counts
