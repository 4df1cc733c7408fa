"""How far the numbers of a run can be trusted."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fairij.errors import Notice, NotStationaryWarning
from fairij.method.objective import Objective
from fairij.method.settings import Settings
from fairij.method.types import Ranking
from fairij.models.base import Editable
from fairij.solvers.base import Inverse

DRIFT_WARNING = 0.5  # of the gap


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
    z = editable.outputs(rows.X, objective.theta + delta)
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
