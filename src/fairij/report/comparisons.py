"""The model before and after the edit, measured on the same rows."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.data.checks import vector
from fairij.data.labels import positive_label
from fairij.data.rows import n_rows, speaking_of
from fairij.errors import InvalidInputError
from fairij.fairness import Audit, audit, audit_regression
from fairij.mitigator import FairIJ
from fairij.report.wording import GAP_METRIC


@dataclass(frozen=True)
class Comparison:
    """Two audits of one set of rows."""

    rows: str  # their name, as in "test rows"
    before: Audit
    after: Audit

    @property
    def confidence(self) -> float:
        return self.before.confidence

    def after_interval(self, metric: str) -> tuple[float, float]:
        """The interval of a metric after the edit."""
        return self.after.interval(metric)[1:]

    def metrics(self) -> pd.DataFrame:
        """Every metric before and after, with intervals."""
        return _joined(self.before.metrics, self.after.metrics)

    def group_rates(self) -> pd.DataFrame:
        """Every rate of every group before and after, with intervals; index: group, rate."""
        return _joined(self.before.group_intervals, self.after.group_intervals)


def _joined(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    together = before.add_suffix("_before").join(after.add_suffix("_after"), how="outer")
    return together.reindex([*before.index, *after.index.difference(before.index, sort=False)])


def gap_metric(fitted: FairIJ) -> str | None:
    """The audit's name for the gap of the constraint; None if audits do not measure it."""
    name = GAP_METRIC.get(str(fitted.edit_.settings["constraint"]))
    return name if name in fitted.before_ else None


def compared(fitted: FairIJ, rows: str, before: Audit, after: Audit) -> Comparison:
    """A comparison that shows the gap of the constraint among the metrics."""
    asked = gap_metric(fitted)
    shown = (before, after) if asked is None else (before.showing(asked), after.showing(asked))
    return Comparison(rows, *shown)


def other_gaps(fitted: FairIJ, shown: Comparison) -> list[str]:
    """The audit's gaps, without that of the constraint."""
    return [
        str(name)
        for name in shown.before.metrics.index
        if name.endswith(("difference", "sum")) and name != gap_metric(fitted)
    ]


def performance(fitted: FairIJ) -> str:
    """The audit's measure of how well the model predicts."""
    return "accuracy" if fitted.loss_.is_classification else "mean_squared_error"


def on_validation_rows(fitted: FairIJ) -> Comparison:
    return compared(fitted, "validation rows", fitted.before_, fitted.after_)


def on_test_rows(
    fitted: FairIJ, X_test: Any, y_test: Any, sensitive_features_test: Any
) -> Comparison | None:
    """Audit both models on rows that the edit never used; None if no such rows are given."""
    given = {"X_test": X_test, "y_test": y_test, "sensitive_features_test": sensitive_features_test}
    missing = [f"`{name}`" for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return None
    if missing:
        raise InvalidInputError(
            "Test rows need features, labels and groups: pass `X_test`, `y_test` and "
            f"`sensitive_features_test` together; got no {' and no '.join(missing)}."
        )
    with speaking_of("X_test"):
        truth = vector("y_test", y_test, n_rows(X_test))
        predictions = [model.predict(X_test) for model in (unedited(fitted), fitted)]
    audits = [
        _audit(fitted, truth, predicted, sensitive_features_test) for predicted in predictions
    ]
    return compared(fitted, "test rows", *audits)


def on_held_out_rows(fitted: FairIJ) -> Comparison | None:
    """The validation rows that `FairIJ` held out; None if there are none."""
    if fitted.holdout_before_ is None or fitted.holdout_after_ is None:
        return None
    return compared(fitted, "held-out rows", fitted.holdout_before_, fitted.holdout_after_)


def unedited(fitted: FairIJ) -> FairIJ:
    """The same result, but it predicts with the unedited model."""
    before = copy.copy(fitted)
    before.estimator_ = fitted.estimator
    return before


def _audit(fitted: FairIJ, truth: NDArray[Any], predicted: NDArray[Any], groups: Any) -> Audit:
    settings: dict[str, Any] = {
        "confidence": fitted.confidence,
        "random_state": fitted.edit_.settings["random_state"],
    }
    with speaking_of("sensitive_features_test", instead_of="sensitive_features"):
        if not fitted.loss_.is_classification:
            return audit_regression(truth, predicted, sensitive_features=groups, **settings)
        unknown = sorted(set(truth.tolist()) - set(fitted.classes_.tolist()), key=str)
        if unknown:
            raise InvalidInputError(
                f"`y_test` must hold the labels that the model knows, {fitted.classes_.tolist()}; "
                f"got {unknown[:3]}. Encode them in the same way as the training labels."
            )
        if len(fitted.classes_) == 2:  # the second class is the positive one
            truth, predicted = (
                (labels == fitted.classes_[1]).astype(np.int64) for labels in (truth, predicted)
            )
        found = audit(truth, predicted, sensitive_features=groups, **settings)
        return replace(found, positive_label=positive_label(fitted.classes_))
