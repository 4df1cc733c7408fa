"""Smooth forms of the gaps: gaps of mean scores, which have a gradient.

``scores`` are ``sigmoid(T z)``, ``(N,)``, or ``softmax(T z)``, ``(N, C)``; in regression ``z``
itself. ``groups`` are integer codes, ``(N,)``. A temperature ``T`` above 1 brings the mean score
closer to the thresholded rate.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fairij.fairness.gaps import Aggregate, Gap
from fairij.fairness.rates import Rate

FOLDS: dict[Aggregate, Callable[[Tensor], Tensor]] = {
    "worst_case": torch.amax,
    "mean": torch.mean,
    "sum": torch.sum,
}


def smooth_gap(gap: Gap, scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """The gap of mean scores as one number: the fold of `smooth_parts`.

    The sum of equalized odds adds absolute gaps, as the metric does. The paper's equation for the
    influence prints the absolute value of a sum, in which two gaps can cancel.
    """
    return FOLDS[gap.fold](smooth_parts(gap, scores, y, groups))


def smooth_parts(gap: Gap, scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """``max_g E[score | g] - min_g E[score | g]`` of each rate and each class, ``(P,)``."""
    parts = [part for rate in gap.rates for part in _parts(rate, scores, y, groups)]
    return torch.cat(parts)


def _parts(rate: Rate, scores: Tensor, y: Tensor, groups: Tensor) -> list[Tensor]:
    """The differences of one rate between groups, each class over its own rows."""
    columns = _columns(rate, scores, y)
    if rate.given == "any label":
        return [_differences(columns, groups)]
    found = []
    for column, label in enumerate([1] if scores.ndim == 1 else range(columns.shape[1])):
        rows = (y == label) == (rate.given == "the class")
        found.append(_differences(columns[rows, column : column + 1], groups[rows]))
    return found


def _columns(rate: Rate, scores: Tensor, y: Tensor) -> Tensor:
    """What the rate is the mean of, ``(N, K)``: smooth in the scores."""
    if rate.counted == "error":
        return (scores - y)[:, None]
    if rate.counted == "the true class":
        if scores.ndim == 1:
            return torch.where(y == 1, scores, 1 - scores)[:, None]
        return scores.gather(1, y.long()[:, None])
    columns = scores[:, None] if scores.ndim == 1 else scores
    return 1 - columns if rate.counted == "another class" else columns


def _differences(columns: Tensor, groups: Tensor) -> Tensor:
    """``max_g - min_g`` of each column's mean, over the groups that occur; 0 without rows."""
    if len(groups) == 0:
        return columns.sum(0)  # zeros that stay in the graph
    present, codes = torch.unique(groups, return_inverse=True)
    sums = columns.new_zeros(len(present), columns.shape[1]).index_add(0, codes, columns)
    means = sums / torch.bincount(codes, minlength=len(present))[:, None]
    return means.max(0).values - means.min(0).values
