"""Repeat the choice of the study's settings: `python -m fairij_studies.trees.tune`.

Settings of the base models are chosen by validation log loss. Settings of Fair-IJ are chosen by
accuracy and gap on a third of the training rows, which replaces the test set. No reported seed and
no test row is used. An argument names a Parquet file of ACSPublicCoverage. The argument `expected`
compares observed with expected labels and groups. This was done after the study's seeds had been
seen.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch

from fairij import AccuracyBudget, LowestGap, Path
from fairij.method.selection import Selection
from fairij_studies.tabular.trial import CONSTRAINTS
from fairij_studies.trees.data import ADULT, Places
from fairij_studies.trees.models import LIGHTGBM, MODELS, TUNING_SEEDS, search
from fairij_studies.trees.runs import SLACK, Case, edit, edit_records, fitted

trained = cache(fitted)
EDIT_SEEDS = (*TUNING_SEEDS, 0, 1, 2, 3, 4)
RULES: dict[str, Selection] = {"lowest gap": LowestGap(slack=SLACK)} | {
    f"budget {budget:g}": AccuracyBudget(budget) for budget in (0.002, 0.004)
}
SURROGATES = {
    "demographic_parity": ("demographic_parity",),
    "equalized_odds": ("equalized_odds", "equalized_odds_balanced"),
    "equal_opportunity": ("equal_opportunity",),
}
DAMPINGS: list[tuple[Any, tuple[Any, ...]]] = [
    ("grid", ((1e-2, 3e-2), (3e-2, 1e-1), (1e-1, 3e-1))),
    ("reweight", (3e-3, 1e-2, 3e-2, 1e-1, 3e-1, (3e-2, 1e-1), (1e-1, 3e-1))),
    ("path", (1.5e-2, 2e-2, 3e-2, 6e-2, 1e-1, 2e-1, 4e-1, 1.0)),
    (Path(cheapest_first=True), (5e-2, 1e-1, 3e-1, (5e-2, 1e-1))),
]


def models(places: Places) -> None:
    for title in places.titles:
        for name in MODELS:
            (loss, settings), *_ = search(title, name, places)
            print(f"{title}: {name} {settings}  # {loss:.4f}", flush=True)


def forms(places: Places) -> None:
    for constraint in CONSTRAINTS:
        for surrogate, temperature, (searched, dampings), (rule, selection) in product(
            SURROGATES[constraint], (1.0, 2.0, 3.0), DAMPINGS, RULES.items()
        ):
            for damping in dampings:
                settings = {
                    "constraints": surrogate,
                    "temperature": temperature,
                    "search": searched,
                    "damping": damping,
                }
                accuracy, gap = judged(places, constraint, settings | {"selection": selection})
                print(f"{constraint}: {settings}, {rule}: {accuracy:+.4f}, {gap:.4f}", flush=True)


def by_chance(places: Places) -> None:
    """Print the gaps that `reweight` leaves with observed and with expected validation rows."""
    found: dict[tuple[str, str], list[float]] = {}
    for seed in (*EDIT_SEEDS, *range(5, 10)):
        case = Case(ADULT, LIGHTGBM, False, seed, places, tuning=True)
        for form in ("Fair-IJ reweight", "Fair-IJ expected"):
            for record in edit_records(case, form, (), targets=0):
                constraint = record["constraint"]
                gap = record[f"test_{constraint}"]
                found.setdefault((constraint, form), []).append(gap)
    for (constraint, form), gaps in found.items():
        mean, deviation = np.mean(gaps), np.std(gaps, ddof=1)
        print(f"{constraint}, {form}: {mean:.4f} ± {deviation:.4f}, {len(gaps)} seeds", flush=True)


def judged(places: Places, constraint: str, settings: dict[str, Any]) -> tuple[float, float]:
    """Return the mean change of accuracy and the mean remaining gap over seeds."""
    found = []
    for seed in EDIT_SEEDS:
        base = trained(Case(ADULT, LIGHTGBM, False, seed, places, tuning=True))
        fair = edit(base, constraint, **settings)
        before, after = (
            base.record("", base.as_predictor(model)) for model in (base.model, fair.estimator_)
        )
        cost = after["test_accuracy"] - before["test_accuracy"]
        found.append((cost, after[f"test_{constraint}"]))
    accuracy, gap = np.mean(found, axis=0)
    return float(accuracy), float(gap)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if sys.argv[1:] == ["expected"]:
        by_chance(Places())
    else:
        given = Places(coverage=sys.argv[1] if len(sys.argv) > 1 else None)
        models(given)
        forms(given)
