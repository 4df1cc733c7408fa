"""Smooth gaps of rates: differentiable in the scores, and derived from the table of rates."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fairij.fairness.rates import Gap, Rate


def smooth_gap(gap: Gap, scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """The fold of `smooth_parts`: gaps are absolute, so a sum cannot cancel, unlike the paper's."""
    parts = smooth_parts(gap, scores, y, groups)
    if gap.fold == "worst_case":
        return parts.amax()
    return parts.mean() if gap.fold == "mean" else parts.sum()


def smooth_parts(gap: Gap, scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """``max_g E[score | g] - min_g E[score | g]`` of each rate and each class, ``(P,)``."""
    return torch.cat([_differences(*part) for part in _compared(gap, scores, y, groups)])


def signed_parts(gap: Gap, scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """``E[score | g] - E[score | h]`` of each rate and each class, for the largest group h, (P,).

    Unlike `smooth_parts` these have a sign, so they are smooth where they are zero.
    """
    return torch.cat([_from_largest(*part) for part in _compared(gap, scores, y, groups)])


def _compared(
    gap: Gap, scores: Tensor, y: Tensor, groups: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """What the rates are means of, ``(n, K)``, with the groups of those rows."""
    for rate in gap.rates:
        columns = columns_of(rate, scores, y)
        if rate.given == "any label":
            yield columns, groups
            continue
        for column, label in enumerate([1] if scores.ndim == 1 else range(columns.shape[1])):
            rows = (y == label) == (rate.given == "the class")
            yield columns[rows, column : column + 1], groups[rows]


def columns_of(rate: Rate, scores: Tensor, y: Tensor) -> Tensor:
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
    means, _ = _means(columns, groups)
    return means.max(0).values - means.min(0).values


def _from_largest(columns: Tensor, groups: Tensor) -> Tensor:
    """Each column's mean in each group that occurs, less that in the largest one."""
    if len(groups) == 0:
        return columns.sum(0)
    means, sizes = _means(columns, groups)
    largest = int(sizes.argmax())
    others = [code for code in range(len(sizes)) if code != largest]
    return (means[others] - means[largest]).flatten()


def _means(columns: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of each column in each group that occurs, ``(G, K)``, and the groups' sizes.

    Groups are codes ``(N,)``, or how much each row counts for each of them, ``(N, G)``.
    """
    if groups.ndim == 2:
        sizes = groups.sum(0)
        some = sizes > 0
        return (groups[:, some].T.to(columns) @ columns) / sizes[some, None].to(columns), sizes[
            some
        ]
    present, codes = torch.unique(groups, return_inverse=True)
    sums = columns.new_zeros(len(present), columns.shape[1]).index_add(0, codes, columns)
    sizes = torch.bincount(codes, minlength=len(present))
    return sums / sizes[:, None], sizes
