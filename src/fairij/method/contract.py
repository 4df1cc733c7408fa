"""Contracts that every solver, search and rule of choice must keep.

Each check returns nothing, or raises an `AssertionError` that says what is wrong.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fairij.method.curvature import GGN, dense
from fairij.method.influence import influence, most_harmful
from fairij.method.objective import Objective, normalised_weights
from fairij.method.preparation import get_search, get_selection, get_solver
from fairij.method.search.base import Search, SearchContext, SignedGaps
from fairij.method.selection import Selection
from fairij.models.constant import ConstantLinearization, FeatureJacobian
from fairij.models.losses import LOSSES
from fairij.solvers.base import Solver
from fairij.solvers.exact import Exact

ROWS, FEATURES, DAMPING = 60, 5, 0.5
CLOSE = 1e-2  # errors below it may be overstated


def check_solver(solver: str | Solver) -> None:
    """Check shapes, reported errors, other dampings and repeatability on a small problem."""
    settings, curvature = get_solver(solver), GGN(_objective())
    inverse = settings.prepare(curvature, DAMPING)
    b = torch.randn(FEATURES, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    solution = inverse.solve(b)
    _require(inverse.damping == DAMPING, f"damping is {inverse.damping}, asked for {DAMPING}")
    _require(solution.x.shape == b.shape, f"x has shape {tuple(solution.x.shape)} for {b.shape}")
    alone = inverse.solve(b[:, 0]).x
    _require(alone.shape == (FEATURES,), f"one right-hand side gives shape {alone.shape}")
    matrix = dense(curvature) + DAMPING * torch.eye(FEATURES, dtype=torch.float64)
    best = torch.linalg.solve(matrix, b)
    off = solution.x - best
    true = ((off * (matrix @ off)).sum(0) / (best * b).sum(0)).sqrt()
    told = solution.residual.to(true)
    _require(told.shape == (3,), f"residual has shape {tuple(told.shape)}, not one per column")
    honest = bool((told >= true / 2 - 1e-6).all() and (told <= 2 * true + CLOSE).all())
    _require(honest, f"the error in energy is {true}, but it reports {told}")
    _require(bool((inverse.solve(0 * b).x == 0).all()), "solve(0) is not 0")
    alike = (settings.seeded(0).unshared.prepare(curvature, DAMPING).solve(b).x for _ in range(2))
    _require(torch.equal(*alike), "two solves of the same system differ")
    other = inverse.with_damping(2 * DAMPING)
    if other is not None:
        found, expected = (i.solve(b).x for i in (other, settings.prepare(curvature, 2 * DAMPING)))
        near = torch.allclose(found, expected, rtol=2e-2, atol=1e-6)
        _require(near, "with_damping differs from a new inverse")


def check_search(search: str | Search) -> None:
    """Check the proposals of a search, their number, and its words on a small problem."""
    settings, context = get_search(search), _context()
    most = settings.most(ROWS)
    context = replace(context, order=context.order[:most])  # as a run gives them
    proposals = list(settings.propose(context))
    _require(len(proposals) <= settings.count(context), "there are more proposals than `count`")
    for proposal in proposals:
        k, direction = proposal.k, proposal.direction
        _require(0 < k <= len(context.order), f"k is {k}; {len(context.order)} rows may be dropped")
        _require(most is None or k <= most, f"k is {k}, above most(rows) = {most}")
        _require(direction.shape == (FEATURES,), f"direction has shape {tuple(direction.shape)}")
        _require(bool(torch.isfinite(direction).all()), "direction is not finite")
        _require(all(scale > 0 for scale in proposal.scales), f"scales are {proposal.scales}")
        labels = proposal.scales if proposal.label is None else (proposal.label,)
        _require(len(labels) == len(proposal.scales), "`label` is for proposals of one scale")
        account = settings.account(k, labels[0], ROWS)
        _require(account.sentence.endswith("."), f"not a sentence: {account.sentence!r}")
        _require(all((account.name, account.size, account.note)), f"words are missing: {account}")
    nothing = replace(context, order=context.order[:0])
    _require(not list(settings.propose(nothing)), "there are proposals though no row is harmful")


def check_selection(rule: str | Selection) -> None:
    """Check that a rule picks a candidate, whatever their order, and never one that diverged."""
    settings, rng = get_selection(rule), np.random.default_rng(0)
    candidates = _measures(rng)
    chosen = settings.choose(candidates)
    _require(0 <= chosen < 20 and int(chosen) == chosen, f"choose gives {chosen!r}, not an index")
    _require(chosen != 3, "the candidate that diverged is chosen")
    order = np.concatenate([[0], 1 + rng.permutation(19)])  # the unedited model stays the first
    again = order[settings.choose({name: values[order] for name, values in candidates.items()})]
    _require(again == chosen, "the choice depends on the order of the candidates")
    told = settings.shortfall(float(candidates["gap"][chosen])), settings.remark(candidates, chosen)
    for text in told:
        _require(text is None or text.endswith("."), f"not a sentence: {text!r}")


def _measures(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """What twenty candidates were measured to be; the one at 3 diverged."""
    better = ("accuracy", "balanced_accuracy", "auc", "rarest_class", "r2")
    worse = ("log_loss", "brier", "calibration_error", "mean_squared_error")
    found = {"gap": rng.uniform(0, 0.3, 20)}
    found |= {name: rng.uniform(0.6, 0.9, 20) for name in better}
    found |= {name: rng.uniform(0.1, 0.4, 20) for name in worse}
    found |= {"gap_error": np.full(20, 0.02), "gap_p": np.zeros(20)}
    found["gap"][3], found["accuracy"][3], found["r2"][3] = np.inf, 0.0, -np.inf
    for name in set(found) - {"gap", "accuracy", "r2"}:
        found[name][3] = np.nan
    return found


def _objective() -> Objective:
    """A logistic regression on made rows, near its minimum."""
    X = torch.randn(ROWS, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (X[:, 0] + 0.5 * X[:, 1] > 0.2).double()
    theta = torch.tensor([1.0, 0.5, 0.0, 0.0, 0.0], dtype=torch.float64)
    jacobian = FeatureJacobian(X, 1, intercept=False)
    model = ConstantLinearization(jacobian.times(theta), jacobian)
    weights = normalised_weights(None, ROWS, theta)
    return Objective(model, y, LOSSES["binary_cross_entropy"], weights, theta, 0 * theta[0])


def _context() -> SearchContext:
    """The gap of mean outputs between the first half of the rows and the second."""
    objective = _objective()
    group = torch.where(torch.arange(ROWS) < ROWS // 2, 2 / ROWS, -2 / ROWS).double()
    gradient, gap = objective.model.vjp(group), float(group @ objective.model.outputs)
    sign = 1.0 if gap > 0 else -1.0
    inverse = Exact().prepare(GGN(objective), DAMPING)
    scored = influence(objective, inverse, sign * gradient)

    def gaps_at(move: Tensor) -> tuple[Tensor, Tensor]:
        value = sign * (group @ objective.model.moved(move).outputs)
        return value[None], sign * gradient[:, None]

    def signed_at(there: Objective, move: Tensor) -> SignedGaps:
        value, pulled = gaps_at(move)
        return SignedGaps(value, value, torch.ones(1, dtype=torch.bool), lambda: pulled)

    order, _ = most_harmful(scored.scores)
    return SearchContext(
        objective,
        inverse,
        order,
        scored,
        sign * gradient,
        abs(gap),
        gaps_at,
        lambda _: inverse,
        signed_at,
        lambda there, damping, *_: Exact().prepare(GGN(there), damping),
        lambda *_: (objective, signed_at, False),
    )


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise AssertionError(text)
