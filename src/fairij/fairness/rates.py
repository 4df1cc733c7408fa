"""The table of rates and gaps: a constraint is one line, and everything else follows from it.

In classification a rate is a share of a table of counts: ``counts[..., g, t, p]`` is the (weighted)
number of rows of group ``g`` with true class ``t`` and predicted class ``p``. With more than two
classes each class has a rate against the rest; with two only the second, positive class has one. In
regression a rate is a mean.

A rate over no rows, such as true positives without positives, does not exist: with ``strict`` it is
NaN, and so is every gap that needs it. Audits are strict. The metric functions are not: as in
fairlearn, such a rate is 0 there, and a group without rows takes no part in a gap. Rates of rows
that are predicted as a class (precision) are strict where edits are judged: else an edit that
selects nobody would have no gap.

This module imports neither torch nor pandas, so that the command line can list the names quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fairij.errors import InvalidInputError

Array = NDArray[np.float64]
Counted = Literal[
    "the class", "another class", "the true class", "a wrong class", "prediction", "error"
]
Given = Literal[
    "any label", "the class", "another class", "predicted as the class", "predicted as another"
]
Form = Literal["difference", "ratio", "highest"]
Method = Literal["between_groups", "to_overall"]
Aggregate = Literal["worst_case", "mean", "sum"]
# the names of `GAPS` and `UNCOUNTED`, for type checkers
ConstraintName = Literal[
    "demographic_parity",
    "demographic_parity_sum",
    "demographic_parity_balanced",
    "equalized_odds",
    "equalized_odds_balanced",
    "equalized_odds_worst_case",
    "equalized_odds_mean",
    "equal_opportunity",
    "predictive_equality",
    "false_negative_rate_parity",
    "accuracy_parity",
    "predictive_parity",
    "negative_predictive_parity",
    "demographic_parity_ratio",
    "equalized_odds_ratio",
    "equal_opportunity_ratio",
    "predictive_equality_ratio",
    "error_rate_parity",
    "worst_group_error",
    "mean_prediction",
    "mean_error",
    "worst_group_loss",
]


def confusion_counts(
    y_true: NDArray[np.int64],
    y_pred: NDArray[np.int64],
    codes: NDArray[np.int64],
    *,
    n_groups: int,
    n_classes: int,
    sample_weight: Array | None = None,
) -> Array:
    """Count by (group, true class, predicted class); ``y_pred`` may have leading axes."""
    cell = (codes * n_classes + y_true) * n_classes  # (N,)
    size = n_groups * n_classes * n_classes
    flat = y_pred.reshape(-1, y_pred.shape[-1])
    tables = [np.bincount(cell + row, weights=sample_weight, minlength=size) for row in flat]
    shape = (*y_pred.shape[:-1], n_groups, n_classes, n_classes)
    return np.stack(tables).reshape(shape).astype(np.float64)


def accuracy(counts: Array) -> Array:
    """The share of all rows that is predicted right, ``(...)``."""
    table = counts.sum(-3)
    return ratio_of(np.trace(table, axis1=-2, axis2=-1), table.sum((-2, -1)), empty=np.nan)


def balanced_accuracy(counts: Array) -> Array:
    """The mean recall of the classes that occur, ``(...)``."""
    table = counts.sum(-3)
    occurs = table.sum(-1) > 0
    recalls = ratio_of(np.diagonal(table, axis1=-2, axis2=-1), table.sum(-1), empty=0)
    return ratio_of(recalls.sum(-1), occurs.sum(-1), empty=np.nan)


def rarest_class(counts: Array) -> Array:
    """How often each class is predicted next to how often it is true: the lowest ratio, ``(...)``.

    Of the classes that occur. Near 0, a class of the data is (nearly) never predicted.
    """
    table = counts.sum(-3)
    ratio = ratio_of(table.sum(-2), table.sum(-1), empty=np.inf)
    return np.asarray(ratio.min(-1), dtype=np.float64)


PERFORMANCES = {"accuracy": accuracy, "balanced_accuracy": balanced_accuracy}


def performances(counts: Array) -> dict[str, Array]:
    """Every performance of counts, by name."""
    return {name: of_counts(counts) for name, of_counts in PERFORMANCES.items()}


def ratio_of(part: NDArray[Any], whole: NDArray[Any], *, empty: float) -> Array:
    """``part / whole``, and ``empty`` where ``whole`` is 0."""
    out = np.full(np.broadcast_shapes(np.shape(part), np.shape(whole)), float(empty))
    return np.divide(part, whole, out=out, where=whole != 0)


def group_means(values: Array, groups: Any, weight: Array | None = None) -> Array:
    """The mean of ``values (..., N)`` in each group, ``(..., G)``; NaN for a group without rows."""
    member = groups.membership(weight)[:, : len(groups.names)]
    return ratio_of(values @ member, member.sum(0), empty=np.nan)


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
        Among which rows: those whose true label is "any label", "the class" or "another class"; or
        rows that are "predicted as the class" or "predicted as another", of which those are counted
        whose true label is "the class" or "another class".
    shown : bool, default=True
        Whether audits list the rate of each group.
    """

    name: str
    counted: Counted
    given: Given = "any label"
    shown: bool = True

    @property
    def is_classification(self) -> bool:
        return self.counted not in ("prediction", "error")

    @property
    def of_predicted(self) -> bool:
        """Whether it is taken over the rows with a prediction, not over those with a label."""
        return self.given in ("predicted as the class", "predicted as another")

    @property
    def has_classes(self) -> bool:
        """Whether every class has a rate of its own."""
        return self.counted in ("the class", "another class")

    def of_groups(self, counts: Array, *, strict: bool = False) -> Array:
        """The rate of each group, ``(..., G, K)``, for the K classes that are compared."""
        hits, rows = _compared(HITS[self.counted, self.given](counts)), self.rows(counts)
        occurs = counts.sum((-2, -1))[..., None] != 0
        return np.where(occurs, ratio_of(hits, rows, empty=np.nan if strict else 0.0), np.nan)

    def rows(self, counts: Array) -> Array:
        """How many rows the rate is taken over, ``(..., G, K)`` or ``(..., G, 1)``."""
        return _compared(ROWS[self.given](counts))

    def labels(self, n_classes: int) -> list[tuple[int, ...]]:
        """The true labels of the rows that the rate of each class is taken over."""
        every = tuple(range(n_classes))
        if self.given == "any label" or self.of_predicted:
            return [every]
        compared = [1] if n_classes == 2 else every
        is_class = self.given == "the class"
        return [(c,) if is_class else (*every[:c], *every[c + 1 :]) for c in compared]

    def by_class(self, values: Array, classes: Iterable[Any] | None = None) -> dict[str, Array]:
        """The columns of ``values (..., K)`` by name; several also by class, or its number."""
        if values.shape[-1] == 1:
            return {self.name: values[..., 0]}
        names = range(values.shape[-1]) if classes is None else classes
        return {f"{self.name}[{c}]": values[..., place] for place, c in enumerate(names)}

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
        """The definition, as ``P(yhat = c given y = c, g)``."""
        if not self.is_classification:
            return "E[yhat given g]" if self.counted == "prediction" else "E[yhat - y given g]"
        event = EVENTS[self.counted]
        if self.of_predicted:
            among = "=" if self.given == "predicted as the class" else "!="
            return f"P(y {event} given yhat {among} c, g)"
        given = {"any label": "", "the class": "y = c, ", "another class": "y != c, "}[self.given]
        return f"P(yhat {event} given {given}g)"


