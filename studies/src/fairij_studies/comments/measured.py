"""Balanced accuracy and gaps of one model's predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.fairness.rates import GAPS, accuracy, balanced_accuracy, confusion_counts, rates_by_name


def measured(
    z: NDArray[Any], y: NDArray[Any], mentioned: NDArray[Any], *, prefix: str = ""
) -> dict[str, float]:
    """Return the paper's three figures and each group's rates, from logits ``z`` (N,)."""
    table = confusion_counts(
        y.astype(np.int64),
        (z > 0).astype(np.int64),
        mentioned.astype(np.int64),
        n_groups=2,
        n_classes=2,
    )
    found = {
        "balanced_accuracy": balanced_accuracy(table),
        "accuracy": accuracy(table),
        "equalized_odds": GAPS["equalized_odds"].metric(table),
        "demographic_parity": GAPS["demographic_parity"].metric(table),
    }
    for name, rates in rates_by_name(table).items():
        found[f"{name}_others"], found[f"{name}_mentioned"] = rates
    return {prefix + name: float(value) for name, value in found.items()}
