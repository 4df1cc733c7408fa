"""An audit: the usual metrics of a set of predictions, each with an interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from fairij.errors import InvalidInputError
from fairij.fairness.groups import (
    Groups,
    as_frame,
    encode_groups,
    numbers,
    relative,
    vector,
    weights,
)
from fairij.fairness.missing import incomplete_resamples, undefined_rates
from fairij.fairness.rates import (
    AUDITED_RATES,
    GAPS,
    RATES,
    confusion_counts,
    group_means,
    measures,
    ratio_of,
)

Array = NDArray[np.float64]
Interval = tuple[float, float, float]
COLUMNS = ["value", "low", "high"]
MOST_RESAMPLES = 10**6
RESAMPLED = 2**23  # numbers in the tables that are drawn at a time


def _frame(rows: dict[str, Interval]) -> pd.DataFrame:
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=COLUMNS)
    frame.index.name = "metric"
    return frame


@dataclass(frozen=True)
class Audit:
    """Metrics with percentile-bootstrap intervals, and rates with Wilson's (of means, normal) ones.

    ``audit[name]`` is the value of a metric, also of one in ``more``. A rate over no rows is NaN,
    and so is every gap that needs it; ``undefined`` says in words which rows are missing. Intervals
    come from the resamples that have all the rows that a metric needs; ``notes`` says if some lack
    them.
    """

    metrics: pd.DataFrame  # index: metric; columns: value, low, high
    by_group: pd.DataFrame  # index: group
    confidence: float
    group_intervals: pd.DataFrame  # index: group, rate; columns: value, low, high
    positive_label: Any = None  # of two labels, the one whose rates are given
    more: pd.DataFrame = field(default_factory=partial(_frame, {}))  # like `metrics`: other gaps
    undefined: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __getitem__(self, metric: str) -> float:
        return self.interval(metric)[0]

    def __contains__(self, metric: object) -> bool:
        return metric in self.metrics.index or metric in self.more.index

    def interval(self, metric: str) -> Interval:
        """``(value, low, high)`` of a metric."""
        frame = self.metrics if metric in self.metrics.index else self.more
        value, low, high = (float(frame[column][metric]) for column in COLUMNS)
        return value, low, high

    def showing(self, metric: str) -> Audit:
        """The same audit with a metric of ``more`` among ``metrics``; itself if there is none."""
        if metric not in self.more.index:
            return self
        together = pd.concat([self.metrics, self.more.loc[[metric]]])
        return replace(self, metrics=together, more=self.more.drop(metric))

    def to_dict(self) -> dict[str, float]:
        """The values of ``metrics`` alone, by name."""
        return {str(name): float(value) for name, value in self.metrics["value"].items()}


@dataclass(frozen=True)
class Labelled:
    """True and predicted classes as indices into ``classes``, with groups and weights."""

    y_true: NDArray[np.int64]
    y_pred: NDArray[np.int64]
    groups: Groups
    classes: NDArray[Any]
    sample_weight: Array | None

    def counts(self, weight: Array | None) -> Array:
        """The table of confusion counts, ``(G, C, C)``, with these weights.

        There is one more group if some rows have none.
        """
        count = partial(
            confusion_counts,
            self.y_true,
            self.y_pred,
            n_groups=self.groups.slots,
            n_classes=len(self.classes),
        )
        codes = self.groups.codes
        if self.groups.chances is None:
            return count(codes, sample_weight=weight)
        # each row counts for several groups
        parts = enumerate(self.groups.membership(weight).T)
        tables = [count(np.full_like(codes, code), sample_weight=own) for code, own in parts]
        return np.sum(tables, axis=0)

    @property
    def squares(self) -> Array:
        """The sums of squared weights of the rows that have a group; counts if all are alike."""
        weight, size = self.sample_weight, len(self.groups.names)
        if self.groups.chances is not None:
            one = self.groups.chances * (1 if weight is None else weight[:, None])
            squared = replace(self.groups, chances=one**2)
            return replace(self, groups=squared).counts(None)[:size]
        return self.known if weight is None else self.counts(weight**2)[:size]

    @property
    def known(self) -> Array:
        """The table of the rows that have a group."""
        return self.table[: len(self.groups.names)]

    @property
    def table(self) -> Array:
        return self.counts(self.sample_weight)

    def about(self, pos_label: Any) -> Labelled:
        """The same with this label as the favourable one: the second of two."""
        if pos_label is None:
            return self
        names = [str(name) for name in self.classes.tolist()]
        if len(names) != 2 or np.ndim(pos_label) or str(pos_label) not in names:
            raise InvalidInputError(
                "`pos_label` must be one of two labels that rows have; got "
                f"{pos_label!r}, and labels {self.classes.tolist()[:8]}."
            )
        if str(pos_label) == names[1]:
            return self
        truth, predicted, classes = 1 - self.y_true, 1 - self.y_pred, self.classes[::-1]
        return replace(self, y_true=truth, y_pred=predicted, classes=classes)

    def resampled(self, n_resamples: int, rng: np.random.Generator) -> Array:
        """Tables of rows drawn with replacement; without weights they are multinomial draws."""
        if self.sample_weight is None and self.groups.chances is None:
            table, n = self.table, len(self.y_true)
            draws = rng.multinomial(n, (table / n).ravel(), size=n_resamples)
            return draws.reshape(n_resamples, *table.shape).astype(np.float64)
        n = len(self.y_true)
        weight = np.ones(n) if self.sample_weight is None else self.sample_weight
        times = (np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(n_resamples))
        return np.stack([self.counts(weight * often) for often in times])

    def drawn(self, n_resamples: int, rng: np.random.Generator) -> dict[str, Array]:
        """Every performance and gap of rows drawn with replacement, ``(R,)`` each.

        Tables of many groups are drawn in parts, so that memory is bounded.
        """
        step = max(1, RESAMPLED // self.table.size)
        sizes = [min(step, n_resamples - first) for first in range(0, n_resamples, step)]
        groups = len(self.groups.names)
        parts = [measures(self.resampled(size, rng), groups) for size in sizes]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def rate_intervals(self, confidence: float = 0.95) -> dict[str, Array]:
        """``value, low, high`` of each group, ``(3, G)``, for every audited rate and class."""
        table, found = self.known, dict[str, Array]()
        squares = self.squares
        for rate in AUDITED_RATES:
            values = rate.of_groups(table, strict=True)  # (G, K)
            # Kish: a weighted rate is worth (sum w)^2 / sum w^2 rows
            size = ratio_of(rate.rows(table) ** 2, rate.rows(squares), empty=0)
            ends = np.stack([values, *wilson(values, size, confidence)])  # (3, G, K)
            found |= rate.by_class(ends, self.classes)
        return found


def label(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    missing_groups: str = "error",
) -> Labelled:
    """Check and encode what every classification metric takes."""
    truth = vector("y_true", y_true)
    predicted = vector("y_pred", y_pred, len(truth))
    n = len(truth)
    groups = encode_groups(sensitive_features, expected_rows=n, missing=missing_groups)
    weight = weights(sample_weight, n)
    if groups.weight is not None:
        weight = groups.weight if weight is None else weight * groups.weight
        groups = replace(groups, weight=None)
    if predicted.dtype.kind == "f" and not np.isin(predicted, truth).all():
        wrong = predicted[predicted != predicted.round()][:1]
        if len(wrong):
            raise InvalidInputError(
                f"`y_pred` must hold predicted labels, got the fraction {wrong[0]:g}: turn "
                "probabilities into labels first, as in `p > 0.5`."
            )
    values = np.concatenate([truth, predicted])
    try:
        classes, codes = np.unique(values, return_inverse=True)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values.tolist()})
        raise InvalidInputError(
            "`y_true` and `y_pred` must hold labels of one kind, got a mixture of "
            f"{' and '.join(kinds)}: encode both alike."
        ) from None
    if len(classes) == 1:  # a second class makes the rates well defined; 0 and -1 are negative
        only = classes[0]
        if only in (0, -1):
            classes = np.array([only, 1])
        else:
            classes, codes = np.array([0 if only == 1 else f"not {only}", only]), codes + 1
    elif len(classes) == 2 and set(classes.tolist()) == {-1, 0}:
        raise InvalidInputError("Labels -1 and 0 do not say which is positive; use 0 and 1.")
    return Labelled(codes[: len(truth)], codes[len(truth) :], groups, classes, relative(weight))


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
    missing_groups: str = "error",
) -> Audit:
    """Audit class predictions. Of two labels the larger one is positive.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (N,)
        True and predicted labels.
    sensitive_features : array-like of shape (N,) or (N, columns)
        The group of each row. Several columns mean their intersection. `GroupChances` are
        groups that are known as chances only.
    sample_weight : array-like of shape (N,), default=None
        The weight of each row.
    n_resamples : int, default=1000
        How often rows are drawn for the intervals.
    confidence : float, default=0.95
        The confidence of the intervals.
    random_state : int or None, default=0
        The seed of the draws.
    class_names : sequence, default=None
        Of labels 0 and 1: what they stand for, in sentences and as the positive label.
    pos_label : label, default=None
        The favourable one of two labels, whose rates are given. None: the larger one.
    missing_groups : {"error", "ignore"}, default="error"
        "ignore": rows without a group count for the performance, and take no part in gaps.
    """
    _check_settings(n_resamples, confidence)
    data = label(
        y_true,
        y_pred,
        sensitive_features=sensitive_features,
        sample_weight=sample_weight,
        missing_groups=missing_groups,
    ).about(pos_label)
    draws = data.drawn(n_resamples, _generator(random_state))
    names = data.classes.tolist()
    if class_names is not None and len(class_names) == len(names) == 2:
        names = list(class_names)
    found = _audit(
        measures(data.table, len(data.groups.names)),
        draws,
        data.rate_intervals(confidence),
        data.groups,
        confidence,
    )
    rows = data.counts(None)[: len(data.known)]
    missing = undefined_rates(rows, data.known, data.groups.names, names)
    positive = names[1] if len(names) == 2 else None
    notes = (*found.notes, *without_group(data.groups))
    return replace(found, positive_label=positive, undefined=missing, notes=notes)


def without_group(groups: Groups) -> tuple[str, ...]:
    """A sentence on rows without a group, and one on groups that are chances."""
    told = []
    if groups.missing:
        told.append(
            f"{groups.missing:,} of {len(groups):,} rows have no group. They count for the "
            "accuracy and take no part in rates of groups and gaps. If groups are missing more "
            "often for some people than for others, these figures are biased."
        )
    if groups.chances is not None:
        told.append(
            "Groups are known as chances only. Gaps that are measured by such proxies are biased "
            "(Chen et al. 2019, Kallus et al. 2022), and intervals do not show it."
        )
    return tuple(told)


def audit_regression(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    n_resamples: int = 200,
    confidence: float = 0.95,
    random_state: int | None = 0,
    missing_groups: str = "error",
) -> Audit:
    """Audit predictions of numbers. Parameters are those of `audit`."""
    _check_settings(n_resamples, confidence)
    truth = numbers("y_true", y_true)
    predicted, n = numbers("y_pred", y_pred, len(truth)), len(truth)
    groups = encode_groups(sensitive_features, expected_rows=n, missing=missing_groups)
    if groups.chances is not None or groups.weight is not None:
        raise InvalidInputError(
            "`sensitive_features` of numbers must be one group for each row, without weights: "
            "chances of groups and weights are for classification."
        )
    squares, rng = (predicted - truth) ** 2, _generator(random_state)

    def of_rows(rows: NDArray[np.int64]) -> dict[str, Array]:
        data = (predicted[rows], truth[rows], groups.take(rows))
        gaps = (gap for gap in GAPS.values() if not gap.is_classification)
        return {"mean_squared_error": squares[rows].mean()} | {
            gap.metric_name: gap.of_means(*data, strict=True) for gap in gaps
        }

    drawn = pd.DataFrame([of_rows(rng.integers(n, size=n)) for _ in range(n_resamples)])
    draws = {str(name): column.to_numpy() for name, column in drawn.items()}
    means = [rate for rate in RATES.values() if rate.shown and not rate.is_classification]
    values = {rate.name: rate.values(predicted, truth) for rate in means}
    values["mean_squared_error"] = squares
    intervals = {name: _mean_interval(v, groups, confidence) for name, v in values.items()}
    found = _audit(of_rows(np.arange(n)), draws, intervals, groups, confidence)
    return replace(found, notes=(*found.notes, *without_group(groups)))


def bootstrap(
    metric: Callable[..., float],
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    random_state: int | None = 0,
) -> Interval:
    """``(value, low, high)`` of any metric with fairlearn's signature, by resampling rows.

    The metric gets the groups as they were given: one column as an array, several as a DataFrame.
    """
    _check_settings(n_resamples, confidence)
    truth = vector("y_true", y_true)
    predicted, n = vector("y_pred", y_pred, len(truth)), len(truth)
    groups = as_frame(sensitive_features, expected_rows=n).reset_index(drop=True)
    one = groups.iloc[:, 0].to_numpy() if groups.shape[1] == 1 else None

    def of_rows(rows: NDArray[np.int64]) -> float:
        seen = groups.iloc[rows].reset_index(drop=True) if one is None else one[rows]
        return float(metric(truth[rows], predicted[rows], sensitive_features=seen))

    rng = _generator(random_state)
    draws = np.array([of_rows(rng.integers(n, size=n)) for _ in range(n_resamples)])
    return (of_rows(np.arange(n)), *_percentiles(draws, confidence))


def wilson(rate: Array, size: Array, confidence: float) -> tuple[Array, Array]:
    """Wilson's interval for a share of ``size`` rows; not a point if all or none were selected."""
    z = float(norm.ppf((1 + confidence) / 2))
    whole = size + z**2
    middle = (rate * size + z**2 / 2) / whole
    half = z * np.sqrt(rate * (1 - rate) * size + z**2 / 4) / whole
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)


