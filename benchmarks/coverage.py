"""How often the interval of `honest_gap_` covers a fresh audit.

`python -m benchmarks.coverage` writes `benchmarks/results/coverage.json`. A logistic regression and
its candidate edits are fixed, and so is a large population of rows. In each trial, validation rows
are drawn from it. A rule chooses a candidate on them, and `honest_gap_` gives its interval. Then as
many new rows are drawn. The interval *covers* if the gap of the chosen candidate on the new rows
lies in it. "one" has no choice: it is the edit with the lowest gap in the population, and the model
as it is. `--processes 8` gives the same figures sooner.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from fairij_studies.provenance import code_hash
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.workers import cpu_seconds, machine, spread
from fairij import AccuracyBudget, FairIJ, LowestGap, Reweight, TargetGap, __version__, adapt
from fairij.fairness import GAPS
from fairij.fairness.optimism import Choice, Patterns
from fairij.method.selection import Selection

RESULTS = Path(__file__).parent / "results" / "coverage.json"
CONSTRAINTS = ("demographic_parity", "equalized_odds", "equal_opportunity")
SIZES = (500, 2000, 8000)
TRIALS, POPULATION, TRAINING = 1000, 40_000, 6000
AT_ONCE = 25  # trials of one piece of work
BAND = (0.92, 0.98)
RULES: dict[str, Selection] = {
    "budget": AccuracyBudget(0.01),
    "target": TargetGap(0.05),
    "lowest gap": LowestGap(),
}
Array = NDArray[np.float64]


def rows(rng: np.random.Generator, count: int) -> tuple[Array, NDArray[np.int64], NDArray[Any]]:
    """Return features that tell something of a group, labels and groups."""
    group = rng.random(count) < 0.6
    X = rng.normal(size=(count, 6))
    X[:, 0] += 1.0 * group
    X[:, 1] += 0.4 * group
    latent = X @ [1.2, 0.8, -0.7, 0.3, 0.0, 0.0] - 1.6 + rng.logistic(size=count)
    return X, (latent > 0).astype(np.int64), group.astype(np.int64)


def population(constraint: str) -> Patterns:
    """Return what all candidate edits predict for all rows of the population."""
    rng = np.random.default_rng(5)
    (X, y, _), (X_all, y_all, groups) = rows(rng, TRAINING), rows(rng, POPULATION)
    model = LogisticRegression().fit(X, y)
    editable = adapt(model)
    moves = [np.zeros((1, len(editable.theta)))]
    for search in ("path", Reweight(scales=tuple(np.geomspace(0.05, 20, 30)))):
        fair = FairIJ(model, constraints=constraint, search=search, verbose=False)
        fair.fit(X, y, X_val=X_all, y_val=y_all, sensitive_features_val=groups)
        moves.append(fair.moves_[1:])
    evaluator = editable.evaluator(X_all)
    theta = editable.theta
    z = [
        evaluator.along(theta.new_tensor(move), theta.new_ones(1))[0]
        for move in np.concatenate(moves)
    ]
    labels = np.stack([outputs.numpy() > 0 for outputs in z]).astype(np.uint8)
    return Patterns.of(labels, y_all, groups, n_groups=2, n_classes=2)


def drawn(whole: Patterns, count: int, rng: np.random.Generator) -> Patterns:
    """Return ``count`` rows of the population, drawn with replacement."""
    times = rng.multinomial(count, whole.times / whole.times.sum())
    seen = times > 0
    return replace(
        whole, predictions=whole.predictions[seen], cells=whole.cells[seen], times=times[seen]
    )


def gaps_of(patterns: Patterns, metric: Any) -> Array:
    """Return the gap of every candidate on these rows."""
    found: Array = metric(patterns.tables(patterns.times[None].astype(np.float64)))[0]
    return found


def trial(
    whole: Patterns, constraint: str, count: int, rng: np.random.Generator
) -> dict[str, Mapping[str, float]]:
    """Return the interval of each rule's choice, and the gap of that candidate on new rows."""
    metric = GAPS[constraint].metric
    seen, new = (drawn(whole, count, rng) for _ in range(2))
    of_seen, of_new = gaps_of(seen, metric), gaps_of(new, metric)
    lowest = int(gaps_of(whole, metric).argmin())
    cases: dict[str, tuple[Patterns, Selection, int]] = {
        name: (seen, rule, -1) for name, rule in RULES.items()
    }
    for name, one in (("one: as it is", 0), ("one: an edit", lowest)):
        alone = replace(seen, predictions=seen.predictions[:, [one]])
        cases[name] = (alone, RULES["lowest gap"], one)
    found = {}
    for name, (patterns, rule, one) in cases.items():
        choice = Choice(patterns, metric, rule.choose, 0.0, seed=int(rng.integers(2**31)))
        table = patterns.tables(patterns.times[None].astype(np.float64))
        chosen = int(choice.chosen(table)[0]) if one < 0 else one
        honest = replace(choice, gap=float(of_seen[chosen])).honest_gap()
        found[name] = {
            "gap": honest.gap,
            "expected": honest.expected,
            "fresh": float(of_new[chosen]),
            "below": float(of_new[chosen] < honest.low),
            "above": float(of_new[chosen] > honest.high),
            "width": honest.high - honest.low,
        }
    return found


