"""Calibration curves of groups: how many rows have the label at each level of the score."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fairij.fairness.intervals import wilson
from fairij.fairness.rates import Array, ratio_of
from fairij.fairness.score_audits import Scores

BINS = 10  # of scores, with about as many rows each; fewer where scores are tied
COLUMNS = ["group", "score", "share", "low", "high", "rows"]


def calibration_curves(scored: Scores, confidence: float) -> pd.DataFrame:
    """One line for each group and bin: mean score, share of positive rows, its interval, rows."""
    edges = np.unique(np.quantile(scored.chance, np.linspace(0, 1, BINS + 1)[1:-1]))
    place = np.searchsorted(edges, scored.chance, side="left")
    member = scored.groups.membership(scored.weight)
    hit = (scored.truth == 1).astype(np.float64)

    def total(values: Array) -> Array:
        return np.bincount(place, values, len(edges) + 1).astype(np.float64)

    curves, names = [], []
    for code, name in enumerate(scored.groups.names):
        weight = member[:, code]
        rows = total(weight)
        some = rows > 0
        score, share = (
            ratio_of(total(weight * values), rows, empty=0) for values in (scored.chance, hit)
        )
        worth = ratio_of(rows**2, total(weight**2), empty=0)  # rows of equal weight
        low, high = wilson(share, worth, confidence)
        curves.append(np.stack([score, share, low, high, worth], -1)[some])
        names += [name] * int(some.sum())
    found = pd.DataFrame(np.concatenate(curves), columns=COLUMNS[1:])
    found.insert(0, "group", names)
    return found
