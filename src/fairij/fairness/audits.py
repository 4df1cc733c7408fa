"""An audit: the usual metrics of a set of predictions, each with an interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from fairij.errors import InvalidInputError, printable
from fairij.fairness.calibration import calibration_curves
from fairij.fairness.counted import Interval
from fairij.fairness.decisions import TopShare
from fairij.fairness.groups import Groups, MissingGroups, encode_groups, numbers
from fairij.fairness.intervals import Compared
from fairij.fairness.labelled import Labelled, label
from fairij.fairness.missing import small_cells, small_groups, undefined_rates, without_group
from fairij.fairness.quantiles import t_quantile
from fairij.fairness.rates import GAPS, RATES, Array, group_means, ratio_of
from fairij.fairness.resampling import check_settings
from fairij.fairness.score_audits import (
    Scores,
    accepted,
    by_group,
    look_like_scores,
    read_scores,
)
from fairij.fairness.subgroups import Subgroups, find_subgroups
from fairij.fairness.view_audits import frame_of, means_of_views, views_of
from fairij.fairness.views import Seen, cells_of, collapsed

COLUMNS = ["value", "low", "high"]


def _frame(rows: Mapping[str, Interval]) -> pd.DataFrame:
    frame = pd.DataFrame.from_dict(dict(rows), orient="index", columns=COLUMNS, dtype=float)
    frame.index.name = "metric"
    return frame


def _copied(make: Callable[[], pd.DataFrame]) -> Callable[[], pd.DataFrame]:
    """Copies of an empty frame, which takes long to make."""
    made = cache(make)
    return lambda: made().copy()


_EMPTY = _copied(partial(_frame, {}))
_NO_GROUPS = _copied(partial(by_group, {}))
_NO_VIEWS = partial(frame_of, [])


@dataclass(frozen=True, repr=False)
class Audit:
    """Metrics with intervals that hold in small groups too; see `fairij.fairness.intervals`.

    ``audit[name]`` is the value of a metric, also of one in ``ratios``, ``scores`` or ``more``. A
    rate over no rows is NaN, and so is every gap that needs it; ``undefined`` says in words which
    rows are missing. ``notes`` says which groups have few rows. ``scores`` has AUC, log loss, Brier
    score and calibration where scores are known, and ``group_scores`` those of each group.
    ``views`` has the gaps and ratios of each stratum of control features, or of each sensitive
    column if marginals were asked for.

    Examples
    --------
    >>> found = audit([0, 1, 1, 0], [0, 1, 0, 0], sensitive_features=["f", "m", "f", "m"])
    >>> found["accuracy"]
    0.75
    >>> found.by_group["selection_rate"].to_dict()
    {'f': 0.0, 'm': 0.5}
    """

    metrics: pd.DataFrame  # index: metric; columns: value, low, high
    by_group: pd.DataFrame  # index: group
    confidence: float
    group_intervals: pd.DataFrame  # index: group, rate; columns: value, low, high
    positive_label: Any = None  # of two labels, the one whose rates are given
    more: pd.DataFrame = field(default_factory=_EMPTY)  # like `metrics`: other gaps and ratios
    undefined: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ratios: pd.DataFrame = field(default_factory=_EMPTY)  # like `metrics`: lowest to highest rate
    scores: pd.DataFrame = field(default_factory=_EMPTY)  # like `metrics`, of scores if known
    group_scores: pd.DataFrame = field(default_factory=_NO_GROUPS)  # index: group, measure
    calibration: pd.DataFrame | None = None  # a line for each group and bin of scores, if known
    subgroups: Subgroups | None = None  # if ``attributes`` were given
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)  # index: group; column: constraint
    views: pd.DataFrame = field(default_factory=_NO_VIEWS)  # index: stratum or column, metric

    def __getitem__(self, metric: str) -> float:
        return self.interval(metric)[0]

    def __contains__(self, metric: object) -> bool:
        return any(metric in frame.index for frame in self._frames)

    @property
    def _frames(self) -> tuple[pd.DataFrame, ...]:
        return self.metrics, self.ratios, self.scores, self.more

    def interval(self, metric: str) -> Interval:
        """``(value, low, high)`` of a metric."""
        frame = next((f for f in self._frames if metric in f.index), self.more)
        value, low, high = frame.to_numpy()[frame.index.get_loc(metric)]  # quicker than by column
        return float(value), float(low), float(high)

    def showing(self, metric: str) -> Audit:
        """The same audit with a metric of ``more`` among ``metrics``; itself if there is none."""
        if metric not in self.more.index:
            return self
        together = pd.concat([self.metrics, self.more.loc[[metric]]])
        return replace(self, metrics=together, more=self.more.drop(metric))

    def to_dict(self) -> dict[str, float]:
        """The values of ``metrics`` alone, by name."""
        return {str(name): float(value) for name, value in self.metrics["value"].items()}

    def __repr__(self) -> str:
        """The metrics and the rates of the groups, as tables of text."""
        together = pd.concat([self.metrics, *(f for f in (self.ratios, self.scores) if len(f))])
        tables = (together, self.by_group)
        return printable("\n\n".join(table.to_string(float_format="%.4f") for table in tables))

    def _repr_html_(self) -> str:  # for notebooks
        from fairij.report.audit_summary import summary_html

        return summary_html(self)


def audit(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    random_state: int | None = 0,
    class_names: Sequence[Any] | None = None,
    pos_label: Any = None,
    missing_groups: MissingGroups = "error",
    scores: Any = None,
    threshold: float | TopShare | None = None,
    attributes: Any = None,
    control_features: Any = None,
    marginals: bool = False,
) -> Audit:
    """Audit predicted labels or scores of any model. Of two labels the larger one is positive.

    A notebook shows the result as a table; `fairij.report.write_audit` makes a page of it.

    Parameters
    ----------
    y_true : array-like of shape (N,)
        True labels.
    y_pred : array-like of shape (N,) or (N, 2)
        Predicted labels; or chances of the larger of two labels, or what ``predict_proba`` gives.
    sensitive_features : array-like of shape (N,) or (N, columns)
        The group of each row. Several columns mean their intersection. `GroupChances` are
        groups that are known as chances only.
    sample_weight : array-like of shape (N,), default=None
        The weight of each row.
    n_resamples : int, default=1000
        Without effect: intervals are formulas. Kept for programs that give it.
    confidence : float, default=0.95
        The confidence of the intervals.
    random_state : int or None, default=0
        Without effect, as ``n_resamples``.
    class_names : sequence, default=None
        Of labels 0 and 1: what they stand for, in sentences and as the positive label.
    pos_label : label, default=None
        The favourable one of two labels, whose rates are given. None: the larger one.
    missing_groups : {"error", "ignore"}, default="error"
        "ignore": rows without a group count for the performance, and take no part in gaps.
    scores : array-like of shape (N,) or (N, 2), default=None
        Chances of the larger label, next to predicted labels.
    threshold : float, TopShare or None, default=None
        Accept rows whose chance of the favourable label is at least this, or a share of the rows.
        Only if ``y_pred`` are chances. None: a chance above 0.5.
    attributes : array-like of shape (N, columns), default=None
        Columns in whose values, also where up to three of them meet, groups are searched that are
        treated unlike all other rows. P-values are corrected for all that was compared (Holm).
    control_features : array-like of shape (N,) or (N, columns), default=None
        Strata. Gaps are also measured within each of them (``views``), and their mean by rows is
        among ``more``, as in ``demographic_parity_difference_within_strata``.
    marginals : bool, default=False
        Of several sensitive columns: also measure the gaps of each column by itself (``views``).

    Examples
    --------
    >>> found = audit(y_val, model.predict(X_val), sensitive_features=groups_val)
    >>> value, low, high = found.interval("demographic_parity_difference")
    >>> low < value < high
    True
    """
    check_settings(n_resamples, confidence, random_state)
    rows = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
    rows["missing_groups"] = missing_groups
    cells = encode_groups(sensitive_features, missing=missing_groups)
    cells = cells_of(
        cells if cells.views else sensitive_features,
        missing=missing_groups,
        control_features=control_features,
        marginals=marginals,
    )
    rows["sensitive_features"] = collapsed(cells)
    if scores is None and look_like_scores(y_true, y_pred):
        data, scored = _decided(y_true, y_pred, threshold, pos_label, rows)
    elif threshold is not None:
        raise InvalidInputError(
            "`threshold` must go with chances in `y_pred`, and there are labels, which are "
            "decisions already: leave it out."
        )
    else:
        data = label(y_true, y_pred, **rows)
        p = None if scores is None else read_scores("scores", scores, len(data.y_true))
        data, scored = _favoured(data, p, pos_label)
    names = data.classes.tolist()
    if class_names is not None and len(class_names) == len(names) == 2:
        names = list(class_names)
    counted, groups = data.counted, data.groups
    counts = data.counts(None)[: len(groups.names)]
    found = _audit(
        counted.metrics(confidence),
        counted.rate_intervals(data.classes, confidence),
        groups,
        confidence,
    )
    ratios = _frame(counted.ratios(confidence))
    is_shown = ratios.index.isin([f"{gap.name}_ratio" for gap in GAPS.values() if gap.audited])
    if scored is not None:
        of_all, of_groups = scored.measures(confidence)
        curves = calibration_curves(scored, confidence)
        found = replace(found, scores=of_all, group_scores=of_groups, calibration=curves)
    of_views, together = views_of(data, cells, confidence)
    found = replace(found, views=of_views, more=pd.concat([found.more, _frame(together)]))
    return replace(
        found,
        positive_label=names[1] if len(names) == 2 else None,
        more=pd.concat([found.more, ratios[~is_shown]]),
        ratios=ratios[is_shown],
        rows=pd.DataFrame(counted.fewest_rows(), index=found.by_group.index),
        undefined=undefined_rates(counts, counted.known, groups.names, names),
        notes=(*small_cells(counts, groups.names, names), *without_group(groups)),
        subgroups=None if attributes is None else find_subgroups(data, attributes, confidence),
    )


def _favoured(data: Labelled, p: Array | None, pos_label: Any) -> tuple[Labelled, Scores | None]:
    """The rows about the favourable label; ``p`` are chances of the second one."""
    if p is not None and len(data.classes) != 2:
        raise InvalidInputError(
            f"`scores` must go with two labels, and there are {len(data.classes)}: leave them out."
        )
    about = data.about(pos_label)
    if p is None:
        return about, None
    chance = 1 - p if about is not data else p
    return about, Scores(chance, about.y_true, about.groups, about.sample_weight)


def _decided(
    y_true: Any, y_pred: Any, threshold: Any, pos_label: Any, rows: Mapping[str, Any]
) -> tuple[Labelled, Scores | None]:
    """The rows with the decisions that follow from chances of the larger label."""
    truth = label(y_true, y_true, **rows)
    data, scored = _favoured(truth, read_scores("y_pred", y_pred, len(truth.y_true)), pos_label)
    assert scored is not None
    made = accepted(scored.chance, threshold, scored.weight).astype(np.int64)
    return replace(data, y_pred=made), scored


def audit_regression(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    n_resamples: int = 200,
    confidence: float = 0.95,
    random_state: int | None = 0,
    missing_groups: MissingGroups = "error",
    control_features: Any = None,
    marginals: bool = False,
) -> Audit:
    """Audit predictions of numbers. Parameters are those of `audit`."""
    check_settings(n_resamples, confidence, random_state)
    truth = numbers("y_true", y_true)
    predicted, n = numbers("y_pred", y_pred, len(truth)), len(truth)
    groups = encode_groups(sensitive_features, expected_rows=n, missing=missing_groups)
    cells = cells_of(
        groups if groups.views else sensitive_features,
        missing=missing_groups,
        control_features=control_features,
        marginals=marginals,
    )
    groups = collapsed(cells)
    if groups.chances is not None or groups.weight is not None:
        raise InvalidInputError(
            "`sensitive_features` of numbers must be one group for each row, without weights: "
            "chances of groups and weights are for classification."
        )
    squares = (predicted - truth) ** 2
    means = [rate for rate in RATES.values() if rate.shown and not rate.is_classification]
    values = {rate.name: rate.values(predicted, truth) for rate in means}
    intervals = {
        name: _mean_interval(v, groups, confidence)
        for name, v in (values | {"mean_squared_error": squares}).items()
    }
    every = Groups(np.zeros(n, dtype=np.int64), ("all",))
    of_all = _mean_interval(squares, every, confidence)[:, 0]
    metrics: dict[str, Interval] = {"mean_squared_error": tuple(of_all.tolist())}
    for gap in GAPS.values():
        if not gap.is_classification:
            each = [_means(values[rate.name], groups) for rate in gap.rates]
            mean, error = (np.stack(part, -1) for part in zip(*each, strict=True))
            compared = Compared.means(mean, error, groups.sizes[:, None].astype(np.float64))
            low, high = compared.gap(gap.fold, confidence)
            value = float(gap.of_means(predicted, truth, groups, strict=True))
            metrics[gap.metric_name] = value, min(float(low), value), max(float(high), value)
    found = _audit(metrics, intervals, groups, confidence)

    def of_part(part: Seen) -> Audit:
        given = (truth[part.rows], predicted[part.rows])
        return audit_regression(*given, sensitive_features=part.groups, confidence=confidence)

    of_views, together = means_of_views(cells, of_part)
    found = replace(found, views=of_views, more=pd.concat([found.more, _frame(together)]))
    return replace(
        found,
        rows=pd.DataFrame(
            {gap.name: groups.sizes for gap in GAPS.values() if not gap.is_classification},
            index=list(groups.names),
        ),
        notes=(*small_groups(groups.sizes.tolist(), groups.names), *without_group(groups)),
    )


def _means(values: Array, groups: Groups) -> tuple[Array, Array]:
    """The mean of each group and its standard error, ``(G,)`` each; NaN for one row."""
    values, groups = values[groups.known], groups.take(groups.known)
    mean = group_means(values, groups)
    spread = group_means((values - mean[groups.codes]) ** 2, groups)
    return mean, np.sqrt(ratio_of(spread, groups.sizes - 1.0, empty=np.nan))


def _mean_interval(values: Array, groups: Groups, confidence: float) -> Array:
    """The mean of each group and Student's interval of it, ``(3, G)``."""
    mean, error = _means(values, groups)
    half = t_quantile((1 - confidence) / 2, np.maximum(groups.sizes - 1, 1)) * error
    return np.stack([mean, mean - half, mean + half])


def rates_frame(intervals: Mapping[str, Array], groups: Groups) -> pd.DataFrame:
    """The size and the rates of each group."""
    columns = {"count": groups.sizes} | {name: ends[0] for name, ends in intervals.items()}
    return pd.DataFrame(columns, index=pd.Index(groups.names, name="group"))


def _audit(
    metrics: Mapping[str, Interval],
    intervals: Mapping[str, Array],  # (3, G)
    groups: Groups,
    confidence: float,
) -> Audit:
    """Metrics that audits show and the other gaps; rates with one line per group and rate."""
    frame, gaps = _frame(metrics), list(GAPS.values())
    shown = {gap.metric_name for gap in gaps if gap.audited}
    hidden = frame.index.isin([gap.metric_name for gap in gaps if gap.metric_name not in shown])
    index = pd.MultiIndex.from_product([groups.names, list(intervals)], names=["group", "rate"])
    ends = np.stack(list(intervals.values()), -1).reshape(3, -1)  # (3, G * R)
    rates = pd.DataFrame(ends.T, index, COLUMNS)
    by_group = rates_frame(intervals, groups)
    return Audit(frame[~hidden], by_group, confidence, rates, more=frame[hidden])
