"""An audit: the usual metrics of a set of predictions, each with a bootstrap interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.fairness import counts as tables
from fairij.fairness import metrics
from fairij.fairness.arrays import check_rows, vector
from fairij.fairness.gaps import GAPS, gaps_by_metric, group_means
from fairij.fairness.groups import as_frame, encode_groups
from fairij.fairness.intervals import mean_intervals, rate_intervals
from fairij.fairness.rates import RATES

COLUMNS = ["value", "low", "high"]

REGRESSION_METRICS: dict[str, metrics.Metric] = {
    "mean_squared_error": lambda y_true, y_pred, **_: float(np.mean((y_true - y_pred) ** 2)),
} | {
    gap.metric_name: metrics.METRICS[gap.metric_name]
    for gap in GAPS.values()
    if not gap.is_classification
}
NOT_SHOWN = {gap.metric_name for gap in GAPS.values()} - {
    gap.metric_name for gap in GAPS.values() if gap.audited
}


def _no_metrics() -> pd.DataFrame:
    return _frame({})


@dataclass(frozen=True)
class Audit:
    """Metrics with percentile-bootstrap intervals, and the rates of each group.

    ``audit[name]`` is the value of a metric, also of one in ``more``.
    """

    metrics: pd.DataFrame  # index: metric; columns: value, low, high
    by_group: pd.DataFrame  # index: group
    confidence: float
    group_intervals: pd.DataFrame  # index: group, rate; columns: value, low, high
    positive_label: Any = None  # of two labels, the one whose rates are given
    more: pd.DataFrame = field(default_factory=_no_metrics)  # as `metrics`, of the other gaps

    def __getitem__(self, metric: str) -> float:
        return self.interval(metric)[0]

    def __contains__(self, metric: object) -> bool:
        return metric in self.metrics.index or metric in self.more.index

    def interval(self, metric: str) -> tuple[float, float, float]:
        """``(value, low, high)`` of a metric."""
        frame = self.metrics if metric in self.metrics.index else self.more
        value, low, high = (float(frame[column][metric]) for column in COLUMNS)
        return value, low, high

    def showing(self, metric: str) -> Audit:
        """The same audit with a metric of ``more`` among ``metrics``; itself if there is none."""
        if metric not in self.more.index:
            return self
        together = pd.concat([self.metrics, self.more.loc[[metric]]])
        return replace(self, metrics=together, more=self.more.drop(metric))

    def to_dict(self) -> dict[str, float]:
        """The values of ``metrics`` alone, by name."""
        return {str(name): float(value) for name, value in self.metrics["value"].items()}


def audit(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    random_state: int | None = 0,
) -> Audit:
    """Audit class predictions. Of two labels the larger one is positive.

    Rows drawn with replacement change only the table of counts, and that is a multinomial draw.
    So thousands of resamples cost little more than one pass over the rows.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (N,)
        True and predicted labels.
    sensitive_features : array-like of shape (N,) or (N, columns)
        The group of each row. Several columns mean their intersection.
    sample_weight : array-like of shape (N,), default=None
        The weight of each row.
    n_resamples : int, default=1000
        How often rows are drawn for the intervals.
    confidence : float, default=0.95
        The confidence of the intervals.
    random_state : int or None, default=0
        The seed of the draws.
    """
    _check_settings(n_resamples, confidence)
    data = metrics.label(
        y_true, y_pred, sensitive_features=sensitive_features, sample_weight=sample_weight
    )
    rng = np.random.default_rng(random_state)
    if data.sample_weight is None:
        resampled = _multinomial(data.counts, n_resamples, rng)
    else:
        resampled = _weighted(data, n_resamples, rng)
    values, draws = _measures(data.counts), _measures(resampled)
    rows = {
        name: (float(value), *_percentiles(draws[name], confidence))
        for name, value in values.items()
    }
    by_group = metrics.rates_frame(data.counts, data.groups, data.classes)
    names = list(by_group.columns.drop("count"))
    intervals = rate_intervals(names, by_group.index, data.counts, data.squared_counts, confidence)
    positive = data.classes.tolist()[1] if len(data.classes) == 2 else None
    shown, more = _split(rows)
    return Audit(shown, by_group, confidence, intervals, positive, more)


def audit_regression(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    n_resamples: int = 200,
    confidence: float = 0.95,
    random_state: int | None = 0,
) -> Audit:
    """Audit predictions of numbers. Parameters are those of `audit`."""
    truth, predicted = metrics.pair(y_true, y_pred)
    groups = encode_groups(sensitive_features, expected_rows=len(truth))
    rows = {
        name: bootstrap(
            metric,
            truth,
            predicted,
            sensitive_features=groups.codes,
            n_resamples=n_resamples,
            confidence=confidence,
            random_state=random_state,
        )
        for name, metric in REGRESSION_METRICS.items()
    }
    means = [rate for rate in RATES.values() if rate.shown and not rate.is_classification]
    values = {rate.name: rate.values(predicted, truth) for rate in means}
    values["mean_squared_error"] = (predicted - truth) ** 2
    by_group = pd.DataFrame(
        {"count": groups.sizes}
        | {name: group_means(column, groups) for name, column in values.items()},
        index=pd.Index(groups.names, name="group"),
    )
    intervals = mean_intervals(by_group, values, groups, confidence)
    shown, more = _split(rows)
    return Audit(shown, by_group, confidence, intervals, more=more)


def bootstrap(
    metric: Callable[..., float],
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    random_state: int | None = 0,
) -> tuple[float, float, float]:
    """``(value, low, high)`` of any metric with fairlearn's signature, by resampling rows.

    The metric gets the groups as they were given: one column as an array, several as a DataFrame.
    """
    _check_settings(n_resamples, confidence)
    truth, predicted = vector("y_true", y_true), vector("y_pred", y_pred)
    check_rows("y_pred", predicted, len(truth))
    groups = as_frame(sensitive_features, expected_rows=len(truth)).reset_index(drop=True)
    one = groups.iloc[:, 0].to_numpy() if groups.shape[1] == 1 else None

    def of_rows(rows: NDArray[np.int64]) -> float:
        seen = groups.iloc[rows].reset_index(drop=True) if one is None else one[rows]
        return float(metric(truth[rows], predicted[rows], sensitive_features=seen))

    n = len(truth)
    rng = np.random.default_rng(random_state)
    draws = np.array([of_rows(rng.integers(n, size=n)) for _ in range(n_resamples)])
    return (of_rows(np.arange(n)), *_percentiles(draws, confidence))


def _measures(counts: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Every metric of a table of counts, one number for each leading entry."""
    performance = {
        "accuracy": tables.accuracy(counts),
        "balanced_accuracy": tables.balanced_accuracy(counts),
    }
    return performance | gaps_by_metric(counts)


