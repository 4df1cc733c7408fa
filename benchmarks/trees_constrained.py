"""The constrained search on LightGBM, in both forms and as "auto", next to other methods.

``python -m benchmarks.trees_constrained --coverage FILE --seeds 80-84 --workers 2``

Adult, and a sample of ACSPublicCoverage (a Parquet file), with the settings of the trees study.
Every form is chosen on validation rows, by three rules, and measured on test rows. `LinearPost`
knows the groups of training rows; all others know those of validation rows only. Seconds are CPU
seconds of one thread.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairij_studies.provenance import code_hash
from fairij_studies.trees.data import ADULT, COVERAGE_SAMPLE, Places, load_splits
from fairij_studies.trees.models import LIGHTGBM, make_model
from sklearn.metrics import log_loss, roc_auc_score

from fairij import AccuracyBudget, Auto, Budget, FairIJ, __version__, adapt
from fairij.baselines import LinearPost
from fairij.baselines.base import TOLERANCES
from fairij.datasets import Split, Splits
from fairij.fairness.rates import GAPS, confusion_counts
from fairij.method.selection import measures_of

RESULTS = Path(__file__).parent / "results" / "trees_constrained.json"
TABLES = {"adult": ADULT, "coverage": COVERAGE_SAMPLE}
CONSTRAINTS = ("demographic_parity", "equalized_odds")
RULES: dict[str, Any] = {
    "default": Budget(),
    "accuracy 0.02": AccuracyBudget(0.02),
    "accuracy 0.03": AccuracyBudget(0.03),
}
TRIED = Auto().forms(trained_together=False, drop="all", linear=True).searches  # by "auto"
FORMS: dict[str, Any] = {
    "path": "path",
    "training loss": TRIED[1],
    "chances, validation loss": TRIED[0],
}
AUTO, RIVAL = "auto", "LinearPost"
SHOWN = ("accuracy", "gap", "auc", "brier", "validation_gap", "seconds", "training")


def measured(p: Any, part: Split, constraint: str) -> dict[str, float]:
    y, s = np.asarray(part.y).astype(int), np.asarray(part.s).astype(int)
    p = np.clip(np.asarray(p, dtype=np.float64), 1e-9, 1 - 1e-9)
    labels = (p > 0.5).astype(int)
    counts = confusion_counts(y, labels, s, n_groups=2, n_classes=2)
    return {
        "accuracy": float((labels == y).mean()),
        "gap": float(GAPS[constraint].metric(counts)),
        "auc": float(roc_auc_score(y, p)),
        "brier": float(((p - y) ** 2).mean()),
        "log_loss": float(log_loss(y, p)),
    }


def fitted(model: Any, splits: Splits, search: Any, rule: Any, constraint: str) -> FairIJ:
    fair = FairIJ(model, constraints=constraint, search=search, selection=rule, verbose=False)
    return fair.fit(
        splits.train.X,
        splits.train.y,
        X_val=splits.validation.X,
        y_val=splits.validation.y,
        sensitive_features_val=splits.validation.s,
    )


def of_searches(
    model: Any, splits: Splits, constraint: str, forms: Sequence[str]
) -> list[dict[str, Any]]:
    """Each form by each rule; "auto" looks at the rule, so it is run for each of them."""
    editable, records = adapt(model), list[dict[str, Any]]()
    asked = [(form, search, None) for form, search in FORMS.items()]
    asked += [(AUTO, AUTO, rule) for rule in RULES]
    for form, search, only in asked:
        if form not in forms:
            continue
        start = time.process_time()
        fair = fitted(model, splits, search, RULES[only or "default"], constraint)
        seconds, table = time.process_time() - start, fair.candidates_
        for name in [only] if only else RULES:
            place = RULES[name].choose(measures_of(table))
            theta = editable.theta + torch.as_tensor(fair.moves_[place])
            p = torch.sigmoid(editable.outputs(splits.test.X, theta)).numpy()
            about = {"form": form, "rule": name, "seconds": seconds}
            about |= {"validation_gap": float(table["gap"][place])}
            if form == AUTO:
                about |= {"took_chances": bool(fair.search_.chances)}
            records.append(about | measured(p, splits.test, constraint))
    return records


def of_rival(model: Any, splits: Splits, constraint: str) -> list[dict[str, Any]]:
    """`LinearPost` at each tolerance, chosen by the same budgets of accuracy."""
    start, found = time.process_time(), []
    for tolerance in TOLERANCES.sweep:
        rival = LinearPost(constraint, tolerance).fit(model, splits.train, splits.validation)
        parts = (splits.validation, splits.test)
        found.append([measured(rival.predict_proba(q.X)[:, 1], q, constraint) for q in parts])
    seconds, records = time.process_time() - start, []
    for name, rule in RULES.items():
        if not isinstance(rule, AccuracyBudget):
            continue
        least = max(seen["accuracy"] for seen, _ in found[:1]) - rule.budget
        able = [pair for pair in found if pair[0]["accuracy"] >= least]
        seen, unseen = min(able, key=lambda pair: pair[0]["gap"])
        about = {"form": RIVAL, "rule": name, "seconds": seconds}
        records.append(about | {"validation_gap": seen["gap"]} | unseen)
    return records


def run(
    unit: tuple[str, int, str], coverage: str | None, forms: Sequence[str]
) -> list[dict[str, Any]]:
    """All forms of one table, seed and constraint."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    table, seed, constraint = unit
    splits = load_splits(TABLES[table], Places(coverage=coverage), False, seed)
    model, start = make_model(LIGHTGBM, TABLES[table]), time.process_time()
    model.fit(splits.train.X, splits.train.y)
    training = time.process_time() - start
    before = measured(model.predict_proba(splits.test.X)[:, 1], splits.test, constraint)
    records = [{"form": "as trained", "rule": "none", "seconds": training} | before]
    records += of_searches(model, splits, constraint, forms)
    if RIVAL in forms:
        records += of_rival(model, splits, constraint)
    key = {"table": table, "seed": seed, "constraint": constraint, "training": training}
    return [key | record for record in records]


