"""From records of the study of trees to the numbers of its tables and figures."""

from __future__ import annotations

import pandas as pd

from fairij_studies.trees.models import MODELS
from fairij_studies.trees.runs import BASE, FORMS, RIVALS

METHODS = (BASE, "Fair-IJ", *(form for form in FORMS if form != "Fair-IJ"), *RIVALS)
LEFT_OUT = "left out"


def compared(records: pd.DataFrame, *, group_is_feature: bool) -> pd.DataFrame:
    """The records of methods (not those of rows left out), with or without the group."""
    if "kind" in records:
        records = records[records["kind"] != LEFT_OUT]
    return records[records["group_is_feature"] == group_is_feature]


def curves(records: pd.DataFrame, constraint: str) -> pd.DataFrame:
    """Mean and deviation over seeds of every setting, on test rows; the base model among them."""
    rows = records[(records["constraint"] == constraint) | (records["method"] == BASE)]
    rows = rows.assign(
        gap=rows[f"test_{constraint}"],
        accuracy=rows["test_accuracy"],
        parameter=rows["parameter"].fillna(""),
        value=rows["value"].astype(float).fillna(-1.0),
    )
    grouped = rows.groupby(["data", "model", "method", "parameter", "value"], as_index=False)
    return grouped.agg(
        gap=("gap", "mean"),
        accuracy=("accuracy", "mean"),
        gap_deviation=("gap", "std"),
        accuracy_deviation=("accuracy", "std"),
        seeds=("seed", "nunique"),
    )


def chosen(
    records: pd.DataFrame, constraint: str, *, accuracy: float = 0.0, gap: float | None = None
) -> pd.DataFrame:
    """Of each method and seed the setting with the lowest gap on validation rows, on test rows.

    Only among settings of at least this accuracy on validation rows, where it has any; of equal
    gaps the more accurate. With ``gap`` it is the most accurate one of at most this gap there,
    where it has any.
    """
    rows = records[(records["constraint"] == constraint) | (records["method"] == BASE)]
    here, level = rows[f"validation_{constraint}"], rows["validation_accuracy"]
    kept = level >= accuracy if gap is None else here <= gap
    has_any = kept.groupby([rows[c] for c in ("data", "model", "method", "seed")]).transform("any")
    goal = here if gap is None else (-level).where(kept, here)
    rows = rows.assign(goal=goal, gap=rows[f"test_{constraint}"], accuracy=rows["test_accuracy"])[
        kept | ~has_any
    ]
    rows = rows.sort_values(
        ["goal", f"validation_{constraint}", "validation_accuracy"], ascending=[True, True, False]
    )
    best = rows.groupby(["data", "model", "method", "seed"], as_index=False).first()
    return best.groupby(["data", "model", "method"], as_index=False).agg(
        accuracy=("accuracy", "mean"),
        accuracy_deviation=("accuracy", "std"),
        gap=("gap", "mean"),
        gap_deviation=("gap", "std"),
        seconds=("seconds", "mean"),
        train_seconds=("train_seconds", "mean"),
        seeds=("seed", "nunique"),
    )


def refit_means(records: pd.DataFrame, column: str) -> pd.DataFrame:
    """Mean and deviation over seeds of one measure, by form and k."""
    rows = records[records["kind"] == LEFT_OUT] if "kind" in records else records.iloc[:0]
    grouped = rows.groupby(["method", "k"], as_index=False)
    found: pd.DataFrame = grouped[column].agg(["mean", "std", "count"])
    return found.reset_index(drop=True)


def ordered(names: pd.Series, order: tuple[str, ...]) -> list[str]:
    return [name for name in order if name in set(names)]


def models_in(frame: pd.DataFrame) -> list[str]:
    return ordered(frame["model"], tuple(MODELS))