@dataclass(frozen=True)
class Part:
    """Some trials of one constraint and number of rows. Each trial has a seed of its own."""

    whole: Patterns
    constraint: str
    count: int
    trials: range

    def run(self) -> list[dict[str, Mapping[str, float]]]:
        cell = [self.count, CONSTRAINTS.index(self.constraint)]
        seeds = ([*cell, number] for number in self.trials)
        return [
            trial(self.whole, self.constraint, self.count, np.random.default_rng(seed))
            for seed in seeds
        ]


def records_of(
    constraint: str, count: int, found: list[dict[str, Mapping[str, float]]]
) -> list[dict[str, Any]]:
    """Return the mean of all trials of a cell, one record for each rule."""
    records = []
    for rule in found[0]:
        means = {
            name: float(np.mean([one[rule][name] for one in found])) for name in found[0][rule]
        }
        records.append(
            {"constraint": constraint, "rows": count, "choice": rule}
            | {"coverage": round(1 - means["below"] - means["above"], 4)}
            | {name: round(value, 4) for name, value in means.items()}
        )
    return records


def measured(trials: int, processes: int) -> list[dict[str, Any]]:
    """Return the records of all cells."""
    wholes = dict(zip(CONSTRAINTS, spread(population, CONSTRAINTS, processes), strict=True))
    cells = list(product(CONSTRAINTS, SIZES))
    parts = [
        Part(wholes[constraint], constraint, count, range(trials)[first : first + AT_ONCE])
        for constraint, count in cells
        for first in range(0, trials, AT_ONCE)
    ]
    found = spread(Part.run, parts, processes)
    records: list[dict[str, Any]] = []
    for constraint, count in cells:
        some = [one for _ in range(0, trials, AT_ONCE) for one in next(found)]
        records += records_of(constraint, count, some)
        for record in records[-len(RULES) - 2 :]:
            print(*(f"{value!s:>18}" for value in record.values()), flush=True)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    code, start = code_hash(), cpu_seconds()
    records = measured(asked.trials, asked.processes)
    outside = [r for r in records if not BAND[0] <= r["coverage"] <= BAND[1]]
    result: dict[str, Any] = {"version": __version__, "code": code, "machine": machine()}
    result |= {"trials": asked.trials, "band": BAND}
    result |= {"cpu_seconds": round(cpu_seconds() - start), "outside": len(outside)}
    RESULTS.write_text(json.dumps(result | {"records": records}, indent=1) + "\n")
    print(f"{len(outside)} of {len(records)} cells outside {BAND}")


if __name__ == "__main__":
    main()
