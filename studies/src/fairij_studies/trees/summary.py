"""Compute the numbers of the tables and figures of the study of trees."""

from __future__ import annotations

import pandas as pd

from fairij_studies.trees.models import MODELS
from fairij_studies.trees.runs import BASE, FORMS, RIVALS

METHODS = (BASE, "Fair-IJ", *(form for form in FORMS if form != "Fair-IJ"), *RIVALS)
LEFT_OUT = "left out"


def compared(records: pd.DataFrame, *, group_is_feature: bool) -> pd.DataFrame:
    """Return the records of methods, without those of refits, with or without the group."""
    if "kind" in records:
        records = records[records["kind"] != LEFT_OUT]
    return records[records["group_is_feature"] == group_is_feature]


def curves(records: pd.DataFrame, constraint: str) -> pd.DataFrame:
    """Return mean and deviation over seeds of every setting and of the base model, on test rows."""
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
    """Return test results of the setting with the lowest validation gap, per method and seed.

    Settings below ``accuracy`` on validation rows do not count, unless all are below it. Of equal
    gaps, the more accurate setting is chosen. With ``gap``, the most accurate setting of at most
    this validation gap is chosen, if there is one.
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
    """Return mean and deviation over seeds of one measure, by form and k."""
    rows = records[records["kind"] == LEFT_OUT] if "kind" in records else records.iloc[:0]
    grouped = rows.groupby(["method", "k"], as_index=False)
    found: pd.DataFrame = grouped[column].agg(["mean", "std", "count"])
    return found.reset_index(drop=True)


def ordered(names: pd.Series, order: tuple[str, ...]) -> list[str]:
    return [name for name in order if name in set(names)]


def models_in(frame: pd.DataFrame) -> list[str]:
    return ordered(frame["model"], tuple(MODELS))
