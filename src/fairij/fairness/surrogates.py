"""Smooth stand-ins for the group gaps: gaps of mean scores, which have a gradient.

A surrogate is a function ``(scores, y, groups) -> scalar``: ``scores`` are ``sigmoid(T z)`` or
``softmax(T z)`` (or ``z`` itself in regression) on the validation rows, ``groups`` integer codes.
A temperature ``T`` above 1 brings the mean score nearer to the thresholded rate.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fairij.errors import InvalidInputError
from fairij.fairness.counts import Aggregate

FOLDS: dict[Aggregate, Callable[[Tensor], Tensor]] = {
    "worst_case": torch.amax,
    "mean": torch.mean,
    "sum": torch.sum,
}


def demographic_parity(
    scores: Tensor, y: Tensor, groups: Tensor, *, agg: Aggregate = "worst_case"
) -> Tensor:
    """``max_g E[score | g] - min_g E[score | g]``."""
    return _fold(demographic_parity_parts(scores, y, groups), agg)


def demographic_parity_parts(scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """The gap of each class's mean score, one by one."""
    return _gaps(_columns(scores), groups)


def equalized_odds(scores: Tensor, y: Tensor, groups: Tensor, *, agg: Aggregate = "sum") -> Tensor:
    """The gaps given each truth, folded: the paper's surrogate is their sum.

    The definition of the metric sums absolute gaps; the paper's influence equation prints the
    absolute value of a sum, which lets the two gaps cancel. This follows the definition.
    """
    return _fold(equalized_odds_parts(scores, y, groups), agg)


def equalized_odds_parts(scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """The gaps given each truth, one by one: of true positives, then of false positives."""
    return torch.cat([_gaps_given(scores, y, groups, truth) for truth in (True, False)])


def equal_opportunity(
    scores: Tensor, y: Tensor, groups: Tensor, *, agg: Aggregate = "worst_case"
) -> Tensor:
    """``max_g E[score | y = 1, g] - min_g E[score | y = 1, g]``."""
    return _fold(_gaps_given(scores, y, groups, True), agg)


def mean_prediction(scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """Regression: ``max_g E[z | g] - min_g E[z | g]``."""
    return _gaps(scores[:, None], groups)[0]


def mean_error(scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """Regression: ``max_g E[z - y | g] - min_g E[z - y | g]``."""
    return _gaps((scores - y)[:, None], groups)[0]


def _columns(scores: Tensor) -> Tensor:
    return scores[:, None] if scores.ndim == 1 else scores


def _gaps_given(scores: Tensor, y: Tensor, groups: Tensor, truth: bool) -> Tensor:
    """The gap of each class's score among rows that are (or are not) of that class."""
    columns = _columns(scores)
    classes = [1] if scores.ndim == 1 else range(columns.shape[1])
    gaps = []
    for column, of_class in enumerate(classes):
        chosen = (y == of_class) == truth
        gaps.append(_gaps(columns[chosen, column : column + 1], groups[chosen]))
    return torch.cat(gaps)


def _gaps(columns: Tensor, groups: Tensor) -> Tensor:
    """``max_g - min_g`` of each column's group means, over the groups that occur; 0 over none."""
    if len(groups) == 0:
        return columns.sum(0)  # zeros that keep their place in the graph
    present, codes = torch.unique(groups, return_inverse=True)
    sums = columns.new_zeros(len(present), columns.shape[1]).index_add(0, codes, columns)
    means = sums / torch.bincount(codes, minlength=len(present))[:, None]
    return means.max(0).values - means.min(0).values


def _fold(gaps: Tensor, agg: Aggregate) -> Tensor:
    if agg not in FOLDS:
        raise InvalidInputError(f"`agg` must be one of {list(FOLDS)}, got {agg!r}.")
    return FOLDS[agg](gaps)
