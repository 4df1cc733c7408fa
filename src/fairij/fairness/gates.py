"""A gate: limits of gaps and ratios that an audit must keep.

What could not be measured is never kept: a gap over a rate without rows, a group with too few rows,
or a group that is required and is not there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fairij.errors import InvalidInputError
from fairij.fairness.audits import Audit
from fairij.fairness.missing import SMALL_CELL
from fairij.fairness.names import OWN, read_as
from fairij.fairness.rates import GAPS, ConstraintName

Kind = Literal["gap", "ratio"]
Outcome = Literal["kept", "broken", "not measured"]
USUAL = "demographic_parity"  # what a limit without a name is about
PARAMETERS: dict[Kind, str] = {"gap": "max_gap", "ratio": "min_ratio"}


@dataclass(frozen=True)
class Limit:
    """A gap that may be at most ``bound``, or a ratio that must be at least that."""

    kind: Kind
    constraint: str
    bound: float

    @property
    def metric(self) -> str:
        """The name of the metric in audits."""
        gap = GAPS[self.constraint]
        return gap.metric_name if self.kind == "gap" else f"{gap.family}_ratio"

    @property
    def words(self) -> str:
        """The limit in words, as "equal opportunity gap at most 0.05"."""
        if self.kind == "gap":
            return f"{GAPS[self.constraint].words} at most {self.bound:g}"
        return f"{GAPS[self.constraint].family.replace('_', ' ')} ratio at least {self.bound:g}"


@dataclass(frozen=True)
class Judged:
    """A limit, what was measured, and whether it is kept."""

    limit: Limit
    value: float
    low: float
    high: float
    outcome: Outcome
    text: str


@dataclass(frozen=True)
class Gate:
    """All limits with their outcomes. It has passed only if every one is kept."""

    judged: tuple[Judged, ...]
    certain: bool
    min_rows: int
    confidence: float
    lacking: tuple[str, ...] = ()  # groups that are required and are not there

    @property
    def passed(self) -> bool:
        return not self.lacking and all(one.outcome == "kept" for one in self.judged)

    @property
    def text(self) -> str:
        """The result in one line."""
        kept = sum(one.outcome == "kept" for one in self.judged)
        told = f"The gate has {'passed' if self.passed else 'failed'}: {kept} of "
        told += f"{len(self.judged)} limits {'is' if kept == 1 else 'are'} kept."
        if self.lacking:
            told += f" Required groups without rows: {', '.join(self.lacking)}."
        return told

    def to_dict(self) -> dict[str, Any]:
        """What can be written as JSON."""
        return {
            "passed": self.passed,
            "certain": self.certain,
            "min_rows": self.min_rows,
            "confidence": self.confidence,
            "lacking_groups": list(self.lacking),
            "limits": [
                {
                    "kind": one.limit.kind,
                    "constraint": one.limit.constraint,
                    "metric": one.limit.metric,
                    "limit": one.limit.bound,
                    "value": one.value,
                    "low": one.low,
                    "high": one.high,
                    "outcome": one.outcome,
                    "text": one.text,
                }
                for one in self.judged
            ],
        }


Limits = Mapping[ConstraintName, float] | float | None


def gate(
    audit: Audit,
    *,
    max_gap: Limits = None,
    min_ratio: Limits = None,
    certain: bool = False,
    min_rows: int = SMALL_CELL,
    require_groups: Sequence[str] = (),
) -> Gate:
    """Judge an audit by limits of gaps and ratios.

    Parameters
    ----------
    audit : Audit
        What `audit` or `audit_regression` found.
    max_gap : mapping of str to float, or float, default=None
        The largest gap of each constraint, as in ``{"equal_opportunity": 0.05}``. A number alone
        is about demographic parity.
    min_ratio : mapping of str to float, or float, default=None
        The smallest ratio of the lowest rate to the highest, as in ``0.8`` (four-fifths rule).
    certain : bool, default=False
        Whether a limit is broken only if the whole interval is beyond it. The default judges the
        measured value.
    min_rows : int, default=30
        A limit is not kept if a group has fewer rows than this that its rates are taken over. With
        weights: fewer rows of equal weight.
    require_groups : sequence of str, default=()
        Groups that must have rows.

    Returns
    -------
    Gate
        ``passed`` is true only if every limit is kept.

    Examples
    --------
    >>> from fairij import audit
    >>> from fairij.fairness import gate
    >>> y_true, y_pred = [0, 1, 1, 0] * 50, [0, 1, 0, 0] * 50
    >>> found = audit(y_true, y_pred, sensitive_features=["a", "a", "b", "b"] * 50)
    >>> gate(found, max_gap={"equal_opportunity": 0.05}).passed
    False
    """
    limits = [*_limits("gap", max_gap, audit), *_limits("ratio", min_ratio, audit)]
    if not limits:
        raise InvalidInputError(
            "`max_gap` or `min_ratio` must be given: a gate without a limit would pass whatever "
            "the model does."
        )
    if isinstance(min_rows, bool) or not isinstance(min_rows, int) or min_rows < 1:
        raise InvalidInputError(
            f"`min_rows` must be a whole number of at least 1, got {min_rows!r}: 1 judges groups "
            "of any size."
        )
    there = set(map(str, audit.by_group.index))
    lacking = tuple(str(name) for name in require_groups if str(name) not in there)
    judged = tuple(_judged(limit, audit, certain, min_rows) for limit in limits)
    return Gate(judged, bool(certain), min_rows, audit.confidence, lacking)


def _limits(kind: Kind, asked: Limits, audit: Audit) -> list[Limit]:
    if asked is None:
        return []
    given = asked if isinstance(asked, Mapping) else {USUAL: asked}
    return [_limit(kind, name, bound, audit) for name, bound in given.items()]


def _limit(kind: Kind, name: str, bound: Any, audit: Audit) -> Limit:
    parameter = PARAMETERS[kind]
    own = read_as(str(name))
    if own is None:
        raise InvalidInputError(
            f"`{parameter}` must name constraints, {', '.join(OWN)}; got {name!r}.",
            parameter=parameter,
        )
    is_number = isinstance(bound, (int, float, np.integer, np.floating))
    is_number = is_number and not isinstance(bound, bool) and math.isfinite(bound)
    if not is_number or bound < 0 or (kind == "ratio" and not 0 < bound <= 1):
        kinds = {"gap": "a number of at least 0, as 0.05", "ratio": "above 0 and at most 1, as 0.8"}
        raise InvalidInputError(
            f"`{parameter}` of {own} must be {kinds[kind]}; got {bound!r}.", parameter=parameter
        )
    if own not in GAPS or Limit(kind, own, float(bound)).metric not in audit:
        raise InvalidInputError(
            f"`{parameter}` must name constraints that this audit measures, and it does not "
            f"measure {own}: choose one of {', '.join(_measured(kind, audit))}.",
            parameter=parameter,
        )
    return Limit(kind, own, float(bound))


def _measured(kind: Kind, audit: Audit) -> list[str]:
    return [name for name in GAPS if Limit(kind, name, 0.0).metric in audit]


def _judged(limit: Limit, audit: Audit, certain: bool, min_rows: int) -> Judged:
    value, low, high = audit.interval(limit.metric)

    def of(outcome: Outcome, text: str) -> Judged:
        return Judged(limit, value, low, high, outcome, text)

    if math.isnan(value):
        why = " ".join(audit.undefined) or "A group lacks the rows that it needs."
        return of("not measured", f"It could not be measured. {why}")
    few = _too_few(limit, audit, min_rows)
    if few:
        return of(
            "not measured",
            f"Too few rows to judge it: {few}. Fewer than {min_rows} rows of a group say too "
            "little. Give more rows, put groups together, or lower the number of rows asked for.",
        )
    measured = f"{value:.4f}, {100 * audit.confidence:g} % interval {low:.4f} to {high:.4f}"
    if limit.kind == "gap":
        broken = (low if certain else value) > limit.bound
        beyond, within = "above", "at most"
    else:
        broken = (high if certain else value) < limit.bound
        beyond, within = "below", "at least"
    surely = " The whole interval is." if certain else ""
    if broken:
        return of("broken", f"It is {measured}, {beyond} {limit.bound:g}.{surely}")
    if certain and (value > limit.bound if limit.kind == "gap" else value < limit.bound):
        return of("kept", f"It is {measured}: {beyond} {limit.bound:g}, but not certainly.")
    return of("kept", f"It is {measured}, {within} {limit.bound:g}.")


def _too_few(limit: Limit, audit: Audit, min_rows: int) -> str:
    """The groups with too few rows, and how many they have."""
    rows = audit.rows[GAPS[limit.constraint].family]
    few = rows[rows < min_rows].sort_values()
    return ", ".join(f"{group} has {size:.0f}" for group, size in few.items())
