"""OxonFair on the scores of one model, blind to groups; run in an environment of its own.

It is given chances of the label and of the groups, and chooses an offset for each inferred group. A
row whose group is less sure than the threshold forms a group of its own ("fast"). "hybrid" weighs
the offsets by the chances instead, and starts from the fast solution.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np

MOST = 60  # points of the frontier that are handed back, spread evenly


def frontier(given: Any, constraint: str, form: str) -> dict[str, Any]:
    """The scores on validation and test rows at each point of the frontier."""
    from oxonfair.utils import group_metrics

    from oxonfair import FairPredictor

    metric = {
        "demographic_parity": group_metrics.demographic_parity,
        "equalized_odds": group_metrics.equalized_odds,
        "equal_opportunity": group_metrics.equal_opportunity,
    }[constraint]
    data = {
        part: np.column_stack([1 - given[f"{part}_p"], given[f"{part}_p"], given[f"{part}_q"]])
        for part in ("validation", "test")
    }
    kind, _, threshold = form.partition(" ")
    fair = FairPredictor(
        lambda rows: rows[:, :2],
        {
            "target": given["validation_y"].astype(int),
            "data": data["validation"],
            "groups": given["validation_s"],
        },
        inferred_groups=lambda rows: rows[:, 2:],
        use_fast=True if kind == "fast" else "hybrid",
        threshold=float(threshold or 0),
    )
    fair.fit(group_metrics.accuracy, metric, 0.0, grid_width=18 if kind == "hybrid" else False)
    weights = fair.frontier_thresholds()
    points = np.unique(np.linspace(0, weights.shape[-1] - 1, MOST).astype(int))
    found: dict[str, list[Any]] = {"validation": [], "test": []}
    for point in points:
        fair.set_threshold(weights[..., point])
        for part, rows in data.items():
            chances = np.array(fair.predict_proba({"data": rows.copy()}), dtype=np.float64)
            found[part].append((chances[:, 1] - chances[:, 0]).astype(np.float32))
    return {part: np.stack(scores) for part, scores in found.items()}


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    source, constraint, form, target = sys.argv[1:]
    with np.load(source) as arrays:
        np.savez(Path(target), **frontier(dict(arrays), constraint, form))
