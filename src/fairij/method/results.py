"""What a fit leaves behind: scores, audits, the choice, and how far to trust the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.row_vectors import by_blocks
from fairij.errors import Notice, NotStationaryWarning, SmallGroupWarning
from fairij.fairness.decisions import weight_of
from fairij.fairness.optimism import Choice
from fairij.method.counts import columns_of
from fairij.method.curvature import Curvature
from fairij.method.fairness_rows import GroupedRows
from fairij.method.objective import Objective
from fairij.method.preparation import Prepared, Settings
from fairij.method.run import timed
from fairij.method.tried import Reader
from fairij.method.types import Outcome, Ranking
from fairij.models.base import Editable
from fairij.solvers.base import Inverse

DRIFT_WARNING = 0.5  # of the gap
HELD = 1e-2  # of the damping: the curvature below which a parameter hardly moves
UNSOLVED = 0.2  # error in energy of the scores or the edit above which they say little
UNSOLVED_OTHERWISE = ("", "more rows or steps for this solver, more damping, or solver='cg'")
UNSOLVED_BECAUSE = {  # the likely cause and the cures
    "cg": (
        " Likely cause: columns of very different scale in a model in float32, whose rounding "
        "hides small curvatures. If `max_steps` was set, the steps may have run out.",
        "train on standardised columns, give the model and its rows in float64, or set more "
        "`damping`",
    )
}


def attributes_of(
    editable: Editable,
    prepared: Prepared,
    settings: Settings,
    outcome: Outcome,
    train_rows: NDArray[np.int64] | None,
    rows: int,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """The attributes of a fitted `FairIJ`; of the given rows, ``train_rows`` were trained on."""
    labels, moves = prepared.labels, outcome.moves
    thetas = editable.theta, editable.theta + outcome.delta.to(editable.theta)
    reader = Reader(labels.loss, labels.classes, settings.confidence, settings.seed)
    decisions = settings.decision, settings.decision

    def outputs(rows: GroupedRows) -> tuple[Tensor, Tensor]:
        before, after = (editable.outputs(rows.X, theta) for theta in thetas)
        return before, after

    def tried(rows: GroupedRows | None) -> tuple[Any, ...]:
        if rows is None:
            return None, None, None
        weight = weight_of(rows.groups, editable.theta)
        return reader.tried(outputs(rows), rows.y, rows.groups, decisions, weight)

    with timed(seconds, "audits"):
        found = tried(outcome.judged)
        # on other rows, a share that is accepted becomes the cut-off that it has here
        if not settings.decision.is_own:
            weight = weight_of(outcome.judged.groups, editable.theta)
            first, last = (settings.decision.settled(z, weight) for z in outputs(outcome.judged))
            decisions = first, last
        held = tried(prepared.held)
    names = ("before_", "after_", "changes_")
    audits = dict(zip(names, found, strict=True))
    audits |= {f"holdout_{name}": one for name, one in zip(names, held, strict=True)}
    return audits | {
        "loss_": labels.loss,
        "classes_": labels.classes,
        "decisions_": decisions,
        "search_": settings.search,
        "influence_": by_given_row(outcome.influence, train_rows, rows),
        "joint_influence_": by_given_row(outcome.joint_influence, train_rows, rows),
        "loss_influence_": by_given_row(outcome.loss_influence, train_rows, rows),
        "direction_": outcome.direction,
        "dropped_": outcome.dropped if train_rows is None else train_rows[outcome.dropped],
        "candidates_": outcome.candidates,
        "chosen_": outcome.chosen,
        "moves_": None if moves is None else moves.cpu().numpy(),
        "predicted_refits_": [],
        "diagnostics_": outcome.diagnostics
        | {"seconds": seconds, "caveats": list(prepared.caveats)},
    }


def by_given_row(
    scores: Tensor | None, train_rows: NDArray[np.int64] | None, rows: int
) -> NDArray[np.float64] | None:
    """One score for each given row; NaN for rows that were split off for validation."""
    if scores is None:
        return None
    if train_rows is None:
        return by_blocks(lambda some: scores[some].double().cpu(), scores).numpy()
    spread = np.full(rows, np.nan)
    spread[train_rows] = scores.cpu().numpy()
    return spread


def undefined_notices(found: Mapping[str, Any]) -> list[Notice]:
    """One notice if audits lack rates, because some groups lack rows of a label."""
    audits = [found[name] for name in ("before_", "holdout_before_") if found[name] is not None]
    texts = dict.fromkeys(text for audit in audits for text in audit.undefined)
    return [Notice(" ".join(texts), SmallGroupWarning)] if texts else []


def choice_of(outcome: Outcome, settings: Settings) -> Choice | None:
    """The choice among candidates, so that it can be repeated on resamples."""
    if outcome.patterns is None or settings.constraint.metric is None:
        return None
    uncertainty = settings.constraint.uncertainty
    if uncertainty is not None and outcome.squares is not None:
        uncertainty = partial(uncertainty, squares=outcome.squares)
    return Choice(
        outcome.patterns,
        partial(_of_known, settings.constraint.metric, len(outcome.judged.groups.names)),
        settings.selection.choose,
        float(outcome.candidates["gap"].iloc[outcome.chosen]),
        settings.confidence,
        settings.seed,
        partial(
            columns_of,
            names=outcome.judged.groups.names,
            uncertainty=uncertainty,
        ),
        outcome.of_scores,
    )


def _of_known(
    metric: Callable[..., NDArray[np.float64]], groups: int, table: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The gap of counts, without those of rows that have no group."""
    return metric(table[..., :groups, :, :])


