"""The table of base rates: what is counted, and among which rows.

A gap compares rates between groups (`fairij.fairness.gaps`). In classification a rate is a share of
a table of counts: ``counts[..., g, t, p]`` is the (weighted) number of rows of group ``g`` with
true class ``t`` and predicted class ``p``. With more than two classes there is one rate per class,
each class against the rest; with two classes only the rate of the second, positive class. In
regression a rate is a mean.

Undefined rates are treated as in fairlearn. A group without rows has the rate NaN and takes no part
in a gap. A rate over no rows of a group that has other rows is 0: for example the true positive
rate of a group without positives. So look at the sizes before you believe a gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fairij.fairness.counts import ratio_of

Array = NDArray[np.float64]
Counted = Literal["the class", "another class", "the true class", "prediction", "error"]
Given = Literal["any label", "the class", "another class"]


@dataclass(frozen=True)
class Rate:
    """A share of rows, or a mean over rows.

    Parameters
    ----------
    name : str
        The name, as in audits.
    counted : str
        What is counted. Rows that are predicted as "the class", as "another class" or as
        "the true class"; in regression the "prediction" or the "error" is averaged.
    given : str, default="any label"
        Among which rows: those whose true label is "any label", "the class" or "another class".
    shown : bool, default=True
        Whether audits list the rate of each group.
    """

    name: str
    counted: Counted
    given: Given = "any label"
    shown: bool = True

    @property
    def is_classification(self) -> bool:
        """Whether the rate is a share of counts and not a mean of numbers."""
        return self.counted not in ("prediction", "error")

    @property
    def has_classes(self) -> bool:
        """Whether every class has a rate of its own."""
        return self.counted in ("the class", "another class")

    def of_groups(self, counts: Array) -> Array:
        """The rate of each group, ``(..., G, K)``, for the K classes that are compared."""
        hits, rows = _compared(HITS[self.counted, self.given](counts)), self.rows(counts)
        occurs = counts.sum((-2, -1))[..., None] != 0
        return np.where(occurs, ratio_of(hits, rows, empty=0.0), np.nan)

    def rows(self, counts: Array) -> Array:
        """How many rows the rate is taken over, ``(..., G, K)`` or ``(..., G, 1)``."""
        return _compared(ROWS[self.given](counts))

    def labels(self, n_classes: int) -> list[tuple[int, ...]]:
        """The true labels of the rows that the rate of each class is taken over."""
        every = tuple(range(n_classes))
        if self.given == "any label":
            return [every]
        compared = [1] if n_classes == 2 else every
        if self.given == "the class":
            return [(c,) for c in compared]
        return [tuple(label for label in every if label != c) for c in compared]

    def values(self, predicted: Array, y: Array) -> Array:
        """What a rate in regression is the mean of, ``(..., N)``."""
        return predicted if self.counted == "prediction" else predicted - y

    @property
    def words(self) -> str:
        """The name in plain words, in the plural."""
        text = self.name.replace("_", " ")
        return {"accuracy": "accuracies"}.get(text, f"{text}s")

    @property
    def formula(self) -> str:
        """The definition, as ``P(yhat = c | y = c, g)``."""
        if not self.is_classification:
            return "E[yhat | g]" if self.counted == "prediction" else "E[yhat - y | g]"
        event = {
            "the class": "yhat = c",
            "another class": "yhat != c",
            "the true class": "yhat = y",
        }[self.counted]
        given = {"any label": "", "the class": "y = c, ", "another class": "y != c, "}[self.given]
        return f"P({event} | {given}g)"


def _compared(values: Array) -> Array:
    """The columns of the classes that are compared: the second of two, all of more."""
    return values[..., 1:] if values.shape[-1] == 2 else values


def _others(counts: Array) -> Array:
    """1 off the diagonal: a sum over other classes, which unlike a difference cannot cancel."""
    return 1 - np.eye(counts.shape[-1])


HITS: dict[tuple[Counted, Given], Callable[[Array], Array]] = {
    ("the class", "any label"): lambda counts: counts.sum(-2),
    ("the class", "the class"): lambda counts: np.diagonal(counts, axis1=-2, axis2=-1),
    ("the class", "another class"): lambda counts: (counts * _others(counts)).sum(-2),
    ("another class", "the class"): lambda counts: (counts * _others(counts)).sum(-1),
    ("the true class", "any label"): lambda counts: np.trace(counts, axis1=-2, axis2=-1)[..., None],
}
ROWS: dict[Given, Callable[[Array], Array]] = {
    "any label": lambda counts: counts.sum((-2, -1))[..., None],
    "the class": lambda counts: counts.sum(-1),
    "another class": lambda counts: counts.sum(-1) @ _others(counts),
}

ACCURACY = Rate("accuracy", "the true class")
SELECTION_RATE = Rate("selection_rate", "the class")
TRUE_POSITIVE_RATE = Rate("true_positive_rate", "the class", "the class")
FALSE_POSITIVE_RATE = Rate("false_positive_rate", "the class", "another class")
FALSE_NEGATIVE_RATE = Rate("false_negative_rate", "another class", "the class", shown=False)
MEAN_PREDICTION = Rate("mean_prediction", "prediction")
MEAN_ERROR = Rate("mean_error", "error")

RATES: dict[str, Rate] = {
    rate.name: rate
    for rate in (
        ACCURACY,
        SELECTION_RATE,
        TRUE_POSITIVE_RATE,
        FALSE_POSITIVE_RATE,
        FALSE_NEGATIVE_RATE,
        MEAN_PREDICTION,
        MEAN_ERROR,
    )
}


def shown_rates(counts: Array) -> list[tuple[Rate, Array]]:
    """The rates that audits list, with their values ``(..., G, K)``."""
    rates = (rate for rate in RATES.values() if rate.is_classification and rate.shown)
    return [(rate, rate.of_groups(counts)) for rate in rates]


def rates_by_name(counts: Array) -> dict[str, Array]:
    """The shown rates that have classes, ``(..., G)``; with more than two, by class number."""
    found = {}
    for rate in RATES.values():
        if rate.shown and rate.has_classes:
            values = rate.of_groups(counts)
            many = values.shape[-1] > 1
            for place in range(values.shape[-1]):
                found[f"{rate.name}[{place}]" if many else rate.name] = values[..., place]
    return found
