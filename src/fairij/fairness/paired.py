"""Two models on the same rows: what changed, and how sure that is.

The same rows are measured twice, so most of the chance in one measure is in the other one too. The
interval of a change knows this. With the intervals ``(l, u)`` and ``(l', u')`` of a measure before
and after, and the correlation ``r`` of the two, its ends are (Zou 2008)

    d - sqrt((v' - l')^2 + (u - v)^2 - 2 r (v' - l') (u - v)),   d = v' - v,

and the same with the other ends. ``r`` comes from the infinitesimal jackknife: how far each row
moves either measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.fairness.audits import Audit
from fairij.fairness.groups import Groups, MissingGroups, encode_groups, numbers
from fairij.fairness.intervals import wilson
from fairij.fairness.labelled import Labelled, label
from fairij.fairness.rates import (
    FALSE_POSITIVE_RATE,
    GAPS,
    RATES,
    SELECTION_RATE,
    TRUE_POSITIVE_RATE,
    Array,
    group_means,
    measures,
    ratio_of,
)
from fairij.fairness.score_changes import score_changes

COLUMNS = ["before", "after", "change", "low", "high"]
OF_ALL = (SELECTION_RATE, TRUE_POSITIVE_RATE, FALSE_POSITIVE_RATE)  # measured for all rows together
NUDGE = 1e-4  # of a row, to see how far it moves a measure
MOST_CELLS = 2048  # group, label and prediction; of more, both measures count as independent
Ends = tuple[float, float, float]  # value, low, high


@dataclass(frozen=True)
class Paired:
    """What became of measures and of decisions when one model took the place of another.

    ``decisions`` counts decisions that changed in each group: ``changed``, and of two labels
    ``to_positive`` and ``to_negative``. In regression it has the mean change of predictions,
    ``change``, and its mean size, ``moved``. With weights, rows count by them.
    """

    measures: pd.DataFrame  # index: measure; columns: before, after, change, low, high
    decisions: pd.DataFrame  # index: group; columns: rows, changed, to_positive, to_negative
    calibration: pd.DataFrame  # index: group; columns: before, after, low; empty without chances
    confidence: float
    largest_class: float = np.nan  # the share of the most frequent label

    def __contains__(self, measure: object) -> bool:
        return measure in self.measures.index

    def values(self, measure: str) -> tuple[float, float]:
        """A measure before and after."""
        before, after = (float(self.measures[name][measure]) for name in ("before", "after"))
        return before, after

    def change(self, measure: str) -> Ends:
        """``(change, low, high)`` of a measure: after less before."""
        value, low, high = (float(self.measures[name][measure]) for name in COLUMNS[2:])
        return value, low, high

    @property
    def changed(self) -> float:
        """The share of decisions that changed."""
        return float(self.decisions["changed"].sum() / self.decisions["rows"].sum())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which `from_dict` makes the same again."""
        frames = {name: getattr(self, name) for name in ("measures", "decisions", "calibration")}
        plain = {name: frame.to_dict(orient="index") for name, frame in frames.items()}
        return plain | {"confidence": self.confidence, "largest_class": self.largest_class}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Paired:
        def frame(name: str) -> pd.DataFrame:
            return pd.DataFrame.from_dict(dict(stored[name]), orient="index").astype(float)

        parts = frame("measures"), frame("decisions"), frame("calibration")
        largest = stored.get("largest_class")
        return cls(*parts, float(stored["confidence"]), np.nan if largest is None else largest)


def paired(
    y_true: Any,
    predicted: tuple[Any, Any],
    audits: tuple[Audit, Audit],
    *,
    sensitive_features: Any,
    chances: tuple[Array, Array] | None = None,
    codes: NDArray[np.int64] | None = None,
    sample_weight: Any = None,
    missing_groups: MissingGroups = "error",
) -> Paired:
    """Compare class predictions before and after.

    Parameters
    ----------
    y_true : array-like of shape (N,)
        True labels.
    predicted, audits : pair
        Predicted labels before and after, and their audits.
    sensitive_features, sample_weight, missing_groups
        As in `audit`.
    chances : pair of arrays of shape (N,) or (N, C), default=None
        Chances of the positive one of two labels, or of all classes.
    codes : array of int of shape (N,), default=None
        The true labels as numbers of the classes, or 1 for the positive one of two.
    """
    named = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
    rows = [label(y_true, p, **named, missing_groups=missing_groups) for p in predicted]
    first, last = _of_same_classes(*rows)
    weight = np.ones(len(first.y_true)) if first.sample_weight is None else first.sample_weight
    confidence = audits[0].confidence
    found = _counted_changes(first, last, weight, audits)
    calibration = pd.DataFrame()
    if chances is not None and codes is not None:
        of_scores, calibration = score_changes(chances, codes, first.groups, weight, confidence)
        found |= {name: _as_audited(name, row, audits) for name, row in of_scores.items()}
    shares = np.bincount(first.y_true, weight) / weight.sum()
    return Paired(
        pd.DataFrame.from_dict(found, orient="index", columns=COLUMNS, dtype=float),
        _decisions(first, last, weight),
        calibration,
        confidence,
        float(shares.max()),
    )


