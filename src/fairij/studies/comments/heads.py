"""LC and NC on the encoder's vectors: plain training, the regularised ones, and the edit."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairij.baselines.gapreg import GapReg
from fairij.baselines.hgr import HGR
from fairij.baselines.in_processing import InProcessing
from fairij.language.batches import on_device, run_all
from fairij.language.features import features, standardised
from fairij.language.heads import HEADS
from fairij.language.selection import BalancedAccuracyBudget
from fairij.language.training import Recipe, train
from fairij.mitigator import FairIJ
from fairij.search import Grid
from fairij.solvers import SharedConjugateGradient, Solver
from fairij.studies.comments.measured import measured
from fairij.studies.comments.prepared import ENCODER, PARTS, Part, comments, device, encoder

CONSTRAINTS = ("equalized_odds", "demographic_parity")
STRENGTHS = (0.2, 1.0)
RECIPES = {
    "LC": Recipe(learning_rate=3e-3, batch_size=512, epochs=40, patience=3),
    "NC": Recipe(learning_rate=3e-4, batch_size=512, epochs=20, patience=3),
}
# the edit is one that loses at most this much of balanced accuracy on validation rows
BUDGET = 0.005
DAMPINGS = (1e-3, 1e-2, 1e-1)
KEPT_BYTES = {"cpu": 2**31, "cuda": 2**35}


@cache
def vectors(folder: str) -> dict[str, NDArray[np.float32]]:
    """The standardised vectors of each split, from the folder's cache where they are there."""
    parts = comments(folder)
    model = encoder(folder, ENCODER, device(), "float32")
    raw = [features(parts[name].tokens, model, cache=Path(folder) / "features") for name in PARTS]
    return dict(zip(PARTS, standardised(*raw), strict=True))


def head_unit(
    *,
    folder: str,
    head: str,
    seed: int,
    identity: str,
    dampings: tuple[float, ...] = DAMPINGS,
) -> list[dict[str, Any]]:
    """Every method on one head, one seed, one identity."""
    parts, X = comments(folder), vectors(folder)
    where = "cpu" if head == "LC" else device()
    rows = {name: on_device(X[name], torch.device(where)) for name in PARTS}
    start = time.perf_counter()
    fresh = HEADS[head](X["train"].shape[1], seed=seed).to(where)
    given = training_arguments(parts, rows, identity)
    plain = train(fresh, recipe=RECIPES[head], seed=seed, **given)
    seconds = time.perf_counter() - start
    records = [
        {
            **facts("erm", constraint, seconds, epochs=plain.best_epoch),
            **judged(plain.model, parts, rows, identity),
        }
        for constraint in CONSTRAINTS
    ]
    solver = SharedConjugateGradient()  # all edits are of one model and its training rows
    for constraint in CONSTRAINTS:
        for strength in STRENGTHS:
            for kind in (GapReg, HGR):
                method = kind(constraint=constraint, strength=strength, seed=seed)
                records.append(
                    regularised(fresh, method, RECIPES[head], seed, parts, rows, identity)
                )
        for budget in (None, BUDGET):
            found = edited(
                plain.model,
                constraint,
                parts,
                rows,
                identity,
                budget=budget,
                dampings=dampings,
                solver=solver,
            )
            records.append(found)
    return records


def both_gaps_unit(*, folder: str, head: str, seed: int, identity: str) -> list[dict[str, Any]]:
    """The edit for equalized odds that weighs its two gaps so as to close both at once."""
    parts, X = comments(folder), vectors(folder)
    where = torch.device("cpu" if head == "LC" else device())
    rows = {name: on_device(X[name], where) for name in PARTS}
    fresh = HEADS[head](X["train"].shape[1], seed=seed).to(where)
    given = training_arguments(parts, rows, identity)
    plain = train(fresh, recipe=RECIPES[head], seed=seed, **given).model
    found = edited(plain, "equalized_odds_balanced", parts, rows, identity, budget=BUDGET)
    return [{**found, "constraint": "equalized_odds", "rule": f"budget {BUDGET:g}, both gaps"}]


def training_arguments(parts: dict[str, Part], rows: Any, identity: str) -> dict[str, Any]:
    return {
        "X": rows["train"],
        "y": parts["train"].y,
        "X_val": rows["val"],
        "y_val": parts["val"].y,
        "groups": parts["train"].mentions[identity],
        "groups_val": parts["val"].mentions[identity],
    }


def regularised(
    fresh: Any,
    method: InProcessing,
    recipe: Recipe,
    seed: int,
    parts: dict[str, Part],
    rows: Any,
    identity: str,
) -> dict[str, Any]:
    start = time.perf_counter()
    given = training_arguments(parts, rows, identity)
    found = train(fresh, recipe=recipe, seed=seed, penalty=method, **given)
    seconds = time.perf_counter() - start
    return {
        **facts(method.name, method.constraint, seconds, epochs=found.best_epoch),
        "strength": method.strength,
        **judged(found.model, parts, rows, identity),
    }


def edited(
    model: Any,
    constraint: str,
    parts: dict[str, Part],
    rows: Any,
    identity: str,
    *,
    budget: float | None,
    dampings: tuple[float, ...] = DAMPINGS,
    solver: str | Solver = "cg",
) -> dict[str, Any]:
    """Fair-IJ; without a budget the paper's rule, the lowest gap on validation rows."""
    start = time.perf_counter()
    where = rows["val"]["input_ids"] if isinstance(rows["val"], dict) else rows["val"]
    fair = FairIJ(
        model,
        constraints=constraint,
        solver=solver,
        damping=dampings,
        temperature=3.0,
        search=Grid(points=20),
        selection="lowest_gap" if budget is None else BalancedAccuracyBudget(budget),
        memory_limit=KEPT_BYTES[where.device.type],
        verbose=False,
    ).fit(
        rows["train"],
        parts["train"].y,
        X_val=rows["val"],
        y_val=parts["val"].y,
        sensitive_features_val=parts["val"].mentions[identity],
    )
    seconds = time.perf_counter() - start
    chosen = fair.candidates_.iloc[fair.chosen_]
    return {
        **facts("fair-ij", constraint, seconds),
        "rule": "lowest gap" if budget is None else f"budget {budget:g}",
        **judged(fair.estimator_, parts, rows, identity),
        "k": int(chosen["k"]),
        "scale": float(chosen["scale"]),
        "damping": float(chosen["damping"]),
        "phases": {name: round(s, 4) for name, s in fair.diagnostics_["seconds"].items()},
        "jvp_mode": str(fair.diagnostics_["jvp_mode"]),
    }


def facts(method: str, constraint: str, seconds: float, **more: Any) -> dict[str, Any]:
    return {"method": method, "constraint": constraint, "seconds": seconds, **more}


def judged(model: Any, parts: dict[str, Part], rows: Any, identity: str) -> dict[str, float]:
    """Figures on test rows, and on validation rows with a prefix."""
    found: dict[str, float] = {}
    for name, prefix in (("test", ""), ("val", "validation_")):
        z = run_all(model, rows[name]).cpu().numpy()
        mentioned = parts[name].mentions[identity].to_numpy()
        found |= measured(z, parts[name].y, mentioned, prefix=prefix)
    return found
