"""Balanced accuracy and gaps of one model's predictions, as a record."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairij.fairness import counts


def measured(
    z: NDArray[Any], y: NDArray[Any], mentioned: NDArray[Any], *, prefix: str = ""
) -> dict[str, float]:
    """Of logits ``z`` (N,): the paper's three figures, and each group's rates."""
    table = counts.confusion_counts(
        y.astype(np.int64),
        (z > 0).astype(np.int64),
        mentioned.astype(np.int64),
        n_groups=2,
        n_classes=2,
    )
    found = {
        "balanced_accuracy": counts.balanced_accuracy(table),
        "accuracy": counts.accuracy(table),
        "equalized_odds": counts.equalized_odds(table, agg="sum"),
        "demographic_parity": counts.demographic_parity(table),
    }
    for name, rates in (
        ("selection_rate", counts.selection_rates(table)),
        ("true_positive_rate", counts.true_positive_rates(table)),
        ("false_positive_rate", counts.false_positive_rates(table)),
    ):
        found[f"{name}_others"], found[f"{name}_mentioned"] = rates[0, 1], rates[1, 1]
    return {prefix + name: float(value) for name, value in found.items()}
