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
from fairij.fairness.audit import Audit, audit, audit_regression
from fairij.mitigator import FairIJ
from fairij.report.wording import GAP_METRIC


@dataclass(frozen=True)
class Comparison:
    """Two audits of one set of rows."""

    rows: str  # what they are, as in "test rows"
    before: Audit
    after: Audit

    @property
    def confidence(self) -> float:
        return self.before.confidence

    def metrics(self) -> pd.DataFrame:
        """Every metric before and after, with intervals."""
        return _beside(self.before.metrics, self.after.metrics)

    def group_rates(self) -> pd.DataFrame:
        """Every rate of every group before and after, with intervals; index: group, rate."""
        return _beside(self.before.group_intervals, self.after.group_intervals)


def _beside(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    together = before.add_suffix("_before").join(after.add_suffix("_after"), how="outer")
    return together.reindex([*before.index, *after.index.difference(before.index, sort=False)])


def gap_metric(fitted: FairIJ) -> str | None:
    """The audit's name for what was asked; None for a constraint that audits do not have."""
    return GAP_METRIC.get(str(fitted.edit_.settings["constraint"]))


def on_validation_rows(fitted: FairIJ) -> Comparison:
    return Comparison("validation rows", fitted.before_, fitted.after_)


def on_test_rows(
    fitted: FairIJ, X_test: Any, y_test: Any, sensitive_features_test: Any
) -> Comparison | None:
    """Audit both models on rows that played no part; None where no such rows are given."""
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
    return Comparison("test rows", *audits)


def on_held_out_rows(fitted: FairIJ) -> Comparison | None:
    """The rows that `FairIJ` itself kept away from the choice; None where there are none."""
    if fitted.holdout_before_ is None or fitted.holdout_after_ is None:
        return None
    return Comparison("held-out rows", fitted.holdout_before_, fitted.holdout_after_)


def unedited(fitted: FairIJ) -> FairIJ:
    """A view of the same result that predicts with the model as it was given."""
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
                f"got {unknown[:3]}. Encode them as the training labels are."
            )
        if len(fitted.classes_) == 2:  # of two, 1 is the positive one whatever its name
            truth, predicted = (
                (labels == fitted.classes_[1]).astype(np.int64) for labels in (truth, predicted)
            )
        found = audit(truth, predicted, sensitive_features=groups, **settings)
        return replace(found, positive_label=positive_label(fitted.classes_))