def _compared(values: Array) -> Array:
    """The columns of the classes that are compared: the second of two, all of more."""
    return values[..., 1:] if values.shape[-1] == 2 else values


def _others(counts: Array) -> Array:
    """1 off the diagonal: a sum over other classes, which unlike a difference cannot cancel."""
    return 1 - np.eye(counts.shape[-1])


EVENTS: dict[Counted, str] = {
    "the class": "= c",
    "another class": "!= c",
    "the true class": "= y",
    "a wrong class": "!= y",
}
HITS: dict[tuple[Counted, Given], Callable[[Array], Array]] = {
    ("the class", "any label"): lambda counts: counts.sum(-2),
    ("the class", "the class"): lambda counts: np.diagonal(counts, axis1=-2, axis2=-1),
    ("the class", "another class"): lambda counts: (counts * _others(counts)).sum(-2),
    ("another class", "the class"): lambda counts: (counts * _others(counts)).sum(-1),
    ("the true class", "any label"): lambda counts: np.trace(counts, axis1=-2, axis2=-1)[..., None],
    ("a wrong class", "any label"): lambda counts: (counts * _others(counts)).sum((-2, -1))[
        ..., None
    ],
    ("the class", "predicted as the class"): lambda counts: np.diagonal(counts, axis1=-2, axis2=-1),
    ("another class", "predicted as another"): lambda counts: np.einsum(
        "...tp,tc,pc->...c", counts, _others(counts), _others(counts)
    ),
}
ROWS: dict[Given, Callable[[Array], Array]] = {
    "any label": lambda counts: counts.sum((-2, -1))[..., None],
    "the class": lambda counts: counts.sum(-1),
    "another class": lambda counts: counts.sum(-1) @ _others(counts),
    "predicted as the class": lambda counts: counts.sum(-2),
    "predicted as another": lambda counts: counts.sum(-2) @ _others(counts),
}


