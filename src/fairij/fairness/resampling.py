"""Intervals of a metric of the user's own, by drawing rows with replacement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.fairness.counted import Interval
from fairij.fairness.groups import as_frame, vector
from fairij.fairness.rates import Array

MOST_RESAMPLES = 10**6


def bootstrap(
    metric: Callable[..., float],
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    random_state: int | None = 0,
) -> Interval:
    """``(value, low, high)`` of any metric with fairlearn's signature, by resampling rows.

    The metric gets the groups as they were given: one column as an array, several as a DataFrame.
    """
    rng = check_settings(n_resamples, confidence, random_state)
    truth = vector("y_true", y_true)
    predicted, n = vector("y_pred", y_pred, len(truth)), len(truth)
    groups = as_frame(sensitive_features, expected_rows=n).reset_index(drop=True)
    one = groups.iloc[:, 0].to_numpy() if groups.shape[1] == 1 else None

    def of_rows(rows: NDArray[np.int64]) -> float:
        seen = groups.iloc[rows].reset_index(drop=True) if one is None else one[rows]
        return float(metric(truth[rows], predicted[rows], sensitive_features=seen))

    draws = np.array([of_rows(rng.integers(n, size=n)) for _ in range(n_resamples)])
    return (of_rows(np.arange(n)), *_percentiles(draws, confidence))


def check_settings(n_resamples: int, confidence: float, random_state: Any) -> np.random.Generator:
    """Check them; return the generator of the seed."""
    whole = isinstance(n_resamples, (int, np.integer)) and not isinstance(n_resamples, bool)
    if not whole or not 1 <= n_resamples <= MOST_RESAMPLES:
        raise InvalidInputError(
            f"`n_resamples` must be a whole number, at least 1 and at most {MOST_RESAMPLES}, got "
            f"{n_resamples!r}."
        )
    number = isinstance(confidence, (int, float, np.integer, np.floating))
    if not number or not 0 < confidence < 1:
        raise InvalidInputError(f"`confidence` must lie between 0 and 1, got {confidence!r}.")
    return _generator(random_state)


def _generator(random_state: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"`random_state` must be a whole number of at least 0, None or a generator of numpy, "
            f"got {random_state!r} ({error})."
        ) from None


def _percentiles(draws: Array, confidence: float) -> tuple[float, float]:
    """The interval that holds a share ``confidence`` of the draws with a defined metric."""
    defined = draws[~np.isnan(draws)]
    if len(defined) == 0:
        return np.nan, np.nan
    tail = (1 - confidence) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)