def paired_numbers(
    y_true: Any,
    predicted: tuple[Any, Any],
    audits: tuple[Audit, Audit],
    *,
    sensitive_features: Any,
    missing_groups: MissingGroups = "error",
) -> Paired:
    """Compare predictions of numbers before and after."""
    truth = numbers("y_true", y_true)
    before, after = (numbers("y_pred", p, len(truth)) for p in predicted)
    groups = encode_groups(sensitive_features, expected_rows=len(truth), missing=missing_groups)
    found = {}
    for name in [str(name) for name in audits[0].metrics.index]:
        first, last = (_pulls_on(name, p, truth, groups) for p in (before, after))
        r = _correlation(first, last, np.ones(len(truth)))
        found[name] = _changed(audits[0].interval(name), audits[1].interval(name), r)
    spread = float(np.var(truth))
    if spread:
        mse = np.array(found["mean_squared_error"]) / spread
        found["r2"] = (1 - mse[0], 1 - mse[1], -mse[2], -mse[4], -mse[3])
    known = groups.take(groups.known)
    change = (after - before)[groups.known]
    decisions = {
        "rows": groups.sizes,
        "change": group_means(change, known),
        "moved": group_means(np.abs(change), known),
    }
    return Paired(
        pd.DataFrame.from_dict(found, orient="index", columns=COLUMNS, dtype=float),
        pd.DataFrame(decisions, index=pd.Index(groups.names, name="group"), dtype=float),
        pd.DataFrame(),
        audits[0].confidence,
    )


def _as_audited(
    name: str, row: tuple[float, ...], audits: tuple[Audit, Audit]
) -> tuple[float, ...]:
    """A change around the values that the audits have, which count in finer steps."""
    if name not in audits[0] or name not in audits[1]:
        return row
    before, after = (audit[name] for audit in audits)
    off = (after - before) - row[2]
    return (before, after, *(part + off for part in row[2:]))


def _of_same_classes(*rows: Labelled) -> tuple[Labelled, Labelled]:
    """Both with the classes of either, as one model may never predict a class."""
    classes = np.unique(np.concatenate([one.classes for one in rows]))
    first, last = (
        Labelled(
            np.searchsorted(classes, one.classes[one.y_true]),
            np.searchsorted(classes, one.classes[one.y_pred]),
            one.groups,
            classes,
            one.sample_weight,
        )
        for one in rows
    )
    return first, last


def _decisions(first: Labelled, last: Labelled, weight: Array) -> pd.DataFrame:
    """How many decisions changed in each group, and of two labels in which direction."""
    groups, names = first.groups, first.groups.names
    member = groups.membership(weight * (len(weight) / weight.sum()))[:, : len(names)]
    changed = first.y_pred != last.y_pred
    columns = {"rows": member.sum(0), "changed": changed @ member}
    if len(first.classes) == 2:
        columns["to_positive"] = (changed & (last.y_pred == 1)) @ member
        columns["to_negative"] = (changed & (last.y_pred == 0)) @ member
    return pd.DataFrame(columns, index=pd.Index(names, name="group"), dtype=float)


