"""Which candidate to take: rules of choice.

A rule gets the measures of all candidates on validation rows, by name: ``gap``, ``accuracy``,
``auc`` and the other columns of ``candidates_``. The first candidate is the model as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij.data.checks import number_between, one_of

Array = NDArray[np.float64]
Measures = Mapping[str, Array]
"""Columns of the table of candidates, one entry per candidate; the first is the unedited model."""

ROUNDING = 1e-9  # 0.8 - 0.1 is a little more than 0.7
# what may be budgeted, and whether more of it is better
Measure = Literal[
    "accuracy",
    "balanced_accuracy",
    "auc",
    "log_loss",
    "brier",
    "calibration_error",
    "r2",
    "mean_squared_error",
]
BUDGETED = {
    "accuracy": True,
    "balanced_accuracy": True,
    "auc": True,
    "log_loss": False,
    "brier": False,
    "calibration_error": False,
    "r2": True,
    "mean_squared_error": False,
}
NUMBERS = ("slack", "errors", "auc_errors")  # of `Budget`, none of which can be left out
OF_NUMBERS = ("r2", "mean_squared_error")  # the measures of regression; all others are of classes


class SelectionDefaults(Protocol):
    """What a rule of choice need not offer: to be inherited by every rule."""

    @property
    def performance(self) -> str | None:
        """The measure that the rule trades against the gap; None for accuracy, or R^2."""
        return None

    @property
    def target(self) -> float | None:
        """The gap that is asked for; None if the rule names none."""
        return None

    @property
    def of_ratio(self) -> bool:
        """Whether the rule makes sense only for constraints whose gap is 1 less a ratio."""
        return False

    @property
    def budgets(self) -> Mapping[str, float]:
        """How much worse each measure may become, by name; empty if the rule has no budget."""
        return {}

    def shortfall(self, gap: float) -> str | None:
        """What to say if the chosen candidate's gap misses the rule's aim; else None."""
        return None

    def remark(self, candidates: Measures, chosen: int) -> str | None:
        """What else people should know of the choice; None for nothing."""
        return None

    @property
    def needs(self) -> tuple[str, ...]:
        """Measures without which the rule makes no sense, such as ``("auc",)``."""
        return ()


class Selection(SelectionDefaults, Protocol):
    """A rule that picks one candidate."""

    def choose(self, candidates: Measures) -> int:
        """The place of the chosen candidate; the first one is the unedited model."""
        ...


@dataclass(frozen=True)
class Budget(SelectionDefaults):
    """The smallest gap that the validation rows can tell apart, at the least loss, within budgets.

    1. If the gap of the model as it is cannot be told from zero, the model stays as it is.
    2. Candidates must keep to every budget, and go on predicting every class.
    3. Of their gaps, all that cannot be told from the smallest count as equal to it.
    4. Of those, the candidate of the lowest log loss (in regression: highest R^2) is taken.

    A budget is how much worse than before a measure may become; None for any amount. Budgets on
    measures that the task does not have do nothing: R^2 and mean squared error are for regression,
    all others for classification.

    Parameters
    ----------
    accuracy : float or None, default=0.03
        The most accuracy to lose: 0.03 is three points.
    balanced_accuracy : float or None, default=0.08
        The most balanced accuracy to lose. It notices if a rare class is predicted badly.
    auc : float or None, default=0.035
        The most area under the ROC curve to lose. It notices if rows are put in another order. The
        loss must keep to it by ``auc_errors`` standard errors. And where every group counts the
        same, it must not be beyond it by more than that: a group of few rows hardly shows in the
        AUC of all rows.
    log_loss, brier, calibration_error : float or None, default=None
        How much each may grow.
    r2 : float or None, default=0.05
        The most R^2 to lose.
    mean_squared_error : float or None, default=None
        How much it may grow.
    target : float or None, default=None
        A gap that is small enough. All gaps of at most that count as equal.
    slack : float, default=0.0
        Gaps within this distance of the smallest count as equal to it.
    errors : float, default=0.5
        Gaps within this many standard errors of the smallest count as equal to it. Half a standard
        error, as two gaps on the same rows differ less by chance than each of them.
    auc_errors : float, default=1.0
        How many standard errors of the change of the AUC count. With few rows of a label, an AUC
        falls more on new rows than on those of the choice. 0: as it was measured, of all rows.
    rarest_class : float, default=0.5
        How often each class must still be predicted, as a part of its share of the labels, or of
        how often it was predicted before if that is less. 0 allows a model that says one class
        only.
    confidence : float, default=0.95
        How sure it must be that there is a gap at all; else the model stays as it is. Sizes of
        groups, and the number of comparisons between them, count. 0: edit in any case.
    prefer : str, default="log_loss"
        The measure that decides among gaps that count as equal. In regression it is R^2, or
        "mean_squared_error".

    Examples
    --------
    >>> rule = Budget(accuracy=0.01, auc=0.02)
    >>> rule.budgets["auc"]
    0.02
    >>> FairIJ(model, selection=rule).selection.accuracy
    0.01
    """

    _: KW_ONLY
    accuracy: float | None = 0.03
    balanced_accuracy: float | None = 0.08
    auc: float | None = 0.035
    log_loss: float | None = None
    brier: float | None = None
    calibration_error: float | None = None
    r2: float | None = 0.05
    mean_squared_error: float | None = None
    target: float | None = None
    slack: float = 0.0
    errors: float = 0.5
    auc_errors: float = 1.0
    rarest_class: float = 0.5
    confidence: float = 0.95
    prefer: Measure = "log_loss"

    def __post_init__(self) -> None:
        for name in (*BUDGETED, "target", *NUMBERS):
            value = getattr(self, name)
            if value is not None or name in NUMBERS:
                number_between(name, value, 0, including_low=True)
        for name in ("rarest_class", "confidence"):
            number_between(name, getattr(self, name), 0, 1, including_low=True)
        one_of("prefer", self.prefer, list(BUDGETED))

    @classmethod
    def only(cls, **given: Any) -> Budget:
        """A rule that looks at nothing but what is given, and otherwise at the gap."""
        nothing: dict[str, Any] = dict.fromkeys(BUDGETED)
        nothing |= {"errors": 0.0, "auc_errors": 0.0, "rarest_class": 0.0, "confidence": 0.0}
        return cls(**(nothing | given))

    @property
    def needs(self) -> tuple[str, ...]:
        of_field = {field.name: field.default for field in dataclasses.fields(self)}
        return tuple(name for name in BUDGETED if getattr(self, name) not in (None, of_field[name]))

    @property
    def budgets(self) -> Mapping[str, float]:
        given = {name: getattr(self, name) for name in BUDGETED}
        return {name: budget for name, budget in given.items() if budget is not None}

    def choose(self, candidates: Measures) -> int:
        if self._is_doubtful(candidates):
            return 0
        gap, able = candidates["gap"], self.allowed(candidates)
        level = self._level(candidates)
        smallest = _best(gap, level, able)
        margin = self.slack
        if self.errors:
            margin += self.errors * float(np.nan_to_num(candidates["gap_error"][smallest]))
        reached = gap <= gap[smallest] + margin + (ROUNDING if margin else 0)
        if self.target is not None:
            reached |= gap <= self.target + ROUNDING
        return _best(-level, -gap, able & reached)

    def allowed(self, candidates: Measures) -> NDArray[np.bool_]:
        """Which candidates keep to the budgets and predict every class; always the first."""
        able = np.ones(len(candidates["gap"]), dtype=bool)
        for name, is_gain in BUDGETED.items():
            budget, values = getattr(self, name), candidates.get(name)
            if budget is None or values is None or np.isnan(values[0]):
                continue
            sign = 1 if is_gain else -1
            able &= sign * values >= sign * values[0] - budget - ROUNDING  # not if it is NaN
        if self.auc is not None and self.auc_errors:
            able &= self._keeps_the_order(candidates)
        if self.rarest_class and "rarest_class" in candidates:
            ratio = candidates["rarest_class"]
            able &= ratio >= self.rarest_class * min(float(ratio[0]), 1.0) - ROUNDING
        able[0] = True
        return able

    def _keeps_the_order(self, candidates: Measures) -> NDArray[np.bool_]:
        """Whether the AUC keeps to its budget by its errors, and does so in every group alike."""
        kept = np.ones(len(candidates["gap"]), dtype=bool)
        for name, sign in (("auc", 1), ("group_auc", -1)):
            values, errors = candidates.get(name), candidates.get(f"{name}_error")
            if values is None or errors is None or np.isnan(values[0]):
                continue
            surely = values - sign * self.auc_errors * np.nan_to_num(errors)
            kept &= ~(surely < values[0] - (self.auc or 0.0) - ROUNDING)
        return kept

    def shortfall(self, gap: float) -> str | None:
        if self.target is None or gap <= self.target + ROUNDING:
            return None
        return (
            f"No candidate reaches a validation gap of {self.target:g}; the lowest, {gap:.4f}, is "
            "taken. A wider search (larger k or scales, smaller damping) may reach it."
        )

    def remark(self, candidates: Measures, chosen: int) -> str | None:
        gap = float(candidates["gap"][0])
        if self._is_doubtful(candidates):
            return (
                f"The gap of the model as it is, {gap:.4f}, cannot be told from zero on the "
                "validation rows: with groups of these sizes, a model that treats all of them "
                "alike would show differences as clear in "
                f"{100 * float(candidates['gap_p'][0]):.0f} of 100 cases. So the model is returned "
                "unchanged. More validation rows may show a gap. `Budget(confidence=0)`, on the "
                "command line `--budget confidence=0`, edits in any case."
            )
        if chosen or len(candidates["gap"]) < 2 or not gap > 0:
            return None
        return self._why_unchanged(candidates)

    def _why_unchanged(self, candidates: Measures) -> str:
        gaps, able = candidates["gap"], self.allowed(candidates)
        lowest, smaller = float(np.nanmin(gaps)), gaps < gaps[0]
        if not smaller.any():
            return (
                "No edit that was tried made the gap smaller, so the model is returned unchanged. "
                'Another `search` (such as "path"), small groups merged into larger ones, or more '
                "validation rows may find one."
            )
        if (able & smaller).any():
            return (
                "No edit that keeps to the budgets makes the gap clearly smaller, so the model is "
                f"returned unchanged. The lowest gap of all candidates is {lowest:.4f}: see "
                "`candidates_` for what it costs."
            )
        which = " with a smaller gap" if able[1:].any() else ""
        return (
            f"Every edit{which} costs more than the budgets allow, so the model is returned "
            f"unchanged. The lowest gap of all candidates is {lowest:.4f}: see `candidates_` "
            "for what it costs, and give `Budget` larger budgets to take it. Another `search` "
            '(such as "path"), or small groups merged into larger ones, may cost less.'
        )

    def _is_doubtful(self, candidates: Measures) -> bool:
        """Whether the gap of the unedited model cannot be told from zero."""
        if not self.confidence:
            return False
        return bool(candidates["gap_p"][0] > 1 - self.confidence)  # not if it is not known

    def _level(self, candidates: Measures) -> Array:
        """The preferred measure, more is better; undefined values are the worst."""
        known = self.prefer if self.prefer in candidates else usual(candidates)
        level = candidates[known] if BUDGETED[known] else -candidates[known]
        return np.where(np.isnan(level), -np.inf, level)


def usual(candidates: Measures) -> str:
    """The usual measure of performance: accuracy, in regression R^2."""
    return "accuracy" if "accuracy" in candidates else "r2"


def measures_of(table: pd.DataFrame) -> dict[str, Array]:
    """The measures in a table of candidates, as rules of choice take them."""
    measures = table.columns.difference(["damping", "k", "scale", "pareto"], sort=False)
    return {str(name): table[name].to_numpy(np.float64) for name in measures}


def pareto_front(gap: Array, performance: Array) -> NDArray[np.bool_]:
    """Which candidates no other matches in both gap and performance; of equals, the first.

    Examples
    --------
    >>> pareto_front(np.array([0.3, 0.1, 0.2]), np.array([0.9, 0.8, 0.7])).tolist()
    [True, True, False]
    """
    order = np.lexsort((gap, -performance))
    best = np.minimum.accumulate(np.concatenate([[np.inf], gap[order][:-1]]))
    front = np.zeros(len(gap), dtype=bool)
    front[order] = gap[order] < best
    return front


def _best(key: Array, tie_break_high: Array, allowed: NDArray[np.bool_]) -> int:
    """The allowed index with the smallest key; among equals the highest second value."""
    index = np.flatnonzero(allowed)
    order = np.lexsort((-tie_break_high[index], key[index]))
    return int(index[order[0]])