@dataclass(frozen=True)
class Gap:
    """Rates of groups compared, and folded to one number. The lower it is, the better.

    Parameters
    ----------
    name : str
        The name of the constraint.
    rates : tuple of Rate
        The rates that are compared, all of classification or all of regression.
    fold : {"worst_case", "mean", "sum"}, default="worst_case"
        How the differences of all rates and classes become one number.
    balanced : bool, default=False
        Whether an edit closes all differences together; needs ``fold="sum"``.
    audited : bool, default=False
        Whether the gap is among the metrics that every audit shows.
    form : {"difference", "ratio", "highest"}, default="difference"
        How groups are compared. "difference": the highest rate less the lowest. "ratio": 1 less the
        lowest rate as a share of the highest. "highest": the highest rate itself, as of errors.
    """

    name: str
    rates: tuple[Rate, ...]
    fold: Aggregate = "worst_case"
    balanced: bool = False
    audited: bool = False
    form: Form = "difference"

    def __post_init__(self) -> None:
        if len({rate.is_classification for rate in self.rates}) != 1:
            raise InvalidInputError(
                f"`rates` of the gap {self.name!r} must be rates of classification or means of "
                f"regression, and not both; got {[rate.name for rate in self.rates]}."
            )
        if self.balanced and self.fold != "sum":
            raise InvalidInputError(
                f"`fold` of the gap {self.name!r} must be 'sum', as it is balanced; got "
                f"{self.fold!r}."
            )
        if self.form not in FORMS or (self.form != "difference" and not self.is_classification):
            raise InvalidInputError(
                f"`form` of the gap {self.name!r} must be one of {list(FORMS)}, and 'difference' "
                f"in regression; got {self.form!r}."
            )

    @property
    def is_classification(self) -> bool:
        return self.rates[0].is_classification

    @property
    def family(self) -> str:
        """The first gap of the table with these rates: gaps of one family differ in the fold."""
        return next((gap.name for gap in GAPS.values() if gap.rates == self.rates), self.name)

    @property
    def metric_name(self) -> str:
        """The name of the metric in audits, as ``demographic_parity_difference``."""
        if self.form == "highest":
            return self.name
        if self.form == "ratio":
            return f"{self.family}_ratio_gap" + f"_{self.fold}" * (self.fold != "worst_case")
        return f"{self.family}_{'difference' if self.fold == 'worst_case' else self.fold}"

    @property
    def words(self) -> str:
        """The metric in plain words, as "equalized odds gap (sum)"."""
        if not self.is_classification:
            return f"gap of {self.rates_in_words}"
        if self.form == "highest":
            return self.name.replace("_", " ")
        is_plain = len(self.rates) == 1 and self.fold == "worst_case"
        if self.form == "ratio":
            how = "1 - ratio" + f", {self.fold}" * (self.fold != "worst_case")
            return f"{self.family} gap ({how})".replace("_", " ")
        text = f"{self.family} gap" + ("" if is_plain else f" ({self.fold})")
        return text.replace("_", " ")

    @property
    def rates_in_words(self) -> str:
        """The rates, as "true positive rates and false positive rates"."""
        return " and ".join(rate.words for rate in self.rates)

    @property
    def formula(self) -> str:
        """The definition, with the fold if there can be several differences."""
        over = {"difference": "(max_g - min_g)", "ratio": "(1 - min_g / max_g)", "highest": "max_g"}
        parts = " and ".join(f"{over[self.form]} {rate.formula}" for rate in self.rates)
        if len(self.rates) == 1 and not self.rates[0].has_classes:
            return parts
        return f"{'largest' if self.fold == 'worst_case' else self.fold} over c of {parts}"

    @property
    def metric(self) -> Callable[..., Array]:
        """The hard gap: of ``counts``, or in regression of ``values (..., N), y, groups``."""
        if any(rate.of_predicted for rate in self.rates):
            return self.of_predicted
        return self.of_counts if self.is_classification else self.of_means

    @property
    def is_zero_if_equal(self) -> bool:
        """Whether it is zero where all rates are equal."""
        return self.form != "highest"

    def of_counts(
        self,
        counts: Array,
        *,
        method: Method = "between_groups",
        agg: Aggregate | None = None,
        ratio: bool = False,
    ) -> Array:
        """The gap (or ratio) of a table of counts, one number for each leading entry."""
        compare = _lowest_ratio if ratio else FORMS[self.form]
        # NaN for groups without rows, which fmin and fmax pass over
        parts = [compare(*_ends(rate, counts, method)) for rate in self.rates]
        return _folded(parts, agg or self.fold, ratio=ratio)

    def of_predicted(self, counts: Array) -> Array:
        """`of_counts`; NaN where nobody in a group is predicted as a class that is compared."""
        lacking = False
        for rate in self.rates:
            occurs = counts.sum((-2, -1))[..., None] != 0  # (..., G, 1)
            lacking = lacking | (rate.of_predicted & occurs & (rate.rows(counts) == 0)).any(
                (-2, -1)
            )
        return np.where(lacking, np.nan, self.of_counts(counts))

    def of_means(
        self, predicted: Array, y: Array, groups: Any, weight: Any = None, *, strict: bool = False
    ) -> Array:
        """The gap of means in regression, one number for each leading entry."""
        means = [group_means(rate.values(predicted, y), groups, weight) for rate in self.rates]
        low, high = (np.min, np.max) if strict else (np.nanmin, np.nanmax)
        return _folded([(high(mean, -1) - low(mean, -1))[..., None] for mean in means], self.fold)


