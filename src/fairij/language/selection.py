"""A selection rule for rare classes, where accuracy says little."""

from __future__ import annotations

from dataclasses import dataclass

from fairij.method.selection import AccuracyBudget


@dataclass(frozen=True)
class BalancedAccuracyBudget(AccuracyBudget):
    """Take the smallest gap among candidates that lose at most ``budget`` of balanced accuracy."""

    performance = "balanced_accuracy"
