"""How often the intervals of an audit cover the gaps and ratios that its rows were drawn from.

`python -m benchmarks.audit_coverage` writes `benchmarks/results/audit_coverage.json`. Each case
says how many rows of each group there are, how many of them are positive, and the true rates. In
each trial the table of counts is drawn, and the intervals of today and those of a percentile
bootstrap (as in 0.1.0) are asked whether they hold the true gap. With weights each row weighs
between 0.3 and 3, by chance; the bootstrap is then left out.

`--processes 8` gives the same figures sooner.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fairij_studies.provenance import code_hash
from numpy.typing import NDArray

from benchmarks.workers import cpu_seconds, machine, spread
from fairij import __version__
from fairij.fairness.counted import Counted
from fairij.fairness.rates import GAPS, measures

RESULTS = Path(__file__).parent / "results" / "audit_coverage.json"
TRIALS, RESAMPLES = 600, 400
METRICS = {
    "demographic_parity_difference": "demographic_parity",
    "equal_opportunity_difference": "equal_opportunity",
    "equalized_odds_sum": "equalized_odds",
    "equalized_odds_difference": "equalized_odds_worst_case",
    "demographic_parity_ratio": "demographic_parity",
    "equalized_odds_ratio": "equalized_odds_worst_case",
}
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """Rows by group and label, ``(G, C)``, and the chances of each prediction, ``(G, C, C)``."""

    name: str
    rows: Any
    chances: Any
    weighted: bool = False

    @property
    def truth(self) -> Array:
        """The expected table of counts."""
        return np.array(self.rows)[..., None] * np.array(self.chances)

    def drawn(self, rng: np.random.Generator) -> Counted:
        """The counts of one trial; weights have nothing to do with the predictions."""
        flat = [
            rng.multinomial(n, p)
            for group, chances in zip(self.rows, self.chances, strict=True)
            for n, p in zip(group, chances, strict=True)
        ]
        table = np.array(flat, dtype=float).reshape(np.shape(self.chances))
        if not self.weighted:
            return Counted(table, table)
        weights = [np.exp(rng.uniform(-1.2, 1.2, int(n))) for n in table.ravel()]
        sums = (np.array([(w**power).sum() for w in weights]) for power in (1, 2))
        return Counted(*(of_cell.reshape(table.shape) for of_cell in sums))


def binary(*groups: tuple[int, int, float, float]) -> tuple[Any, Any]:
    """Rows and chances of groups of (negatives, positives, FPR, TPR)."""
    rows = [[negatives, positives] for negatives, positives, _, _ in groups]
    return rows, [[[1 - fpr, fpr], [1 - tpr, tpr]] for _, _, fpr, tpr in groups]


THREE = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]]
OTHER = [[0.6, 0.3, 0.1], [0.1, 0.7, 0.2], [0.3, 0.3, 0.4]]
CASES = [
    Case(
        "12 positives of one group, hardly any predicted",
        *binary((60, 12, 0.02, 0.05), (1500, 400, 0.1, 0.43)),
    ),
    Case("12 positives of one group, no gap", *binary((60, 12, 0.1, 0.43), (1500, 400, 0.1, 0.43))),
    Case("two groups of 40 rows, small gap", *binary((25, 15, 0.2, 0.6), (25, 15, 0.3, 0.7))),
    Case("two groups of 40 rows, 95 % positives", *binary((4, 36, 0.5, 0.9), (3, 37, 0.5, 0.97))),
    Case("two groups of 200 rows, no gap", *binary((140, 60, 0.15, 0.6), (140, 60, 0.15, 0.6))),
    Case(
        "two groups of 3,000 rows, clear gap",
        *binary((2000, 1000, 0.3, 0.7), (2000, 1000, 0.1, 0.5)),
    ),
    Case(
        "two groups of 3,000 rows, 1 % positives",
        *binary((2970, 30, 0.01, 0.3), (2970, 30, 0.01, 0.5)),
    ),
    Case("five groups, no gap", *binary(*((3 * n, n, 0.15, 0.6) for n in (10, 30, 60, 120, 240)))),
    Case(
        "five groups, one of them apart",
        *binary((30, 10, 0.3, 0.9), *((3 * n, n, 0.15, 0.6) for n in (30, 60, 120, 240))),
    ),
    Case("twenty groups, no gap", *binary(*[(70, 30, 0.15, 0.6)] * 20)),
    Case(
        "twenty groups, spread",
        *binary(*((70, 30, 0.1 + i / 100, 0.5 + i / 50) for i in range(20))),
    ),
    Case(
        "weights, groups of 60 and 600 rows",
        *binary((40, 20, 0.2, 0.5), (400, 200, 0.1, 0.7)),
        weighted=True,
    ),
    Case("weights, no gap", *binary((40, 20, 0.1, 0.7), (400, 200, 0.1, 0.7)), weighted=True),
    Case("three classes, groups of 45 and 450 rows", [[15] * 3, [150] * 3], [OTHER, THREE]),
    Case("three classes, no gap", [[15] * 3, [150] * 3], [THREE, THREE]),
]


def true_value(case: Case, metric: str) -> float:
    """Return the gap or the ratio of the population."""
    gap = GAPS[METRICS[metric]]
    if metric.endswith("_ratio"):
        return float(gap.of_counts(case.truth, agg="worst_case", ratio=True))
    return float(measures(case.truth)[gap.metric_name])


def bootstrapped(counted: Counted, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Return the percentiles of tables of rows that are drawn with replacement."""
    table, n = counted.table, int(counted.table.sum())
    draws = rng.multinomial(n, (table / n).ravel(), size=RESAMPLES)
    found = measures(draws.reshape(RESAMPLES, *table.shape).astype(float))
    ends = {name: np.nanquantile(of, [0.025, 0.975]) for name, of in found.items()}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}