def _counted_changes(
    first: Labelled, last: Labelled, weight: Array, audits: tuple[Audit, Audit]
) -> dict[str, tuple[float, ...]]:
    """Every measure of the audits, and with two labels the rates of all rows together."""
    confidence, known = audits[0].confidence, len(first.groups.names)
    ends = [_all_ends(audit) for audit in audits]
    tables = [one.table for one in (first, last)]
    if len(first.classes) == 2:
        for one, of_rows in zip(ends, (first, last), strict=True):
            one |= _of_all(of_rows, confidence)
    both = [name for name in ends[0] if name in ends[1]]
    correlations = dict.fromkeys(both, 0.0)
    if first.groups.chances is None and tables[0].size <= MOST_CELLS:
        cells = [
            _slopes(table, known)
            for table in tables  # by measure: how far one more row of a cell moves it
        ]
        places = [(one.groups.codes, one.y_true, one.y_pred) for one in (first, last)]
        for name in both:
            if name in cells[0]:
                old, new = (of[name][at] for of, at in zip(cells, places, strict=True))
                correlations[name] = _correlation(old, new, weight)
    return {name: _changed(ends[0][name], ends[1][name], correlations[name]) for name in both}


def _all_ends(audit: Audit) -> dict[str, Ends]:
    frames = (audit.metrics, audit.ratios, audit.more)
    return {str(name): audit.interval(str(name)) for frame in frames for name in frame.index}


def _of_all(rows: Labelled, confidence: float) -> dict[str, Ends]:
    """The rates of all rows together with Wilson's intervals."""
    counted = rows.counted
    table, squares = (part.sum(0, keepdims=True) for part in (counted.table, counted.squares))
    found = {}
    for rate in OF_ALL:
        value = rate.of_groups(table, strict=True)[0, 0]
        size = ratio_of(rate.rows(table) ** 2, rate.rows(squares), empty=0)[0, 0]
        low, high = wilson(value, size, confidence)
        found[rate.name] = (float(value), float(low), float(high))
    return found


def _slopes(table: Array, known: int) -> dict[str, Array]:
    """The derivative of each measure by each cell of the table, ``(slots, C, C)``."""
    nudges = np.eye(table.size).reshape(-1, *table.shape) * NUDGE
    start, moved = _measured(table, known), _measured(table + nudges, known)
    return {name: ((moved[name] - start[name]) / NUDGE).reshape(table.shape) for name in start}


def _measured(table: Array, known: int) -> dict[str, Array]:
    of_groups = table[..., :known, :, :]
    found = measures(table, known) | {
        f"{gap.name}_ratio": gap.of_counts(of_groups, agg="worst_case", ratio=True)
        for gap in GAPS.values()
        if gap.is_classification and gap.name == gap.family and gap.form == "difference"
    }
    if table.shape[-1] == 2:
        together = table.sum(-3, keepdims=True)
        for rate in OF_ALL:
            found[rate.name] = rate.of_groups(together, strict=True)[..., 0, 0]
    return found


def _pulls_on(name: str, predicted: Array, truth: Array, groups: Groups) -> Array:
    """How far each row moves a measure of numbers, up to a factor."""
    if name == "mean_squared_error":
        squares = (predicted - truth) ** 2
        return squares - squares.mean()
    gap = next(gap for gap in GAPS.values() if gap.metric_name == name)
    rows, pulls = groups.known, np.zeros(len(truth))
    some = groups.take(rows)
    values = RATES[gap.rates[0].name].values(predicted, truth)[rows]
    means = group_means(values, some)
    sign = np.zeros(len(means))
    sign[np.argmin(means)], sign[np.argmax(means)] = -1, 1
    pulls[rows] = (sign / some.sizes)[some.codes] * (values - means[some.codes])
    return pulls


def _correlation(first: Array, last: Array, weight: Array) -> float:
    """The correlation of two measures that rows move so far; 0 where it is not known."""
    squares = weight**2
    both, one, other = (
        float((squares * a * b).sum()) for a, b in ((first, last), (first, first), (last, last))
    )
    if not np.isfinite(both) or one <= 0 or other <= 0:
        return 0.0
    return float(np.clip(both / np.sqrt(one * other), -1, 1))


def _changed(first: Ends, last: Ends, r: float) -> tuple[float, ...]:
    """``before, after, change, low, high``."""
    (v, low, high), (new, new_low, new_high) = first, last

    def margin(of_new: float, of_old: float) -> float:
        return float(np.sqrt(max(of_new**2 + of_old**2 - 2 * r * of_new * of_old, 0.0)))

    change = new - v
    return (
        v,
        new,
        change,
        change - margin(new - new_low, high - v),
        change + margin(new_high - new, v - low),
    )
