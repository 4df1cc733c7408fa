"""Smooth gaps of rates: differentiable in the scores, and derived from the table of rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from fairij.fairness.rates import Form, Gap, Rate

FLOOR = 1e-3  # added to a rate before its logarithm is taken, as it may be 0


def smooth_gap(gap: Gap, scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """The fold of `smooth_parts`: gaps are absolute, so a sum cannot cancel, unlike the paper's."""
    parts = smooth_parts(gap, scores, y, groups)
    if gap.fold == "worst_case":
        return parts.amax()
    return parts.mean() if gap.fold == "mean" else parts.sum()


def smooth_parts(gap: Gap, scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """How far the rates of the groups are apart, for each rate and each class, ``(P,)``.

    A difference is ``max_g E[score | g] - min_g E[score | g]``.
    """
    compare = FORMS[gap.form]
    return torch.cat([_apart(compare, *part) for part in _compared(gap, scores, y, groups)])


def signed_parts(gap: Gap, scores: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """``E[score | g] - E[score | h]`` of each rate and each class, for the largest group h, (P,).

    Unlike `smooth_parts` these have a sign, so they are smooth where they are zero. Of ratios, the
    logarithms are compared.
    """
    parts = _compared(gap, scores, y, groups)
    return torch.cat([_from_largest(gap.form, *part) for part in parts])


FORMS: dict[Form, Callable[[Tensor], Tensor]] = {  # of rates (G, K), for each class
    "difference": lambda rates: rates.max(0).values - rates.min(0).values,
    "ratio": lambda rates: 1 - rates.min(0).values / rates.max(0).values.clamp_min(1e-12),
    "highest": lambda rates: rates.max(0).values,
}


def on_scale(form: Form, rates: Tensor) -> Tensor:
    """Rates on the scale on which signed differences of this form are taken."""
    return torch.log(rates + FLOOR) if form == "ratio" else rates


def _compared(
    gap: Gap, scores: Tensor, y: Tensor, groups: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """What the rates are means of, ``(n, K)``, the groups of those rows, and how each counts."""
    for rate in gap.rates:
        columns, weights = columns_of(rate, scores, y), weights_of(rate, scores)
        if rate.given == "any label" or rate.of_predicted:
            yield columns, groups, weights
            continue
        for column, label in enumerate([1] if scores.ndim == 1 else range(columns.shape[1])):
            rows = (y == label) == (rate.given == "the class")
            yield columns[rows, column : column + 1], groups[rows], None


def columns_of(rate: Rate, scores: Tensor, y: Tensor) -> Tensor:
    """What the rate is the mean of, ``(N, K)``: smooth in the scores, or with such weights."""
    if rate.counted == "error":
        return (scores - y)[:, None]
    if rate.counted in ("the true class", "a wrong class"):
        if scores.ndim == 1:
            right = torch.where(y == 1, scores, 1 - scores)[:, None]
        else:
            right = scores.gather(1, y.long()[:, None])
        return right if rate.counted == "the true class" else 1 - right
    columns = scores[:, None] if scores.ndim == 1 else scores
    if rate.of_predicted:  # then the labels are counted
        classes = [1] if scores.ndim == 1 else list(range(scores.shape[1]))
        columns = torch.stack([(y == label).to(scores) for label in classes], 1)
    return 1 - columns if rate.counted == "another class" else columns


def weights_of(rate: Rate, scores: Tensor) -> Tensor | None:
    """How much each row counts, ``(N, K)``: as it is predicted; None if rows count alike."""
    if not rate.of_predicted:
        return None
    columns = scores[:, None] if scores.ndim == 1 else scores
    return columns if rate.given == "predicted as the class" else 1 - columns


def _apart(
    compare: Callable[[Tensor], Tensor], columns: Tensor, groups: Tensor, weights: Tensor | None
) -> Tensor:
    """The comparison of each column's mean in the groups that occur; 0 without rows."""
    if len(groups) == 0:
        return columns.sum(0)  # zeros that stay in the graph
    means, _ = _means(columns, groups, weights)
    return compare(means)


def _from_largest(form: Form, columns: Tensor, groups: Tensor, weights: Tensor | None) -> Tensor:
    """Each column's mean in each group that occurs, less that in the largest one."""
    if len(groups) == 0:
        return columns.sum(0)
    means, sizes = _means(columns, groups, weights)
    means = on_scale(form, means)
    largest = int(sizes.argmax())
    others = [code for code in range(len(sizes)) if code != largest]
    return (means[others] - means[largest]).flatten()


def _means(columns: Tensor, groups: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean of each column in each group that occurs, ``(G, K)``, and the groups' sizes.

    Groups are codes ``(N,)``, or how much each row counts for each of them, ``(N, G)``.
    """
    if groups.ndim == 2:
        sizes = groups.sum(0)
        member, sizes = groups[:, sizes > 0].to(columns), sizes[sizes > 0]
        if weights is None:
            return (member.T @ columns) / sizes[:, None].to(columns), sizes
        least = torch.finfo(weights.dtype).tiny
        return member.T @ (columns * weights) / (member.T @ weights).clamp_min(least), sizes
    present, codes = torch.unique(groups, return_inverse=True)
    sizes = torch.bincount(codes, minlength=len(present))

    def sums(values: Tensor) -> Tensor:
        return values.new_zeros(len(present), values.shape[1]).index_add(0, codes, values)

    if weights is None:
        return sums(columns) / sizes[:, None], sizes
    least = torch.finfo(weights.dtype).tiny
    return sums(columns * weights) / sums(weights).clamp_min(least), sizes
