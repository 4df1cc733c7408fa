"""How the settings of the study were chosen, to be repeated: `python studies/trees/tune.py`.

The base models' by validation log loss; Fair-IJ's by accuracy and gap on a third of the training
rows that stands in for a test set. Seeds 40 and 41 only, which the study does not report, and no
test row is looked at. An argument names a parquet file of ACSPublicCoverage.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch

from fairij.selection import LowestGap
from fairij.studies.tabular.trial import CONSTRAINTS
from fairij.studies.trees_data import ADULT, Places
from fairij.studies.trees_models import LIGHTGBM, MODELS, TUNING_SEEDS, search
from fairij.studies.trees_runs import SLACK, Case, edit, fitted

TWO, THREE = (1e-2, 3e-2), (3e-3, 1e-2, 3e-2)
FORMS: dict[str, dict[str, Any]] = {
    f"{validation}, dampings {dampings}": {"validation": validation, "damping": dampings}
    for validation in ("reuse", "cross_fit")
    for dampings in (TWO, THREE)
}
ODDS: dict[str, dict[str, Any]] = {
    f"{constraint}, temperature {temperature:g}": {
        "constraints": constraint,
        "temperature": temperature,
    }
    for constraint in ("equalized_odds", "equalized_odds_balanced")
    for temperature in (1.0, 3.0)
}


def models(places: Places) -> None:
    for title in places.titles:
        for name in MODELS:
            (loss, settings), *_ = search(title, name, places)
            print(f"{title}: {name} {settings}  # {loss:.4f}", flush=True)


def forms(places: Places) -> None:
    for constraint in CONSTRAINTS:
        choices = FORMS if constraint != "equalized_odds" else FORMS | ODDS
        for name, settings in choices.items():
            found = []
            for seed in TUNING_SEEDS:
                base = fitted(Case(ADULT, LIGHTGBM, False, seed, places, tuning=True))
                fair = edit(
                    base,
                    constraint,
                    **({"damping": TWO} | settings),
                    selection=LowestGap(slack=SLACK),
                )
                found.append(base.record("", base.as_predictor(fair.estimator_)))
            accuracy, gap = (
                sum(r[f"test_{m}"] for r in found) / len(found) for m in ("accuracy", constraint)
            )
            print(f"{constraint}: {name}: accuracy {accuracy:.4f}, gap {gap:.4f}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    given = Places(coverage=sys.argv[1] if len(sys.argv) > 1 else None)
    models(given)
    forms(given)