def _mean_interval(values: Array, groups: Groups, confidence: float) -> Array:
    """The mean of each group and ``mean -+ z s / sqrt(n)``, ``(3, G)``."""
    values, groups = values[groups.known], groups.take(groups.known)
    mean, z = group_means(values, groups), float(norm.ppf((1 + confidence) / 2))
    spread = group_means((values - mean[groups.codes]) ** 2, groups)
    half = z * np.sqrt(ratio_of(spread, groups.sizes - 1.0, empty=np.nan))
    return np.stack([mean, mean - half, mean + half])


def rates_frame(intervals: dict[str, Array], groups: Groups) -> pd.DataFrame:
    """The size and the rates of each group."""
    columns = {"count": groups.sizes} | {name: ends[0] for name, ends in intervals.items()}
    return pd.DataFrame(columns, index=pd.Index(groups.names, name="group"))


def _audit(
    values: dict[str, Array],
    draws: dict[str, Array],  # (R,)
    intervals: dict[str, Array],  # (3, G)
    groups: Groups,
    confidence: float,
) -> Audit:
    """Metrics that audits show and the other gaps; rates with one line per group and rate."""
    frame = _frame({k: (float(v), *_percentiles(draws[k], confidence)) for k, v in values.items()})
    gaps = list(GAPS.values())
    shown = {gap.metric_name for gap in gaps if gap.audited}
    hidden = frame.index.isin([gap.metric_name for gap in gaps if gap.metric_name not in shown])
    index = pd.MultiIndex.from_product([groups.names, list(intervals)], names=["group", "rate"])
    ends = np.stack(list(intervals.values()), -1).reshape(3, -1)  # (3, G * R)
    by_group, rates = rates_frame(intervals, groups), pd.DataFrame(ends.T, index, COLUMNS)
    notes = incomplete_resamples({name: draws[name] for name in frame.index[~hidden]})
    return Audit(frame[~hidden], by_group, confidence, rates, None, frame[hidden], (), notes)


def _check_settings(n_resamples: int, confidence: float) -> None:
    whole = isinstance(n_resamples, (int, np.integer)) and not isinstance(n_resamples, bool)
    if not whole or not 1 <= n_resamples <= MOST_RESAMPLES:
        raise InvalidInputError(
            f"`n_resamples` must be a whole number, at least 1 and at most {MOST_RESAMPLES}, got "
            f"{n_resamples!r}."
        )
    number = isinstance(confidence, (int, float, np.integer, np.floating))
    if not number or not 0 < confidence < 1:
        raise InvalidInputError(f"`confidence` must lie between 0 and 1, got {confidence!r}.")


def _generator(random_state: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"`random_state` must be a whole number of at least 0, None or a generator of numpy, "
            f"got {random_state!r} ({error})."
        ) from None


def _percentiles(draws: Array, confidence: float) -> tuple[float, float]:
    """The interval that holds a share ``confidence`` of the draws with a defined metric."""
    defined = draws[~np.isnan(draws)]
    if len(defined) == 0:
        return np.nan, np.nan
    tail = (1 - confidence) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)