def measured(trials: int, case: Case) -> list[dict[str, Any]]:
    """Return one record for each metric of a case."""
    rng = np.random.default_rng([len(case.name), len(case.rows)])
    truth = {metric: true_value(case, metric) for metric in METRICS}
    hits: dict[str, list[tuple[bool, bool, float]]] = {metric: [] for metric in METRICS}
    older: dict[str, list[bool]] = {metric: [] for metric in METRICS}
    for _ in range(trials):
        counted = case.drawn(rng)
        found = counted.metrics(0.95) | counted.ratios(0.95)
        before = {} if case.weighted else bootstrapped(counted, rng)
        for metric, value in truth.items():
            _, low, high = found[metric]
            hits[metric].append((value < low - 1e-9, value > high + 1e-9, high - low))
            if metric in before:
                low, high = before[metric]
                older[metric].append(low - 1e-9 <= value <= high + 1e-9)
    return [
        {
            "case": case.name,
            "metric": metric,
            "truth": round(truth[metric], 4),
            "coverage": round(1 - float(np.mean([low or high for low, high, _ in each])), 4),
            "truth_below": round(float(np.mean([low for low, _, _ in each])), 4),
            "width": round(float(np.mean([width for _, _, width in each])), 4),
            "bootstrap": round(float(np.mean(older[metric])), 4) if older[metric] else None,
        }
        for metric, each in hits.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    code, start, records = code_hash(), cpu_seconds(), list[dict[str, Any]]()
    for found in spread(partial(measured, asked.trials), CASES, asked.processes):
        records += found
        for record in records[-len(METRICS) :]:
            print(*(f"{value!s:>12}" for value in record.values()), flush=True)
    lowest = min(record["coverage"] for record in records)
    result: dict[str, Any] = {"version": __version__, "code": code, "machine": machine()}
    result |= {"trials": asked.trials, "lowest": lowest}
    result |= {"cpu_seconds": round(cpu_seconds() - start)}
    RESULTS.write_text(json.dumps(result | {"records": records}, indent=1) + "\n")
    print(f"{len(records)} intervals, lowest coverage {lowest}")


if __name__ == "__main__":
    main()