def _folded(parts: list[Array], agg: Aggregate, *, ratio: bool = False) -> Array:
    """Fold differences (or ratios) of all rates and classes; undefined ones are left out."""
    together = np.concatenate(parts, axis=-1)
    if agg == "worst_case":
        return np.fmin.reduce(together, -1) if ratio else np.fmax.reduce(together, -1)
    if agg == "mean":
        return ratio_of(np.nansum(together, -1), (~np.isnan(together)).sum(-1), empty=np.nan)
    if agg == "sum" and not ratio:
        return together.sum(-1)
    allowed = [name for name in get_args(Aggregate) if not (ratio and name == "sum")]
    raise InvalidInputError(f"`agg` must be one of {allowed}, got {agg!r}.")


def _ends(rate: Rate, counts: Array, method: Method) -> tuple[Array, Array]:
    """The rates that are compared, lower and higher, ``(..., 1 or G, K)``."""
    if method not in get_args(Method):
        raise InvalidInputError(f"`method` must be one of {get_args(Method)}, got {method!r}.")
    rates = rate.of_groups(counts)
    if method == "between_groups":
        low, high = (end.reduce(rates, -2, keepdims=True) for end in (np.fmin, np.fmax))
        return low, high
    total = rate.of_groups(counts.sum(-3, keepdims=True))
    return np.minimum(rates, total), np.maximum(rates, total)


def _lowest_ratio(low: Array, high: Array) -> Array:
    return np.fmin.reduce(ratio_of(low, high, empty=np.nan), -2)


# the comparison of rates in one number for each class, (..., K)
FORMS: dict[Form, Callable[[Array, Array], Array]] = {
    "difference": lambda low, high: np.fmax.reduce(high - low, -2),
    "ratio": lambda low, high: 1 - _lowest_ratio(low, high),
    "highest": lambda low, high: np.fmax.reduce(high, -2),
}


ACCURACY = Rate("accuracy", "the true class")
SELECTION_RATE = Rate("selection_rate", "the class")
TRUE_POSITIVE_RATE = Rate("true_positive_rate", "the class", "the class")
FALSE_POSITIVE_RATE = Rate("false_positive_rate", "the class", "another class")
FALSE_NEGATIVE_RATE = Rate("false_negative_rate", "another class", "the class", shown=False)
ERROR_RATE = Rate("error_rate", "a wrong class", shown=False)
PRECISION = Rate("precision", "the class", "predicted as the class", shown=False)
NEGATIVE_PREDICTIVE_VALUE = Rate(
    "negative_predictive_value", "another class", "predicted as another", shown=False
)
MEAN_PREDICTION = Rate("mean_prediction", "prediction")
MEAN_ERROR = Rate("mean_error", "error")
ODDS = (TRUE_POSITIVE_RATE, FALSE_POSITIVE_RATE)

RATES: dict[str, Rate] = {r.name: r for r in tuple(globals().values()) if isinstance(r, Rate)}
AUDITED_RATES = [rate for rate in RATES.values() if rate.shown and rate.is_classification]

