"""`auto` next to each rival at the same loss of accuracy on test rows.

A budget is on validation rows. On test rows methods lose different amounts at the same budget, and
who loses more gets the smaller gap for it. So the budget of `auto` is moved until it loses as much
on test rows as the rival does, in the mean over seeds; between two budgets, its gap and accuracy
are taken to lie on the line between them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fairij_studies.frontier.measured import AS_TRAINED
from fairij_studies.frontier.summary import (
    CLOSE,
    COMBINATION,
    FEWEST,
    WORSE,
    by_seed,
    combinations,
    paired,
)

STEPS = 20  # between one budget and the next


def along(records: pd.DataFrame, ours: str, measure: str) -> pd.DataFrame:
    """One column for each budget of `ours` and points between, one line for each seed.

    The first budget is none: the model as it was trained.
    """
    own = records[records["method"] == ours]
    known = {float(str(rule)): rows for rule, rows in own.groupby("rule") if _is_number(str(rule))}
    start = records[records["method"] == AS_TRAINED].drop_duplicates("seed")
    columns = {0.0: start.set_index("seed")[measure]}
    columns |= {budget: rows.set_index("seed")[measure] for budget, rows in known.items()}
    table = pd.DataFrame(columns).dropna().sort_index(axis=1)
    budgets = table.columns.to_numpy(dtype=float)
    fine = np.interp(
        np.linspace(0, len(budgets) - 1, STEPS * (len(budgets) - 1) + 1),
        np.arange(len(budgets)),
        budgets,
    )
    values = [np.interp(fine, budgets, row) for row in table.to_numpy(dtype=float)]
    return pd.DataFrame(values, index=table.index, columns=fine)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def at_equal_loss(
    records: pd.DataFrame, rule: str, ours: str, rivals: Sequence[str]
) -> pd.DataFrame:
    """One line for each combination and rival: how far `ours` is behind at the rival's loss.

    Of all budgets at which `ours` loses no more accuracy on test rows than the rival, in the mean
    over the seeds of both, the largest is taken.
    """
    lines = []
    for key, own in combinations(records):
        gaps, accuracies = (along(own, ours, f"test_{m}") for m in ("gap", "accuracy"))
        asked = own[own["rule"] == rule]
        theirs, kept = by_seed(asked), by_seed(asked, "test_accuracy")
        for name in rivals:
            if name not in theirs:
                continue
            seeds = gaps.index.intersection(theirs[name].dropna().index)
            if len(seeds) < min(FEWEST, len(gaps)):
                continue
            level = accuracies.loc[seeds].mean()
            able = level.index[level >= kept.loc[seeds, name].mean() - 1e-9]
            budget = float(able.max()) if len(able) else 0.0
            apart = paired(gaps.loc[seeds, budget], theirs.loc[seeds, name])
            lines.append(
                {
                    **dict(zip(COMBINATION, key, strict=True)),
                    "rival": name,
                    "budget": budget,
                    "behind": apart.mean,
                    "low": apart.low,
                    "high": apart.high,
                    "gap": float(gaps.loc[seeds, budget].mean()),
                    "accuracy": float(level[budget]),
                    "rival gap": float(theirs.loc[seeds, name].mean()),
                    "rival accuracy": float(kept.loc[seeds, name].mean()),
                    "verdict": WORSE if apart.is_larger else CLOSE,
                }
            )
    return pd.DataFrame(lines)


def hardest(found: pd.DataFrame) -> pd.DataFrame:
    """Of each combination, the rival that `ours` is behind most."""
    return found.loc[found.groupby(COMBINATION, sort=False)["behind"].idxmax()]
