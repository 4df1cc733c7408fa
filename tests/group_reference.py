"""Slow, obvious group metrics: loops over groups and classes, one row at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from fairij.fairness import GAPS

fixed = settings(derandomize=True, deadline=None, max_examples=25)


@dataclass(frozen=True)
class Rows:
    """True and predicted labels, groups (one column or several) and weights."""

    y_true: list[Any]
    y_pred: list[Any]
    groups: list[tuple[Any, ...]]
    weight: list[float] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments as fairlearn has them."""
        columns = np.array([list(map(str, group)) for group in self.groups])
        one = columns[:, 0] if columns.shape[1] == 1 else columns
        return {"sensitive_features": one, "sample_weight": self.weight}


@st.composite
def labelled_rows(draw: st.DrawFn, classes: Sequence[Any] = (0, 1)) -> Rows:
    """Few rows, so that cells without a row, a positive or a prediction are common."""
    n = draw(st.integers(2, 14))  # fairlearn takes no single row

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    columns = draw(st.integers(1, 2))
    weighted = draw(st.booleans())
    return Rows(
        column(st.sampled_from(classes)),
        column(st.sampled_from(classes)),
        column(st.tuples(*[st.sampled_from("abc")] * columns)),
        column(st.floats(0.01, 100)) if weighted else None,
    )


def gradient(
    constraint: Any, z: Any, y: Any, groups: Any, loss: Any, temperature: float
) -> tuple[float, Any]:
    """The surrogate as a whole and its gradient ``dM/dz``, also if it has parts."""
    whole = replace(constraint, parts=None)
    return whole.part_gradients(z, y, groups, loss, temperature)[0]


Condition = Callable[[Any, Any], bool]  # of a row's true and predicted label


def rate(rows: Rows, of: Condition, among: Condition, group: Any = None) -> float:
    """The weighted share of ``of`` among the rows of a group that meet ``among``; 0 of none."""
    part = whole = 0.0
    for i, (t, p) in enumerate(zip(rows.y_true, rows.y_pred, strict=True)):
        if (group is None or rows.groups[i] == group) and among(t, p):
            weight = 1.0 if rows.weight is None else rows.weight[i]
            whole += weight
            part += weight * of(t, p)
    return part / whole if whole else 0.0


RATES: dict[str, Callable[[Any], tuple[Condition, Condition]]] = {
    "selection_rate": lambda c: (lambda t, p: p == c, lambda t, p: True),
    "true_positive_rate": lambda c: (lambda t, p: p == c, lambda t, p: t == c),
    "false_positive_rate": lambda c: (lambda t, p: p == c, lambda t, p: t != c),
    "false_negative_rate": lambda c: (lambda t, p: p != c, lambda t, p: t == c),
    "accuracy": lambda c: (lambda t, p: t == p, lambda t, p: True),
    "error_rate": lambda c: (lambda t, p: t != p, lambda t, p: True),
    "precision": lambda c: (lambda t, p: t == c, lambda t, p: p == c),
    "negative_predictive_value": lambda c: (lambda t, p: t != c, lambda t, p: p != c),
}


def spreads(rows: Rows, name: str, classes: Sequence[Any], *, method: str, ratio: bool) -> list:
    """The gap (or ratio) of one rate, for each class against the rest."""
    found = []
    for c in classes:
        of, among = RATES[name](c)
        rates = [rate(rows, of, among, group) for group in sorted(set(rows.groups))]
        total = rate(rows, of, among)
        pairs = (
            [(min(rates), max(rates))]
            if method == "between_groups"
            else [(min(r, total), max(r, total)) for r in rates]
        )
        if ratio:
            found.append(min(low / high if high else float("nan") for low, high in pairs))
        else:
            found.append(max(high - low for low, high in pairs))
    return found


def metric(rows: Rows, name: str, classes: Sequence[Any], *, method: str, agg: str) -> float:
    """``name`` is a generated metric, such as ``equalized_odds_ratio``."""
    ratio, family = name.endswith("ratio"), GAPS[name.rpartition("_")[0]]
    parts = [
        part
        for of in family.rates
        for part in spreads(
            rows, of.name, classes if of.has_classes else classes[:1], method=method, ratio=ratio
        )
        if not np.isnan(part)
    ]
    if not parts:
        return float("nan")
    folds = {"worst_case": min if ratio else max, "mean": np.mean, "sum": sum}
    return float(folds[agg](parts))