def diagnose(
    editable: Editable,
    objective: Objective,
    settings: Settings,
    ranking: Ranking,
    inverse: Inverse,
    delta: Tensor,
) -> dict[str, Any]:
    """What was solved and how well; the surrogate before, as predicted, and after."""
    target, found = ranking.target, ranking.influence
    rows, before = target.rows, target.value
    z = rows.outputs(editable, objective.theta + delta)
    parts = settings.constraint.group_gradients(
        z, rows.y, rows.groups, objective.loss, settings.temperature
    )
    return {
        "damping": inverse.damping,
        "solver": settings.solver.name,
        "curvature": settings.curvature,
        "n_parameters": len(objective.theta),
        "n_train": len(objective.y),
        "n_positive": ranking.positive,
        "part_weights": ranking.weights.tolist(),
        "train_loss": objective.value,
        "gradient_norm": float(objective.gradient.norm()),
        "drift": drift_of(objective, ranking),
        "influence_residual": float(found.solution.residual[0]),
        "influence_steps": found.solution.steps,
        "curvature_products": inverse.products,
        "jvp_mode": objective.model.mode,
        "surrogate_before": before,
        "surrogate_weighted": weighted_gap(ranking),
        "surrogate_predicted": before + float((delta @ target.gradients).sum()),
        "surrogate_after": sum(gap for gap, _ in parts),
    }


def scale_notices(curvature: Curvature, damping: float) -> list[Notice]:
    """A notice if ``damping="auto"`` holds most parameters in place, as on raw columns."""
    diagonal = curvature.diagonal()
    held = 0.0 if diagonal is None else float((diagonal < HELD * damping).double().mean())
    if held < 0.5:
        return []
    text = (
        f"damping='auto' is {damping:.2g}, a hundredth of the largest eigenvalue, which belongs "
        f"to the features of the largest scale. It holds {held:.0%} of the parameters nearly in "
        "place, because their own curvature is less than a hundredth of it. Train on standardised "
        "features, or give `damping` a number, such as 0.01."
    )
    return [Notice(text)]


def unsolved_notices(diagnostics: dict[str, Any]) -> list[Notice]:
    """A notice if the solver left much of the equations for the scores or the edit unsolved."""
    found = {"scores": diagnostics["influence_residual"], "edit": diagnostics.get("edit_residual")}
    far = {name: error for name, error in found.items() if error is not None}
    worst = max(far, key=lambda name: float(far[name]))
    if far[worst] <= UNSOLVED:
        return []
    cause, cure = UNSOLVED_BECAUSE.get(diagnostics["solver"], UNSOLVED_OTHERWISE)
    return [
        Notice(
            f"The solver {diagnostics['solver']!r} comes only roughly near the solution of the "
            f"equations for the {worst}: its error in energy is {far[worst]:.2g} (0 is exact)."
            f"{cause} The edit is still judged by what it does on validation rows, but the order "
            f"of the rows may be another one. Cures: {cure}."
        )
    ]


def weighted_gap(ranking: Ranking) -> float:
    """The sum of the gaps with the weights by which rows are scored."""
    return float(ranking.weights.cpu() @ ranking.target.gaps)


def drift_of(objective: Objective, ranking: Ranking) -> float:
    """How much one more step of training to the minimum would move the surrogate."""
    return -float(ranking.influence.direction @ objective.gradient)


def drift_notices(objective: Objective, ranking: Ranking) -> list[Notice]:
    """A notice if the model is so far from a minimum that training on would move the gap."""
    drift, weighted = drift_of(objective, ranking), weighted_gap(ranking)
    if abs(drift) <= DRIFT_WARNING * abs(weighted):
        return []
    text = (
        f"The model is not at a minimum of its training loss (gradient norm "
        f"{float(objective.gradient.norm()):.2e}). Training on would by itself change the "
        f"fairness surrogate, now {weighted:.4f}, by about {drift:+.4f}. The edit is still "
        "judged by what it does on validation rows. But 'as if these rows had been dropped' is "
        "then only a rough description; training the model further would make it a better one."
    )
    return [Notice(text, NotStationaryWarning)]
