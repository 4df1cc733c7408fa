"""What a fit leaves behind: scores of the given rows, audits, the choice."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from fairij.data.labels import positive_label
from fairij.data.row_vectors import by_blocks
from fairij.fairness import Audit, audit, audit_regression
from fairij.fairness.optimism import Choice
from fairij.method.preparation import Prepared
from fairij.method.progress import timed
from fairij.method.search import Search
from fairij.method.settings import Settings
from fairij.method.types import GroupedRows, Outcome
from fairij.models.base import Editable
from fairij.models.labels import Labels
from fairij.models.losses import Loss


@dataclass(frozen=True)
class Results:
    """The attributes of a fitted `FairIJ`, without their trailing underscore."""

    loss: Loss
    classes: NDArray[Any]
    search: Search
    influence: NDArray[np.float64]
    loss_influence: NDArray[np.float64] | None
    direction: Tensor
    dropped: NDArray[np.int64]
    candidates: pd.DataFrame
    chosen: int
    moves: NDArray[Any] | None
    before: Audit
    after: Audit
    holdout_before: Audit | None
    holdout_after: Audit | None
    diagnostics: dict[str, Any]


def results_of(
    editable: Editable,
    prepared: Prepared,
    settings: Settings,
    outcome: Outcome,
    train_rows: NDArray[np.int64] | None,
    rows: int,
    seconds: dict[str, float],
) -> Results:
    """Results by the rows that were given; ``train_rows`` of them were trained on, None: all."""
    labels, on_loss, moves = prepared.labels, outcome.loss_influence, outcome.moves
    before, after = editable.theta, editable.theta + outcome.delta.to(editable.theta)

    def audit_at(theta: Tensor, part: GroupedRows | None) -> Any:
        return None if part is None else audited(editable, theta, part, labels, settings)

    with timed(seconds, "audits"):
        audits = {
            "before": audit_at(before, outcome.judged),
            "after": audit_at(after, outcome.judged),
            "holdout_before": audit_at(before, prepared.held),
            "holdout_after": audit_at(after, prepared.held),
        }
    about = {"seconds": seconds, "caveats": list(prepared.caveats)}
    return Results(
        loss=labels.loss,
        classes=labels.classes,
        search=settings.search,
        influence=by_given_row(outcome.influence, train_rows, rows),
        loss_influence=None if on_loss is None else by_given_row(on_loss, train_rows, rows),
        direction=outcome.direction,
        dropped=outcome.dropped if train_rows is None else train_rows[outcome.dropped],
        candidates=outcome.candidates,
        chosen=outcome.chosen,
        moves=None if moves is None else moves.cpu().numpy(),
        diagnostics=outcome.diagnostics | about,
        **audits,
    )


def by_given_row(
    scores: Tensor, train_rows: NDArray[np.int64] | None, rows: int
) -> NDArray[np.float64]:
    """One score for each given row; NaN for rows that were split off for validation."""
    if train_rows is None:
        return by_blocks(lambda some: scores[some].double().cpu(), scores).numpy()
    spread = np.full(rows, np.nan)
    spread[train_rows] = scores.cpu().numpy()
    return spread


def audited(
    editable: Editable, theta: Tensor, rows: GroupedRows, labels: Labels, settings: Settings
) -> Audit:
    """Metrics with intervals of the model at ``theta``."""
    loss, classes = labels.loss, labels.classes
    predicted = loss.predict(editable.outputs(rows.X, theta)).cpu().numpy()
    take: Any = audit if loss.is_classification else audit_regression
    truth = rows.y.cpu().numpy()
    if len(classes) > 2:  # of two classes, the second is the positive one whatever its name
        predicted, truth = classes[predicted], classes[truth.astype(int)]
    found: Audit = take(
        truth,
        predicted,
        sensitive_features=rows.groups,
        confidence=settings.confidence,
        random_state=settings.seed,
    )
    return dataclasses.replace(found, positive_label=positive_label(classes))


def choice_of(outcome: Outcome, settings: Settings) -> Choice | None:
    """The choice among candidates, so that it can be repeated on resamples."""
    if outcome.patterns is None or settings.constraint.metric is None:
        return None
    return Choice(
        outcome.patterns,
        settings.constraint.metric,
        settings.selection,
        float(outcome.candidates["gap"].iloc[outcome.chosen]),
        settings.confidence,
        settings.seed,
    )
