"""Who is best, who is not clearly worse, and who is: paired over seeds, on test rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

COMBINATION = ["data", "model", "constraint"]
BEST, CLOSE, WORSE = "best", "not clearly worse", "clearly worse"
FEW, FEWEST = "too few seeds", 3
LEVEL = 0.95


@dataclass(frozen=True)
class Paired:
    """The mean difference of pairs, and an interval by Student's t."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def is_larger(self) -> bool:
        return self.low > 0


def paired(first: pd.Series, second: pd.Series) -> Paired:
    """``first - second`` over the seeds that both have; both are indexed by seed."""
    apart = (first - second).dropna().to_numpy(dtype=float)
    n = len(apart)
    if n < 2:
        mean = float(apart.mean()) if n else float("nan")
        return Paired(mean, float("-inf"), float("inf"), n)
    mean, error = float(apart.mean()), float(apart.std(ddof=1)) / np.sqrt(n)
    reach = float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * error
    return Paired(mean, mean - reach, mean + reach, n)


def by_seed(records: pd.DataFrame, measure: str = "test_gap") -> pd.DataFrame:
    """One column for each method, one line for each seed."""
    return records.pivot_table(index="seed", columns="method", values=measure)


def combinations(records: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """Each table, model and constraint with its records, in the order of the records."""
    yield from records.groupby(COMBINATION, sort=False)  # type: ignore[misc]


def verdicts(records: pd.DataFrame, rule: str, competing: tuple[str, ...]) -> pd.DataFrame:
    """The verdict on each method in each combination, next to the best of those that compete.

    The best has the lowest mean test gap over the seeds that all who compete there have. This
    favours rivals: the best of several is picked after the fact. A method with few seeds competes
    only where none has more.
    """
    chosen = records[records["rule"].isin([rule, "none"])]
    lines = []
    for key, own in combinations(chosen):
        gaps = by_seed(own)
        least = min(FEWEST, len(gaps))
        runners = [n for n in competing if n in gaps and gaps[n].count() >= least]
        common = gaps[runners].dropna()
        if common.empty:
            continue
        best = str(common.mean().idxmin())
        for name in gaps:
            apart = paired(gaps[name], gaps[best])
            said = BEST if name == best else WORSE if apart.is_larger else CLOSE
            if gaps[name].count() < least:
                said = FEW
            rows = own[own["method"] == name]
            lines.append(
                {
                    **dict(zip(COMBINATION, key, strict=True)),
                    "method": name,
                    "verdict": said,
                    "behind": apart.mean,
                    "low": apart.low,
                    "high": apart.high,
                    "seeds": apart.n,
                    "gap": float(gaps[name].mean()),
                    "gap_deviation": float(gaps[name].std()),
                    **{
                        m: float(rows[f"test_{m}"].mean())
                        for m in ("accuracy", "auc", "brier", "gap_error")
                    },
                }
            )
    return pd.DataFrame(lines)


def counts(verdict: pd.DataFrame, competing: tuple[str, ...]) -> pd.DataFrame:
    """How many combinations each method ran in, and with which verdict."""
    rows = verdict[verdict["method"].isin(competing)]
    table = rows.pivot_table(
        index="method", columns="verdict", values="gap", aggfunc="size", fill_value=0
    )
    table = table.reindex(columns=[BEST, CLOSE, WORSE], fill_value=0)
    return table.reindex([name for name in competing if name in table.index])


def against(records: pd.DataFrame, rule: str, ours: str, rival: str) -> dict[str, int]:
    """In how many combinations the gap of `ours` is clearly smaller, clearly larger, or neither."""
    found = {"smaller": 0, "neither": 0, "larger": 0}
    for _, own in combinations(records[records["rule"].isin([rule, "none"])]):
        gaps = by_seed(own)
        if ours in gaps and rival in gaps:
            apart = paired(gaps[ours], gaps[rival])
            smaller = apart.high < 0
            found["larger" if apart.is_larger else "smaller" if smaller else "neither"] += 1
    return found


def lost(verdict: pd.DataFrame, before: str) -> pd.DataFrame:
    """What each method lost of accuracy and AUC and added to the Brier score.

    Means over the combinations that it ran in, next to the model as it was trained.
    """
    wide = verdict.pivot_table(
        index=COMBINATION, columns="method", values=["accuracy", "auc", "brier", "gap"]
    )
    lines = {}
    for name in dict.fromkeys(verdict["method"]):
        kept = wide["gap", name].notna()
        start, own = (wide.xs(which, axis=1, level="method")[kept] for which in (before, name))
        apart = start - own
        lines[name] = {
            "combinations": len(own),
            "gap": float(own["gap"].mean()),
            "gap before": float(start["gap"].mean()),
            "accuracy": float(apart["accuracy"].mean()),
            "auc": float(apart["auc"].mean()),
            "most auc": float(apart["auc"].max()),
            "brier": float(-apart["brier"].mean()),
        }
    return pd.DataFrame(lines).T
