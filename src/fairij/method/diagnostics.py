"""How far the numbers of a mitigation can be trusted."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor

from fairij.errors import NotStationaryWarning
from fairij.method.objective import Objective
from fairij.method.types import Ranking, Settings
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
    """What was solved and how well, and the surrogate as it was, as predicted and as it is."""
    target, found = ranking.target, ranking.influence
    rows, before = target.rows, target.value
    z = editable.outputs(rows.X, objective.theta + delta)
    parts = settings.constraint.group_gradients(
        z, rows.y, rows.groups, settings.loss, settings.temperature
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
    """The gaps as the rows are scored by, which the drift is of too."""
    return float(ranking.weights.cpu() @ ranking.target.gaps)


def drift_of(objective: Objective, ranking: Ranking) -> float:
    """How much a further step of training to the minimum would move the surrogate by itself."""
    return -float(ranking.influence.direction @ objective.gradient)


def warn_of_drift(objective: Objective, ranking: Ranking, *, stacklevel: int) -> None:
    drift = drift_of(objective, ranking)
    weighted = weighted_gap(ranking)
    if abs(drift) > DRIFT_WARNING * abs(weighted):
        warnings.warn(
            f"The model is not at a minimum of its training loss (gradient norm "
            f"{float(objective.gradient.norm()):.2e}): training on would by itself change the "
            f"fairness surrogate, now {weighted:.4f}, by about {drift:+.4f}. The edit is still "
            "judged by what it does on validation rows, but read 'as if these rows had been "
            "dropped' with care, or train the model further.",
            NotStationaryWarning,
            stacklevel=stacklevel + 1,
        )
