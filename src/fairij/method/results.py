"""What a fit leaves behind: scores by the rows that were given, the edit, audits, the choice."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fairij._version import __version__
from fairij.data.labels import positive_label
from fairij.fairness.audit import Audit, audit, audit_regression
from fairij.fairness.optimism import Choice
from fairij.method.losses import Loss
from fairij.method.objective import by_blocks
from fairij.method.types import Outcome, Rows, Settings
from fairij.models.base import Editable
from fairij.storage.edits import Edit


def by_given_row(
    scores: Tensor, train_rows: NDArray[np.int64] | None, rows: int
) -> NDArray[np.float64]:
    """One score for each row that was given; NaN for those split off for validation."""
    if train_rows is None:
        return by_blocks(lambda some: scores[some].double().cpu(), scores).numpy()
    spread = np.full(rows, np.nan)
    spread[train_rows] = scores.cpu().numpy()
    return spread


def edit_of(
    editable: Editable,
    outcome: Outcome,
    settings: Settings,
    *,
    dropped: NDArray[np.int64],
    data: str,
    weight_decay: float,
) -> Edit:
    theta = editable.theta
    row: dict[str, Any] = outcome.candidates.iloc[outcome.chosen].to_dict()  # type: ignore[assignment]
    return Edit(
        before=theta.cpu().clone(),
        delta=outcome.delta.to(theta).cpu().clone(),
        dropped=dropped,
        parameter_names=tuple(editable.parameter_names),
        frame=editable.frame_fingerprint(),
        data=data,
        settings={
            "constraint": settings.constraint.name,
            "k": len(dropped),
            "scale": float(row["scale"]),
            "damping": float(row["damping"]),
            "solver": outcome.diagnostics["solver"],
            "curvature": outcome.diagnostics["curvature"],
            "temperature": settings.temperature,
            "drop": settings.drop,
            "validation": settings.validation,
            "search": repr(settings.search),
            "selection": repr(settings.selection),
            "loss": settings.loss.name,
            "weight_decay": float(weight_decay),
            "random_state": settings.seed,
            "version": __version__,
        },
    )


def audited(
    editable: Editable,
    theta: Tensor,
    rows: Rows,
    *,
    loss: Loss,
    classes: NDArray[Any],
    confidence: float,
    seed: int,
) -> Audit:
    """Metrics with intervals of the model at ``theta``."""
    predicted = loss.predict(editable.outputs(rows.X, theta)).cpu().numpy()
    take: Any = audit if loss.is_classification else audit_regression
    truth = rows.y.cpu().numpy()
    if len(classes) > 2:  # of two, 1 is the positive one whatever its name
        predicted, truth = classes[predicted], classes[truth.astype(int)]
    found: Audit = take(
        truth,
        predicted,
        sensitive_features=rows.groups,
        confidence=confidence,
        random_state=seed,
    )
    return dataclasses.replace(found, positive_label=positive_label(classes))


def choice_of(outcome: Outcome, settings: Settings, confidence: float) -> Choice | None:
    """The choice among candidates, so that it can be made again on resamples."""
    if outcome.patterns is None or settings.constraint.metric is None:
        return None
    return Choice(
        outcome.patterns,
        settings.constraint.metric,
        settings.selection,
        float(outcome.candidates["gap"].iloc[outcome.chosen]),
        confidence,
        settings.seed,
    )