def summary(records: list[dict[str, Any]]) -> str:
    """Means over seeds on test rows, with the standard deviation of the gap."""
    names, lines = ("table", "constraint", "rule", "form"), []
    for key in dict.fromkeys(tuple(r[name] for name in names) for r in records):
        own = [r for r in records if tuple(r[name] for name in names) == key]
        shown = [name for name in SHOWN if name in own[0]]
        texts = [f"{name} {np.mean([r[name] for r in own]):.4f}" for name in shown]
        texts.append(f"gap_deviation {np.std([r['gap'] for r in own]):.4f}")
        if "took_chances" in own[0]:
            texts.append(f"took chances {sum(r['took_chances'] for r in own)} of {len(own)}")
        lines.append(" ".join([*key, *texts]))
    return "\n".join(lines)


def seeds_of(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coverage", help="a Parquet file with a sample of ACSPublicCoverage")
    parser.add_argument("--seeds", default="80-84", type=seeds_of)
    parser.add_argument("--workers", default=1, type=int)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--constraints", nargs="+", default=list(CONSTRAINTS))
    choices = (*FORMS, AUTO, RIVAL)
    parser.add_argument("--forms", nargs="+", default=list(choices), choices=choices)
    parser.add_argument("--out", default=str(RESULTS))
    asked = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # of the processes that start from here
        os.environ[name] = "1"
    units = list(product(asked.tables, asked.seeds, asked.constraints))
    context, records = multiprocessing.get_context("spawn"), list[dict[str, Any]]()
    with ProcessPoolExecutor(min(asked.workers, len(units)), mp_context=context) as pool:
        for future in [pool.submit(run, unit, asked.coverage, asked.forms) for unit in units]:
            records += future.result()
    about = {"version": __version__, "code": code_hash(), "torch": torch.__version__}
    Path(asked.out).write_text(json.dumps({**about, "records": records}, indent=1) + "\n")
    print(summary(records))


if __name__ == "__main__":
    main()
