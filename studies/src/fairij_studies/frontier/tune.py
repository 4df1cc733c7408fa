"""Repeat the choice of the rivals' settings: `python -m fairij_studies.frontier.tune SAMPLE`.

On other seeds than the reported ones, with training rows in place of the test rows. It compares the
forms of LinearPost: the model of the group, and whether scores are made calibrated first. It also
keeps scores, on which `python -m benchmarks.oxonfair --try` compares those of OxonFair.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from fairij_studies.frontier.measured import Case, base_of, keep_scores
from fairij_studies.frontier.methods import TOLERANCES, swept
from fairij_studies.frontier.tables import Source
from fairij_studies.trees import coverage_file
from fairij_studies.trees.data import COMPAS, Places
from fairij_studies.trees.models import LIGHTGBM, LOGISTIC

SEEDS = (105, 106)
CONSTRAINTS = ("demographic_parity", "equalized_odds")
LEARNERS: dict[str, Any] = {
    "logistic regression": None,
    "trees": HistGradientBoostingClassifier(max_iter=50, max_leaf_nodes=7, random_state=0),
}


def cases(source: Source) -> Iterator[Case]:
    for seed, title, model in product(SEEDS, source.titles, (LIGHTGBM, LOGISTIC)):
        if title != COMPAS:  # too few rows to tell settings apart
            yield Case(title, model, seed, source, tuning=True)


def main(sample: str, cache: str) -> None:
    source = Source(Places(coverage=coverage_file(Path(sample))), cache=cache)
    for case in cases(source):
        base = base_of(case)
        keep_scores(base)
        for constraint, (name, learner), recalibrate in product(
            CONSTRAINTS, LEARNERS.items(), (False, True)
        ):
            records = swept(
                base,
                constraint,
                TOLERANCES[constraint],
                name="linear_post",
                learner=learner,
                recalibrate=recalibrate,
            )
            cells = [f"{r['test_gap']:.4f} @ {r['test_accuracy']:.4f}" for r in records]
            about = (case.title, case.model, str(case.seed), constraint, name, str(recalibrate))
            print("; ".join((*about, *cells)), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "tuning")
