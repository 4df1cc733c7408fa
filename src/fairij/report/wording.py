"""Names and numbers as a reader would say them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

UNKNOWN, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"

LABELS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "r2": "R²",
    "demographic_parity_difference": "demographic parity gap",
    "equalized_odds_sum": "equalized odds gap (sum)",
    "equalized_odds_difference": "equalized odds gap (worst case)",
    "equal_opportunity_difference": "equal opportunity gap",
    "mean_squared_error": "mean squared error",
    "mean_prediction_difference": "gap of mean predictions",
    "mean_error_difference": "gap of mean errors",
}

# the metric of an audit that a constraint is judged by
GAP_METRIC = {
    "demographic_parity": "demographic_parity_difference",
    "equalized_odds": "equalized_odds_sum",
    "equalized_odds_balanced": "equalized_odds_sum",
    "equalized_odds_worst_case": "equalized_odds_difference",
    "equal_opportunity": "equal_opportunity_difference",
    "mean_prediction": "mean_prediction_difference",
    "mean_error": "mean_error_difference",
}


def plain(name: Any) -> str:
    """``true_positive_rate`` as "true positive rate", metrics by their usual name."""
    text = str(name)
    if text in LABELS:
        return LABELS[text]
    kind, bracket, rest = text.partition("[")  # what is in brackets is a class, left as it is
    return kind.replace("_", " ") + (f" of {rest.removesuffix(']')}" if bracket else "")


def number(value: Any, digits: int = 4) -> str:
    """A number as short as it can be read, and a dash for what is not known."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return value
    value = float(value)
    if math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if value == int(value) and abs(value) < 1e12:
        return f"{int(value):,}"
    small = 0 < abs(value) < 10.0**-digits
    text = f"{value:.2e}" if small or abs(value) >= 1e6 else f"{value:,.{digits}f}"
    return text.replace("-", MINUS)


def measured(value: float, digits: int = 4) -> str:
    """A rate or gap, always with the same number of digits."""
    if math.isnan(value):
        return UNKNOWN
    if not math.isfinite(value) or abs(value) >= 1e6:
        return number(value)
    return f"{value:,.{digits}f}".replace("-", MINUS)


def interval(low: float, high: float, digits: int = 4) -> str:
    return f"{measured(low, digits)} to {measured(high, digits)}"


def listed(names: Sequence[str], most: int = 4) -> str:
    """``a, b and c``; a count where there are too many to name."""
    if len(names) > most:
        return f"{len(names)} groups"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def shortened(value: Any, most: int = 120) -> str:
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"
