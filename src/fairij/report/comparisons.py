"""The model before and after the edit, measured on the same rows, and tables of the figures."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.data.checks import vector
from fairij.data.rows import n_rows, speaking_of
from fairij.errors import InvalidInputError
from fairij.fairness import Audit, audit, audit_regression
from fairij.fairness.joint import AND
from fairij.mitigator import FairIJ
from fairij.models.labels import decision_words, positive_label
from fairij.report.wording import GAP_METRIC, GAP_WORDS, LABELS, interval, measured, plain


@dataclass(frozen=True)
class Comparison:
    """Two audits of one set of rows."""

    rows: str  # their name, as in "test rows"
    before: Audit
    after: Audit

    @property
    def confidence(self) -> float:
        return self.before.confidence

    @property
    def said(self) -> list[str]:
        """Sentences on rates that have no value, and on intervals."""
        both = (self.before, self.after)
        return list(dict.fromkeys(t for part in both for t in (*part.undefined, *part.notes)))

    def after_interval(self, metric: str) -> tuple[float, float]:
        return self.after.interval(metric)[1:]


@dataclass(frozen=True)
class Row:
    """A figure before and after the edit, with intervals, as text. The templates escape it."""

    name: str
    before: str
    before_interval: str
    after: str
    after_interval: str
    asked: bool
    group: str
    size: str


def metric_rows(fitted: FairIJ, shown: Comparison) -> list[Row]:
    asked = gap_metric(fitted)
    together = _joined(shown.before.metrics, shown.after.metrics)
    return [_row(name, found, asked=name == asked) for name, found in together.iterrows()]


def rate_rows(shown: Comparison, most: int = 240) -> list[Row]:
    """Every group's rates, group by group."""
    sizes = shown.before.by_group["count"]
    some = _joined(shown.before.group_intervals, shown.after.group_intervals).head(most)
    return [
        _row(rate, some.loc[(group, rate)], group=str(group), size=f"{int(sizes[group]):,}")
        for group, rate in some.index
    ]


def _joined(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    together = before.add_suffix("_before").join(after.add_suffix("_after"), how="outer")
    return together.reindex([*before.index, *after.index.difference(before.index, sort=False)])


def _row(name: Any, found: pd.Series, asked: bool = False, group: str = "", size: str = "") -> Row:
    (value, *ends), (new, *new_ends) = (
        [found[f"{kind}_{when}"] for kind in ("value", "low", "high")]
        for when in ("before", "after")
    )
    before, after = (measured(value), interval(*ends)), (measured(new), interval(*new_ends))
    return Row(plain(name), *before, *after, asked, group, size)


def gap_metric(fitted: FairIJ) -> str | None:
    """The audit's name for the gap of the constraint; None if audits do not measure it."""
    asked = str(fitted.edit_.settings["constraint"]).split(AND)
    known = [GAP_METRIC[name] for name in asked if name in GAP_METRIC]
    return known[0] if len(known) == 1 and known[0] in fitted.before_ else None


def gap_words(fitted: FairIJ) -> str:
    """The gap of the constraint, as "equalized odds gap (sum)"."""
    metric = gap_metric(fitted)
    name = str(fitted.edit_.settings["constraint"])
    return LABELS[metric] if metric else GAP_WORDS.get(name, f"{plain(name)} gap")


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
    groups = sensitive_features_test
    before, after = (_audit(fitted, truth, predicted, groups) for predicted in predictions)
    return compared(fitted, "test rows", before, after)


def on_held_out_rows(fitted: FairIJ) -> Comparison | None:
    """The validation rows that `FairIJ` held out; None if there are none."""
    if fitted.holdout_before_ is None or fitted.holdout_after_ is None:
        return None
    return compared(fitted, "held-out rows", fitted.holdout_before_, fitted.holdout_after_)


def unedited(fitted: FairIJ) -> FairIJ:
    """The same result, but it predicts with the unedited model."""
    before = copy.copy(fitted)
    before.estimator_, before.decisions_ = fitted.estimator, (fitted.decisions_[0],) * 2
    return before


def _audit(fitted: FairIJ, truth: NDArray[Any], predicted: NDArray[Any], groups: Any) -> Audit:
    seed = fitted.edit_.settings["random_state"]
    settings: dict[str, Any] = {"confidence": fitted.confidence, "random_state": seed}
    with speaking_of("sensitive_features_test", instead_of="sensitive_features"):
        if not fitted.loss_.is_classification:
            return audit_regression(truth, predicted, sensitive_features=groups, **settings)
        unknown = sorted(set(truth.tolist()) - set(fitted.classes_.tolist()), key=str)
        if unknown:
            raise InvalidInputError(
                f"`y_test` must hold the labels that the model knows, {fitted.classes_.tolist()}; "
                f"got {unknown[:3]}. Encode them in the same way as the training labels."
            )
        decision = fitted.decision_
        if len(fitted.classes_) == 2:
            favourable = fitted.classes_[decision.favourable]
            is_positive = (labels == favourable for labels in (truth, predicted))
            truth, predicted = (labels.astype(np.int64) for labels in is_positive)
        settings["class_names"] = decision_words(fitted.classes_, decision)
        found = audit(truth, predicted, sensitive_features=groups, **settings)
        return replace(found, positive_label=positive_label(fitted.classes_, decision))
