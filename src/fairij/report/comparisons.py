"""The model before and after the edit, measured on the same rows, and tables of the figures."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from fairij.data.checks import vector
from fairij.data.rows import n_rows, speaking_of
from fairij.errors import InvalidInputError
from fairij.fairness import Audit
from fairij.fairness.groups import numbers
from fairij.fairness.joint import AND
from fairij.fairness.missing import AS_CHANCES, WITHOUT, unmet_groups
from fairij.fairness.paired import Paired
from fairij.fairness.views import SUFFIX, cells_of
from fairij.method.tried import Reader
from fairij.mitigator import FairIJ
from fairij.report.wording import (
    GAP_METRIC,
    GAP_WORDS,
    LABELS,
    PERFORMANCE,
    SCORES,
    interval,
    measured,
    plain,
    signed,
)

OF_BOTH = "equalized_odds"  # gaps of true and of false positive rates, which ask two questions
PARTS = ("equal_opportunity_difference", "predictive_equality_difference")


@dataclass(frozen=True)
class Comparison:
    """Two audits of one set of rows."""

    rows: str  # their name, as in "test rows"
    before: Audit
    after: Audit
    changes: Paired | None = None  # in results of 0.1.0 they are not known

    @property
    def confidence(self) -> float:
        return self.before.confidence

    @property
    def of_groups(self) -> list[str]:
        """Sentences on rows without a group, and on groups that are chances."""
        return [text for text in self.said if WITHOUT in text or AS_CHANCES in text]

    @property
    def said(self) -> list[str]:
        """Sentences on rates that have no value, and on intervals."""
        both = (self.before, self.after)
        return list(dict.fromkeys(t for part in both for t in (*part.undefined, *part.notes)))

    @property
    def size(self) -> int:
        return int(self.before.by_group["count"].sum())

    def after_interval(self, metric: str) -> tuple[float, float]:
        return self.after.interval(metric)[1:]

    def values(self, measure: str | None) -> tuple[float, float] | None:
        """A measure before and after; None if it is not known on these rows."""
        if measure is None:
            return None
        if measure in self.before and measure in self.after:
            found = self.before[measure], self.after[measure]
        elif self.changes is not None and measure in self.changes:
            found = self.changes.values(measure)
        else:
            return None
        return None if math.isnan(found[0]) else found

    def change(self, measure: str) -> tuple[float, float, float]:
        """``(change, low, high)``; without an interval if rows were not compared in pairs."""
        if self.changes is not None and measure in self.changes:
            return self.changes.change(measure)
        before, after = self.values(measure) or (math.nan, math.nan)
        return after - before, math.nan, math.nan


@dataclass(frozen=True)
class Row:
    """A figure before and after the edit, with intervals, as text. The templates escape it."""

    name: str
    before: str
    before_interval: str
    after: str
    after_interval: str
    change: str = ""
    change_interval: str = ""
    asked: bool = False
    group: str = ""
    size: str = ""


def metric_rows(fitted: FairIJ, shown: Comparison) -> list[Row]:
    """Every measure: of labels, of scores, gaps, then ratios."""
    asked = gap_metric(fitted)
    metrics = [str(name) for name in shown.before.metrics.index]
    plain_ones = [name for name in metrics if name in PERFORMANCE]
    of_scores = [] if shown.changes is None else [n for n in SCORES if n in shown.changes]
    ratios = [str(name) for name in shown.before.ratios.index]
    first = dict.fromkeys([*plain_ones, *of_scores, *metrics, *ratios])
    return [
        replace(_metric(shown, name), asked=name == asked)
        for name in first
        if shown.values(name) is not None or name in metrics
    ]


def _metric(shown: Comparison, name: str) -> Row:
    values = shown.values(name) or (math.nan, math.nan)
    ends = ["", ""]
    if name in shown.before and name in shown.after:
        ends = [_ends(*part.interval(name)) for part in (shown.before, shown.after)]
    change, low, high = shown.change(name)
    moved = "" if math.isnan(change) else signed(change)
    between = "" if math.isnan(low) else interval(low, high)
    told = measured(values[0]), ends[0], measured(values[1]), ends[1]
    return Row(plain(name), *told, moved, between)


def _ends(value: float, low: float, high: float) -> str:
    """An interval; empty if only the value is known."""
    return "" if math.isnan(low) and not math.isnan(value) else interval(low, high)


def view_rows(fitted: FairIJ, shown: Comparison) -> tuple[list[str], list[tuple[str, ...]]]:
    """The gaps of each stratum, or sensitive column: heads, and one line for each view."""
    before, after = shown.before.views, shown.after.views
    if not len(before):
        return [], []
    name = str(fitted.edit_.settings["constraint"]).partition(f" {SUFFIX['strata']}")[0]
    asked = [
        GAP_METRIC[one]
        for one in name.partition(f" {SUFFIX['marginals']}")[0].split(AND)
        if one in GAP_METRIC
    ]
    lines = []
    for view in before.index.get_level_values("view").unique():
        cells = [str(view), f"{before.loc[(view, 'count'), 'value']:,.0f}"]
        for metric in asked:
            for audit in (before, after):
                value, low, high = audit.loc[(view, metric)]
                cells += [measured(value), interval(low, high)]
        lines.append(tuple(cells))
    return [plain(metric) for metric in asked], lines


def rate_rows(shown: Comparison, most: int) -> tuple[list[Row], int]:
    """The rates of the first groups, in about ``most`` lines, and how many groups are left out."""
    sizes = shown.before.by_group["count"]
    together = _joined(shown.before.group_intervals, shown.after.group_intervals)
    lines = max(1, len(together) // len(sizes))
    kept = list(sizes.index[: max(1, most // lines)])

    def size(group: Any) -> str:
        return f"{int(sizes[group]):,}"

    some = together[together.index.get_level_values(0).isin(kept)]
    rows = [
        replace(_row(rate, some.loc[(group, rate)]), group=str(group), size=size(group))
        for group, rate in some.index
    ]
    return rows, len(sizes) - len(kept)


def _joined(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    together = before.add_suffix("_before").join(after.add_suffix("_after"), how="outer")
    return together.reindex([*before.index, *after.index.difference(before.index, sort=False)])


def _row(name: Any, found: pd.Series) -> Row:
    (value, *ends), (new, *new_ends) = (
        [found[f"{kind}_{when}"] for kind in ("value", "low", "high")]
        for when in ("before", "after")
    )
    return Row(plain(name), measured(value), interval(*ends), measured(new), interval(*new_ends))


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


def compared(
    fitted: FairIJ, rows: str, before: Audit, after: Audit, changes: Paired | None = None
) -> Comparison:
    """A comparison that shows the gap of the constraint among the metrics."""
    asked = gap_metric(fitted)
    shown = (before, after) if asked is None else (before.showing(asked), after.showing(asked))
    return Comparison(rows, *shown, changes)


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
    return compared(fitted, "validation rows", fitted.before_, fitted.after_, fitted.changes_)


def on_test_rows(
    fitted: FairIJ,
    X_test: Any,
    y_test: Any,
    sensitive_features_test: Any,
    control_features_test: Any = None,
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
        before, after = (model._outputs(X_test) for model in (unedited(fitted), fitted))
    with (
        speaking_of("control_features_test", instead_of="control_features"),
        speaking_of("sensitive_features_test", instead_of="sensitive_features"),
    ):
        groups = cells_of(
            sensitive_features_test,
            len(truth),
            missing=fitted.missing_groups,
            control_features=control_features_test,
            marginals=fitted.marginals,
        )
    if groups.views is None and str(fitted.edit_.settings["constraint"]).endswith(SUFFIX["strata"]):
        raise InvalidInputError(
            "`control_features_test` must be given, as the gap was closed within strata: pass the "
            "same columns of the test rows."
        )
    seed = fitted.edit_.settings["random_state"]
    how = (fitted.confidence, seed, fitted.missing_groups)
    reader = Reader(fitted.loss_, fitted.classes_, *how)
    with speaking_of("sensitive_features_test", instead_of="sensitive_features"):
        y = torch.from_numpy(_encoded(fitted, truth))
        old, new, moved = reader.tried((before, after), y, groups, fitted.decisions_)
    rows = "test rows"
    known = [name for name, size in _sizes(fitted.before_).items() if size]
    notes = unmet_groups(rows, _sizes(old), known)
    return compared(fitted, rows, replace(old, notes=(*notes, *old.notes)), new, moved)


def _sizes(audit: Audit) -> dict[str, int]:
    return {str(name): int(size) for name, size in audit.by_group["count"].items()}


def on_held_out_rows(fitted: FairIJ) -> Comparison | None:
    """The validation rows that `FairIJ` held out; None if there are none."""
    if fitted.holdout_before_ is None or fitted.holdout_after_ is None:
        return None
    held = fitted.holdout_before_, fitted.holdout_after_, fitted.holdout_changes_
    return compared(fitted, "held-out rows", *held)


def unedited(fitted: FairIJ) -> FairIJ:
    """The same result, but it predicts with the unedited model."""
    before = copy.copy(fitted)
    before.estimator_, before.decisions_ = fitted.estimator, (fitted.decisions_[0],) * 2
    return before


def _encoded(fitted: FairIJ, truth: NDArray[Any]) -> NDArray[Any]:
    """Labels as numbers of the model's classes; in regression the values."""
    if not fitted.loss_.is_classification:
        return numbers("y_test", truth)
    classes = fitted.classes_.tolist()
    unknown = sorted(set(truth.tolist()) - set(classes), key=str)
    if unknown:
        raise InvalidInputError(
            f"`y_test` must hold the labels that the model knows, {classes}; "
            f"got {unknown[:3]}. Encode them in the same way as the training labels."
        )
    place = {label: code for code, label in enumerate(classes)}
    return np.array([place[label] for label in truth.tolist()], dtype=np.int64)