def _multinomial(
    counts: NDArray[np.float64], n_resamples: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    total = counts.sum()
    draws = rng.multinomial(int(total), (counts / total).ravel(), size=n_resamples)
    return draws.reshape(n_resamples, *counts.shape).astype(np.float64)


def _weighted(
    data: metrics.Labelled, n_resamples: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    assert data.sample_weight is not None
    n = len(data.y_true)
    resampled = []
    for _ in range(n_resamples):
        times = np.bincount(rng.integers(n, size=n), minlength=n)
        resampled.append(
            tables.confusion_counts(
                data.y_true,
                data.y_pred,
                data.groups.codes,
                n_groups=len(data.groups.names),
                n_classes=len(data.classes),
                sample_weight=data.sample_weight * times,
            )
        )
    return np.stack(resampled)


def _check_settings(n_resamples: int, confidence: float) -> None:
    if n_resamples < 1:
        raise InvalidInputError(f"`n_resamples` must be at least 1, got {n_resamples}.")
    if not 0 < confidence < 1:
        raise InvalidInputError(f"`confidence` must lie between 0 and 1, got {confidence}.")


def _percentiles(draws: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    """The interval that holds a share ``confidence`` of the draws with a defined metric."""
    defined = draws[~np.isnan(draws)]
    if len(defined) == 0:
        return np.nan, np.nan
    tail = (1 - confidence) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)


def _split(
    rows: dict[str, tuple[float, float, float]],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The metrics that audits show, and the others."""
    frame = _frame(rows)
    hidden = frame.index.isin(list(NOT_SHOWN))
    return frame[~hidden], frame[hidden]


def _frame(rows: dict[str, tuple[float, float, float]]) -> pd.DataFrame:
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=COLUMNS)
    frame.index.name = "metric"
    return frame
