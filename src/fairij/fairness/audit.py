"""An audit: the usual metrics of a set of predictions, each with a bootstrap interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.fairness import counts as tables
from fairij.fairness import metrics
from fairij.fairness.arrays import check_rows, vector
from fairij.fairness.groups import as_frame, encode_groups
from fairij.fairness.intervals import mean_intervals, rate_intervals

METRICS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "accuracy": tables.accuracy,
    "balanced_accuracy": tables.balanced_accuracy,
    "demographic_parity_difference": tables.demographic_parity,
    "equalized_odds_sum": lambda table: tables.equalized_odds(table, agg="sum"),
    "equalized_odds_difference": tables.equalized_odds,
    "equal_opportunity_difference": tables.equal_opportunity,
}

REGRESSION_METRICS: dict[str, Callable[..., float]] = {
    "mean_squared_error": lambda y_true, y_pred, **_: float(np.mean((y_true - y_pred) ** 2)),
    "mean_prediction_difference": metrics.mean_prediction_difference,
    "mean_error_difference": metrics.mean_error_difference,
}


@dataclass(frozen=True)
class Audit:
    """Metrics with percentile-bootstrap intervals, and each group's rates."""

    metrics: pd.DataFrame  # index: metric; columns: value, low, high
    by_group: pd.DataFrame  # index: group
    confidence: float
    group_intervals: pd.DataFrame  # index: group, rate; columns: value, low, high
    positive_label: Any = None  # of two labels the one that the rates are of

    def __getitem__(self, metric: str) -> float:
        return float(self.metrics["value"][metric])

    def to_dict(self) -> dict[str, float]:
        """The values alone, by metric."""
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
    """Audit class predictions; of two labels the larger is the positive one.

    Resampling rows with replacement moves only the table of counts, and moves it as a
    multinomial draw; so thousands of resamples cost no more than one pass over the table.
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
    rows = {
        name: (float(metric(data.counts)), *_percentiles(metric(resampled), confidence))
        for name, metric in METRICS.items()
    }
    by_group = metrics.rates_frame(data.counts, data.groups, data.classes)
    intervals = rate_intervals(by_group, data.counts, data.squared_counts, confidence)
    positive = data.classes.tolist()[1] if len(data.classes) == 2 else None
    return Audit(_frame(rows), by_group, confidence, intervals, positive)


def audit_regression(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    n_resamples: int = 200,
    confidence: float = 0.95,
    random_state: int | None = 0,
) -> Audit:
    """Audit real-valued predictions."""
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
    values = {
        "mean_prediction": predicted,
        "mean_error": predicted - truth,
        "mean_squared_error": (predicted - truth) ** 2,
    }
    by_group = pd.DataFrame(
        {"count": groups.sizes}
        | {name: metrics.group_means(column, groups) for name, column in values.items()},
        index=pd.Index(groups.names, name="group"),
    )
    intervals = mean_intervals(by_group, values, groups, confidence)
    return Audit(_frame(rows), by_group, confidence, intervals)


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

    The metric sees the groups as they were given: one column as an array, several as a DataFrame.
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
    """The interval that holds ``confidence`` of the draws in which the metric is defined."""
    defined = draws[~np.isnan(draws)]
    if len(defined) == 0:
        return np.nan, np.nan
    tail = (1 - confidence) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)


def _frame(rows: dict[str, tuple[float, float, float]]) -> pd.DataFrame:
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"])
    frame.index.name = "metric"
    return frame
