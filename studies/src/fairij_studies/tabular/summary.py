"""Compute the numbers of figures, tables and verdicts from records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairij_studies.tabular.methods import COMPARED, EDITED
from fairij_studies.tabular.trial import CONSTRAINTS

Array = NDArray[np.float64]
WITHIN, WIDER = 0.02, 0.05  # of the base model's accuracy on validation rows
RULES = {f"lowest gap within {budget:g} of accuracy": budget for budget in (WITHIN, WIDER)}
ON_EDIT = {m.label: m.on_edit for m in COMPARED.values() if m.on_edit is not None}
METHODS = ("ERM", *COMPARED, *EDITED, *ON_EDIT.values())  # in the order of tables
SETTING = ["seed", "method", "parameter", "value", "needs_group", "validation_accuracy"]
GAP_NAMES = {
    "demographic_parity": "demographic parity",
    "equalized_odds": "equalized odds (sum)",
    "equal_opportunity": "equal opportunity",
}


def trade_offs(records: pd.DataFrame, constraint: str) -> pd.DataFrame:
    """Return every setting of every method for one constraint, with the base model."""
    rows = records[records["kind"] == "trade_off"]
    rows = rows[(rows["constraint"] == constraint) | (rows["method"] == "ERM")]
    return rows[SETTING].assign(
        gap=rows[f"test_{constraint}"],
        accuracy=rows["test_accuracy"],
        validation_gap=rows[f"validation_{constraint}"],
        value=rows["value"].astype(float).fillna(-1.0),
    )


def methods_in(rows: pd.DataFrame) -> list[str]:
    found = set(rows["method"])
    return [name for name in METHODS if name in found]


def curves(records: pd.DataFrame, constraint: str) -> pd.DataFrame:
    """Return mean and deviation over seeds of every setting, on test rows."""
    grouped = trade_offs(records, constraint).groupby(["method", "value"])
    frame = grouped.agg(
        gap=("gap", "mean"),
        accuracy=("accuracy", "mean"),
        gap_deviation=("gap", "std"),
        accuracy_deviation=("accuracy", "std"),
        seeds=("seed", "nunique"),
        needs_group=("needs_group", "first"),
        parameter=("parameter", "first"),
    )
    return frame.reset_index().fillna({"gap_deviation": 0.0, "accuracy_deviation": 0.0})


def chosen(records: pd.DataFrame, constraint: str, budget: float) -> pd.DataFrame:
    """Return, for each method and seed, the setting with the lowest gap on validation rows.

    Only settings that lose at most ``budget`` of the base model's validation accuracy are allowed.
    This leaves out models that have become trivial. The base model counts as a setting of every
    method; ``is_base`` says where it was chosen.
    """
    rows = trade_offs(records, constraint).drop_duplicates(["seed", "method", "value"])
    rows = rows.assign(is_base=is_base(rows).astype(bool))
    base = rows[rows["method"] == "ERM"]
    tried = pd.concat(
        [
            pd.concat([rows[rows["method"] == method], *([base] if method != "ERM" else [])])
            .assign(method=method)
            .sort_values("seed", kind="stable")
            for method in methods_in(rows)
        ],
        ignore_index=True,
    )
    level = tried["seed"].map(base.set_index("seed")["validation_accuracy"])
    allowed = tried[tried["validation_accuracy"] >= level - budget - 1e-9]
    order = ["validation_gap", "validation_accuracy"]
    best = allowed.sort_values(order, ascending=[True, False]).drop_duplicates(["method", "seed"])
    return best.sort_index().reset_index(drop=True)


def is_base(setting: Any) -> Any:
    """Say whether a setting, or each of several, is the base model itself."""
    return (setting["method"] == "ERM") | (
        (setting["parameter"] == "strength") & (setting["value"] == 0)
    )


def reach(records: pd.DataFrame, constraint: str, method: str) -> tuple[float, float]:
    """Return a method's largest and smallest gap on validation rows, mean over seeds.

    The base model does not count.
    """
    rows = trade_offs(records, constraint)
    own = rows[(rows["method"] == method) & ~is_base(rows)]
    gaps = own.groupby("seed")["validation_gap"]
    return float(gaps.max().mean()), float(gaps.min().mean())


def stand_ins(picks: pd.DataFrame, method: str) -> int:
    """Count the seeds in which the base model was chosen in the method's place."""
    return int(picks.loc[picks["method"] == method, "is_base"].sum()) if method != "ERM" else 0


@dataclass(frozen=True)
class Front:
    """The best mean accuracy at every mean gap, linear between settings."""

    gap: Array
    accuracy: Array

    @classmethod
    def of(cls, curve: pd.DataFrame, method: str) -> Front:
        own = curve[curve["method"] == method].sort_values(["gap", "accuracy"])
        gap, accuracy = own["gap"].to_numpy(), own["accuracy"].to_numpy()
        better = accuracy > np.concatenate([[-np.inf], np.maximum.accumulate(accuracy)[:-1]])
        return cls(gap[better], accuracy[better])

    def at(self, gap: Array) -> Array:
        """Return accuracy at gaps: NaN below the smallest gap, the best above the largest."""
        found = np.interp(gap, self.gap, self.accuracy)
        return np.where(gap < self.gap[0] - 1e-12, np.nan, found)


def accuracy_at_equal_gap(
    records: pd.DataFrame, method: str, rival: str, constraint: str
) -> pd.DataFrame:
    """Return how much more accurate ``method`` is than ``rival`` at the rival's own gaps.

    Two kinds of the rival's settings are left out: the base model, which every method has, and
    settings that lose so much accuracy that they are trivial.
    """
    curve = curves(records, constraint)
    least = curve.loc[curve["method"] == "ERM", "accuracy"].iloc[0] - WIDER
    curve = curve[~((curve["method"] == rival) & (is_base(curve) | (curve["accuracy"] < least)))]
    own, theirs = Front.of(curve, method), Front.of(curve, rival)
    return pd.DataFrame({"gap": theirs.gap, "difference": own.at(theirs.gap) - theirs.accuracy})


def supported(records: pd.DataFrame) -> dict[str, list[str]]:
    """Return the methods that have records, by constraint."""
    return {name: methods_in(trade_offs(records, name)) for name in CONSTRAINTS}
