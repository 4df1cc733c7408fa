"""OxonFair's records for the study `frontier`, on the scores that its runs keep.

``python -m benchmarks.oxonfair studies/frontier --scores CACHE/scores`` adds one unit for each
file and constraint that the study has no record of. OxonFair (Delaney et al. 2024) runs in an
environment of its own. It is used blind: groups at prediction are inferred, by the same model of
the group that `LinearPost` has. Of its frontier, the point of the lowest gap on validation rows
within the budget of accuracy is taken, as for every method.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from fairij_studies.driver import Unit, run_study
from fairij_studies.frontier import make_study
from fairij_studies.frontier.measured import (
    AS_TRAINED,
    BUDGETS,
    CONSTRAINTS,
    Record,
    of_scores,
    prefixed,
    within,
)
from fairij_studies.frontier.methods import ELSEWHERE
from fairij_studies.frontier.tables import slug
from fairij_studies.records import read_records

from benchmarks.environments import ROOT, interpreter
from fairij.datasets import Split

FORMS = ("fast 0", "fast 0.667", "hybrid")
CHOSEN = ("hybrid",)  # on another seed (`--try`), where all three together did as well
PARTS = ("validation", "test")
EMPTY = "grid_search"  # it cannot search if no row is sure enough to belong to one of the groups
COPIED = ("data", "data_source", "sensitive", "model", "n_train", "n_validation", "n_test")


def tried(file: Path, constraint: str, forms: tuple[str, ...]) -> tuple[list[Record], float]:
    """Every point of every form, measured on both parts; the model as it was trained first."""
    with np.load(file) as arrays:
        given = dict(arrays)
    parts = {
        part: Split(given[f"{part}_q"], given[f"{part}_y"], given[f"{part}_s"].astype(np.int64))
        for part in PARTS
    }
    points = [("as trained", {part: given[f"{part}_p"] for part in PARTS})]
    start = _cpu_seconds()
    for form in forms:
        points += [(form, scores) for scores in theirs(file, constraint, form)]
    seconds = _cpu_seconds() - start
    found = []
    for form, scores in points:
        about: Record = {"form": form}
        for part in PARTS:
            about |= prefixed(part, of_scores(scores[part], parts[part], constraint))
        found.append(about)
    return found, seconds


def _cpu_seconds() -> float:
    """Of the processes that were waited for."""
    spent = os.times()
    return spent.children_user + spent.children_system


def theirs(file: Path, constraint: str, form: str) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "frontier.npz"
        command = [str(interpreter("oxonfair")), "-W", "ignore", "-m", "benchmarks.peers.oxonfair"]
        done = subprocess.run(
            [*command, str(file), constraint, form, str(target)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            if EMPTY in done.stderr:
                return
            raise RuntimeError(done.stderr[-2000:])
        with np.load(target) as arrays:
            margins = {part: arrays[part].astype(np.float64) for part in PARTS}
    for place in range(len(margins["test"])):
        # the margin is 2 p - 1 plus an offset; label 1 where it is above zero
        yield {part: np.clip((margins[part][place] + 1) / 2, 0, 1) for part in PARTS}


def chosen(points: list[Record], budget: float) -> Record:
    seen = [
        {"accuracy": p["validation_accuracy"], "gap": p["validation_gap"], "place": i}
        for i, p in enumerate(points)
    ]
    return points[within(budget, seen[0], seen)["place"]]


def unit_of(file: str, constraint: str, facts: Record) -> list[Record]:
    points, seconds = tried(Path(file), constraint, CHOSEN)
    nature = {"competes": True, "training_groups": True, "refits": False, "randomised": False}
    about = {**facts, "method": ELSEWHERE, "constraint": constraint, "setting": None, **nature}
    return [
        {**about, "rule": f"{budget:g}", "seconds": seconds, **chosen(points, budget)}
        for budget in BUDGETS
    ]


def units(study: Path, scores: Path) -> Iterator[Unit]:
    known = [r for r in read_records(study) if r["method"] == AS_TRAINED]
    for record in known:
        file = scores / f"{slug(record['data'])}-{slug(record['model'])}-{record['seed']}.npz"
        if not file.is_file():
            continue
        facts = {name: record[name] for name in COPIED} | {"train_seconds": 0.0}
        key = {name: record[name] for name in ("seed", "data", "model", "constraint")}
        arguments = {"file": str(file), "constraint": record["constraint"], "facts": facts}
        yield Unit({**key, "method": ELSEWHERE}, unit_of, arguments)


def compare(scores: Path) -> None:
    """Print what each form, and all together, reach on test rows at each budget."""
    files = sorted(scores.glob("*.npz"))
    for constraint in CONSTRAINTS:
        points = [tried(file, constraint, FORMS)[0] for file in files]
        for forms, budget in product((*((form,) for form in FORMS), FORMS), BUDGETS):
            kept = ("as trained", *forms)
            found = [chosen([p for p in of if p["form"] in kept], budget) for of in points]
            cells = [f"{one['test_gap']:.4f} @ {one['test_accuracy']:.4f}" for one in found]
            print(constraint, budget, " or ".join(forms), *cells, sep="; ", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, nargs="?")
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--try", dest="trial", action="store_true", help="compare its forms")
    asked = parser.parse_args()
    if asked.trial:
        compare(asked.scores)
        return
    found = list(units(asked.study, asked.scores))
    run_study(replace(make_study(), units=lambda quick: found), asked.study)


if __name__ == "__main__":
    main()