GAPS: dict[str, Gap] = {
    gap.name: gap
    for gap in (
        Gap("demographic_parity", (SELECTION_RATE,), audited=True),
        Gap("demographic_parity_sum", (SELECTION_RATE,), "sum"),
        Gap("demographic_parity_balanced", (SELECTION_RATE,), "sum", balanced=True),
        Gap("equalized_odds", ODDS, "sum", audited=True),
        Gap("equalized_odds_balanced", ODDS, "sum", balanced=True),
        Gap("equalized_odds_worst_case", ODDS, audited=True),
        Gap("equalized_odds_mean", ODDS, "mean"),
        Gap("equal_opportunity", (TRUE_POSITIVE_RATE,), audited=True),
        Gap("predictive_equality", (FALSE_POSITIVE_RATE,)),
        Gap("false_negative_rate_parity", (FALSE_NEGATIVE_RATE,)),
        Gap("accuracy_parity", (ACCURACY,)),
        Gap("predictive_parity", (PRECISION,)),
        Gap("negative_predictive_parity", (NEGATIVE_PREDICTIVE_VALUE,)),
        Gap("demographic_parity_ratio", (SELECTION_RATE,), form="ratio"),
        Gap("equalized_odds_ratio", ODDS, form="ratio"),
        Gap("equal_opportunity_ratio", (TRUE_POSITIVE_RATE,), form="ratio"),
        Gap("predictive_equality_ratio", (FALSE_POSITIVE_RATE,), form="ratio"),
        Gap("error_rate_parity", (ERROR_RATE,)),
        Gap("worst_group_error", (ERROR_RATE,), form="highest"),
        Gap("mean_prediction", (MEAN_PREDICTION,), audited=True),
        Gap("mean_error", (MEAN_ERROR,), audited=True),
    )
}


# constraints that do not follow from counts: what is compared, and the formula
UNCOUNTED = {"worst_group_loss": ("mean losses, as in training", "max_g E[loss given g]")}


def measures(counts: Array, groups: int | None = None) -> dict[str, Array]:
    """Every performance and strict gap of counts, by name. Each rate is computed once.

    Only the first ``groups`` groups are compared; None: all of them.
    """
    known = counts[..., :groups, :, :]
    gaps = {gap.metric_name: gap for gap in GAPS.values() if gap.is_classification}
    ends = {rate: _strict_ends(rate, known) for gap in gaps.values() for rate in gap.rates}
    asked = {(gap.form, rate) for gap in gaps.values() for rate in gap.rates}
    compared = {(form, rate): FORMS[form](*ends[rate]) for form, rate in asked}
    found = performances(counts)
    for name, gap in gaps.items():
        together = np.concatenate([compared[gap.form, rate] for rate in gap.rates], axis=-1)
        found[name] = STRICT_FOLDS[gap.fold](together, axis=-1)  # NaN if one of them is
        if gap.form == "ratio":  # a rate that is 0 in all groups has no ratio, and is left out
            unknown = [np.isnan(ends[rate][0]).any((-2, -1)) for rate in gap.rates]
            found[name] = np.where(np.any(unknown, 0), np.nan, _folded([together], gap.fold))
    return found


STRICT_FOLDS: dict[Aggregate, Callable[..., Array]] = {
    "worst_case": np.max,
    "mean": np.mean,
    "sum": np.sum,
}


def _strict_ends(rate: Rate, counts: Array) -> tuple[Array, Array]:
    """The lowest and the highest rate of a group, ``(..., 1, K)``; NaN if a group has none."""
    rates = rate.of_groups(counts, strict=True)
    return np.min(rates, -2, keepdims=True), np.max(rates, -2, keepdims=True)


def rates_by_name(counts: Array) -> dict[str, Array]:
    """The audited rates that have classes, ``(..., G)``, by class number if there are several.

    They are strict: NaN over no rows.
    """
    rates = (rate for rate in AUDITED_RATES if rate.has_classes)
    found = [rate.by_class(rate.of_groups(counts, strict=True)) for rate in rates]
    return {name: values for by_class in found for name, values in by_class.items()}


def markdown() -> str:
    """The table of all constraints for the documentation: name, what it compares, formula."""
    lines = ["| constraint | what it compares between groups | gap |", "|---|---|---|"]
    for gap in GAPS.values():
        compared = gap.rates_in_words + "; the differences are closed together" * gap.balanced
        lines.append(f"| `{gap.name}` | {compared} | `{gap.formula}` |")
    lines += [
        f"| `{name}` | {words} | `{formula}` |" for name, (words, formula) in UNCOUNTED.items()
    ]
    return "\n".join(lines)
