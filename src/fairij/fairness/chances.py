"""Gaps by chances: how much each row counts as a group with a label, in place of what was seen.

Few rows of a group with their labels are noisy, and a model of thousands of leaves fits the noise.
Chances, ``P(group, label | x)``, count every row a little for every group. Observed rows are the
special case of weights that are one for the row's own group and label, else zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairij.fairness.rates import Gap, Rate
from fairij.fairness.smooth import columns_of, on_scale, weights_of


@dataclass(frozen=True)
class Chances:
    """Weights of rows by group and label; and the same as observed, for hard gaps."""

    weights: Tensor  # (N, G, C)
    observed: Tensor  # (N, G, C)
    believed: float = 0.0  # the part of chances in hard gaps; the rest is as observed


def observed_weights(y: Tensor, codes: Tensor, n_groups: int, n_classes: int) -> Tensor:
    """One for each row's own group and label, else zero, ``(N, G, C)``."""
    weights = torch.zeros(len(y), n_groups, n_classes, dtype=torch.float64, device=y.device)
    weights[torch.arange(len(y)), codes, y.long()] = 1
    return weights


def expected_parts(gap: Gap, scores: Tensor, weights: Tensor, observed: Tensor) -> Tensor:
    """`signed_parts` of rows that count by weights ``(N, G, C)``, ``(P,)``.

    Which groups occur, and which is the largest, is as observed.
    """
    parts = []
    for rate in gap.rates:
        for labels, column in _strata(rate, scores, weights.shape[2]):
            sizes = observed[:, :, labels].sum((0, 2))
            present = sizes.nonzero()[:, 0]
            if len(present) == 0:
                parts.append(scores.sum().reshape(1) * 0)
                continue
            means = _means(rate, scores, weights, labels, column)[present]
            means = on_scale(gap.form, means)
            largest = int(sizes[present].argmax())
            others = [place for place in range(len(present)) if place != largest]
            parts.append((means[others] - means[largest]).flatten())
    return torch.cat(parts)


def _strata(rate: Rate, scores: Tensor, n_classes: int) -> list[tuple[list[int], int | None]]:
    """The labels that each part is taken over, and its column of the rate; None for all."""
    labels = [list(some) for some in rate.labels(n_classes)]
    if rate.given == "any label" or rate.of_predicted:
        return [(labels[0], None)]
    return [(some, 0 if scores.ndim == 1 else place) for place, some in enumerate(labels)]


def _means(
    rate: Rate, scores: Tensor, weights: Tensor, labels: list[int], column: int | None
) -> Tensor:
    """The rate's mean in each group, ``(G, K)``."""
    total = torch.zeros((), dtype=scores.dtype, device=scores.device)
    own = weights_of(rate, scores)
    for label in labels:
        truth = torch.full((len(scores),), label, device=scores.device)
        columns = columns_of(rate, scores, truth)
        some = columns if column is None else columns[:, column : column + 1]
        total = total + weights[:, :, label].T @ (some if own is None else some * own)
    if own is None:
        sizes = weights[:, :, labels].sum((0, 2))[:, None]
    else:
        sizes = weights[:, :, labels].sum(2).T @ own
    return total / sizes.clamp_min(torch.finfo(sizes.dtype).tiny)
