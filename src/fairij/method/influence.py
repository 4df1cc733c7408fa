"""The influence of every training point on a quantity ``M`` of the validation set.

``I_n = dM/dw_n = -grad M^T (H + damping I)^-1 g_n / N`` (equation 5, with the 1/N that the weighted
loss carries). One sign convention everywhere: **positive means that dropping the point lowers M.**
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from fairij.data.row_vectors import blocks, by_blocks
from fairij.errors import InvalidInputError
from fairij.method.objective import Objective
from fairij.solvers.base import Inverse, Solution

RIDGE = 1e-6  # of the mean of the diagonal, as gaps may coincide
MOVABLE = 1e-2  # of the eigenvalue of the direction that is easiest to move


@dataclass(frozen=True)
class Influence:
    """Scores of all training points, and ``r = (H + damping I)^-1 grad M`` behind them."""

    scores: Tensor  # (N,)
    solution: Solution

    @property
    def direction(self) -> Tensor:
        return self.solution.x


def influence(objective: Objective, inverse: Inverse, gradient: Tensor) -> Influence:
    """Algorithm 2's scores: one solve, then one Jacobian-vector product over the training set."""
    solution = inverse.solve(gradient)
    return Influence(scores_along(objective, solution.x), solution)


def scores_along(objective: Objective, direction: Tensor) -> Tensor:
    """``-l'_n J_n r`` of every training point, with its weight."""
    moved = objective.model.jvp(direction)

    def score(rows: slice) -> Tensor:
        return -inner(objective.slope_of(rows), moved[rows])

    if moved.ndim > 1:
        return by_blocks(score, moved)
    for some in blocks(len(moved)):  # overwrites J r, which saves one vector of N
        moved[some] = score(some)
    return moved


def most_harmful(
    scores: Tensor, also: Tensor | None = None, *, most: int | None = None
) -> tuple[Tensor, int]:
    """The rows of positive score, highest first (ties in row order), and their number.

    Rows are read in blocks. If only ``most`` of them are wanted, little more than twice as many
    are ever held. ``also``: further scores that must be positive too.
    """
    number, floor = 0, 0.0
    rows, values = scores.new_empty(0, dtype=torch.long), scores[:0]
    for some in blocks(len(scores)):
        able = scores[some] > 0
        if also is not None:
            able &= also[some] > 0
        number += int(able.sum())
        able &= scores[some] > floor
        rows = torch.cat([rows, torch.nonzero(able)[:, 0] + some.start])
        values = torch.cat([values, scores[some][able]])
        if most and len(rows) > 2 * most:
            rows, values = _highest(rows, values, most)
            floor = float(values[-1])
    return _highest(rows, values, most)[0], number


def _highest(rows: Tensor, values: Tensor, most: int | None) -> tuple[Tensor, Tensor]:
    if most and len(values) > 4 * most:  # so that only a few are sorted
        able = values >= values.topk(most).values[-1]
        rows, values = rows[able], values[able]
    order = torch.argsort(values, descending=True, stable=True)[:most]
    return rows[order], values[order]


def balanced_influence(
    objective: Objective, inverse: Inverse, gradients: Tensor, gaps: Tensor
) -> tuple[Influence, Tensor]:
    """Influence on ``sum_i w_i gap_i``, weighted so that one step closes all gaps together.

    To first order a parameter change ``d`` moves the gaps by ``G^T d``. The smallest one, measured
    by ``d^T (H + damping I) d``, that closes all gaps is ``-(H + damping I)^-1 G w`` with
    ``(G^T (H + damping I)^-1 G) w = gaps`` (for more than two gaps see `weights_to_close`). The
    plain sum, ``w = 1``, mostly closes the gap that is easiest to move. ``gradients`` is
    ``(D, P)``, ``gaps`` ``(P,)``. Returns the influence and the weights, with mean size one.
    """
    solution = inverse.solve(gradients)
    weights = weights_to_close(gradients, solution.x, gaps)
    weights = weights * len(weights) / weights.abs().sum().clamp_min(1e-300)
    direction = solution.x @ weights.to(solution.x)
    together = Solution(direction, solution.steps, lambda: solution.residual.max()[None])
    return Influence(scores_along(objective, direction), together), weights


def weights_to_close(gradients: Tensor, solved: Tensor, gaps: Tensor) -> Tensor:
    """`weights_to_move`; with more than two gaps, only along directions that the model can move.

    Gaps of many groups may outnumber the parameters, and then cannot all be closed. Each gap is
    measured in steps that move it alone: a few sentences are moved more easily than whole groups,
    and the gap between groups must not be given up for that.
    """
    if len(gaps) <= 2:
        return weights_to_move(gradients, solved, gaps)
    gram = gram_of(gradients, solved)
    unit = gram.diagonal().sqrt()
    values, vectors = torch.linalg.eigh(gram / unit / unit[:, None])
    movable = values > MOVABLE * values.max()
    able = vectors[:, movable]
    return able @ ((able.T @ (gaps.to(unit) / unit)) / values[movable]) / unit


def weights_to_move(gradients: Tensor, solved: Tensor, wanted: Tensor) -> Tensor:
    """``w`` with ``G^T (H + damping I)^-1 G w = wanted``, (P,), in float64.

    ``gradients`` is ``G`` (D, P), ``solved`` ``(H + damping I)^-1 G``.
    """
    gram = gram_of(gradients, solved)
    return torch.linalg.solve(gram, wanted.to(gram))


def gram_of(gradients: Tensor, solved: Tensor) -> Tensor:
    """``G^T (H + damping I)^-1 G``, (P, P), in float64, safe to invert."""
    gram = (gradients.T @ solved).double()
    gram = (gram + gram.T) / 2
    gram.diagonal().add_(RIDGE * gram.diagonal().mean().clamp_min(1e-300))
    return gram


def check_finite(scores: Tensor) -> None:
    """Raise if the influence of a row is not finite."""
    for some in blocks(len(scores)):
        bad = ~torch.isfinite(scores[some])
        if bool(bad.any()):
            row = some.start + int(torch.nonzero(bad)[0])
            raise InvalidInputError(
                f"The influence of every row must be finite, but that of row {row} is NaN or "
                "infinity: look for extreme features there, and scale or drop the row."
            )


def nested_gradients(objective: Objective, order: Tensor, ks: list[int]) -> Tensor:
    """``sum_{m < k} g_m / N`` over the first k points of ``order``, for each k: ``(D, K)``.

    Only the gradients of the rows between one k and the next are computed.
    """
    model, slope = objective.model, objective.slope
    pieces = [order[before:k] for before, k in pairwise([0, *ks])]
    return model.sums(slope, pieces).cumsum(1)


def inner(left: Tensor, right: Tensor) -> Tensor:
    """The inner product of each row's outputs, ``(N,)``."""
    product = left * right
    return product if product.ndim == 1 else product.sum(-1)
