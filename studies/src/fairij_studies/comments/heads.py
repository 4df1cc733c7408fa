"""LC and NC on the encoder's vectors: plain training, regularised training, and the edit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from fairij import FairIJ, Grid, LowestGap, SharedConjugateGradient
from fairij.baselines.base import Stratified
from fairij.baselines.in_processing import InProcessing
from fairij.baselines.penalties import HGR, GapReg
from fairij.language import BalancedAccuracyBudget, linear_head, nonlinear_head
from fairij.language.batches import on_device, run_all
from fairij.language.features import features, standardised
from fairij.language.training import Trained, TrainingRecipe, train
from fairij.method.selection import measures_of
from fairij.solvers import Solver, SolverName
from fairij_studies.comments.measured import measured
from fairij_studies.comments.prepared import ENCODER, PARTS, Part, comments, device, encoder

CONSTRAINTS: tuple[Stratified, ...] = ("equalized_odds", "demographic_parity")
STRENGTHS = (0.2, 1.0)
HEADS = {"LC": linear_head, "NC": nonlinear_head}
RECIPES = {
    "LC": TrainingRecipe(learning_rate=3e-3, batch_size=512, epochs=40, patience=3),
    "NC": TrainingRecipe(learning_rate=3e-4, batch_size=512, epochs=20, patience=3),
}
# the edit may lose this much balanced accuracy on validation rows
BUDGET = 0.005
DAMPINGS = (1e-3, 1e-2, 1e-1)
SAMPLED = {"LC": 0, "NC": 4096}  # rows of the solver's preconditioner, if there are many parameters
KEPT_BYTES = {"cpu": 2**31, "cuda": 2**35}
SOLVER_BYTES = 2**31


@cache
def vectors(folder: str) -> dict[str, NDArray[np.float32]]:
    """Return the standardised vectors of each split, from the folder's cache if it has them."""
    parts = comments(folder)
    model = encoder(folder, ENCODER, device(), "float32")
    raw = [features(parts[name].tokens, model, cache=Path(folder) / "features") for name in PARTS]
    return dict(zip(PARTS, standardised(*raw), strict=True))


@dataclass(frozen=True)
class Plain:
    """A head trained without a penalty and without identities, and its rows."""

    fresh: Any
    rows: dict[str, Any]
    trained: Trained
    seconds: float


@lru_cache(maxsize=1)
def plain(folder: str, head: str, seed: int) -> Plain:
    parts, X = comments(folder), vectors(folder)
    where = torch.device("cpu" if head == "LC" else device())
    rows = {name: on_device(X[name], where) for name in PARTS}
    fresh = HEADS[head](X["train"].shape[1], seed=seed).to(where)
    start = time.perf_counter()
    given = training_arguments(parts, rows)
    trained = train(fresh, recipe=RECIPES[head], seed=seed, **given)
    seconds = time.perf_counter() - start
    return Plain(fresh, rows, trained, seconds)


def shared_solver(head: str) -> SharedConjugateGradient:
    """Return a solver for the edits of one unit, so that its records do not depend on others."""
    return SharedConjugateGradient(sample_rows=SAMPLED[head], memory_limit=SOLVER_BYTES)


def head_unit(
    *,
    folder: str,
    head: str,
    seed: int,
    identity: str,
    dampings: tuple[float, ...] = DAMPINGS,
) -> list[dict[str, Any]]:
    """Run every method on one head, one seed, one identity."""
    parts, base = comments(folder), plain(folder, head, seed)
    solver = shared_solver(head)
    records = [
        {
            **facts("erm", constraint, base.seconds, epochs=base.trained.best_epoch),
            **judged(base.trained.model, parts, base.rows, identity),
        }
        for constraint in CONSTRAINTS
    ]
    for constraint in CONSTRAINTS:
        for strength in STRENGTHS:
            for kind in (GapReg, HGR):
                method = kind(constraint=constraint, strength=strength, seed=seed)
                records.append(
                    regularised(base.fresh, method, RECIPES[head], seed, parts, base.rows, identity)
                )
        records += edited_by_both_rules(base, constraint, parts, identity, dampings, solver)
    return records


def edited_by_both_rules(
    base: Plain,
    constraint: str,
    parts: dict[str, Part],
    identity: str,
    dampings: tuple[float, ...],
    solver: Solver,
) -> list[dict[str, Any]]:
    """Run Fair-IJ by the paper's rule and by its budget, from one table of candidates.

    Candidates are solved loosely. As in a fit, the lowest is solved and judged again until it
    stays the lowest.
    """
    measured_on = constraint, parts, base.rows, identity
    given = base.trained.model, *measured_on
    start = time.perf_counter()
    fair = fitted(*given, budget=BUDGET, dampings=dampings, solver=solver)
    within = edit_record(fair, *measured_on, time.perf_counter() - start)
    table = fair.candidates_.copy()
    solved: dict[int, tuple[FairIJ, float]] = {}  # by row of the table
    while (place := lowest_of(table)) not in solved:
        start, row = time.perf_counter(), table.iloc[place]
        alone = fitted(
            *given,
            budget=None,
            dampings=(float(row["damping"]),),
            solver=solver,
            search=Grid(k=(int(row["k"]),), scales=(float(row["scale"]),)),
        )
        solved[place] = alone, time.perf_counter() - start
        for name in ("gap", "accuracy"):  # of that candidate, or of the unedited model
            table.loc[place, name] = alone.candidates_[name].iloc[-1]
    lowest, seconds = solved[place]
    return [edit_record(lowest, *measured_on, seconds), within]


def lowest_of(candidates: pd.DataFrame) -> int:
    """Choose by the paper's rule."""
    return LowestGap().choose(measures_of(candidates))


def both_gaps_unit(*, folder: str, head: str, seed: int, identity: str) -> list[dict[str, Any]]:
    """Edit for equalized odds, with its two gaps weighted so that both close."""
    parts, base = comments(folder), plain(folder, head, seed)
    given = base.trained.model, "equalized_odds_balanced", parts, base.rows, identity
    found = edited(*given, budget=BUDGET, solver=shared_solver(head))
    return [{**found, "constraint": "equalized_odds", "rule": f"budget {BUDGET:g}, both gaps"}]


def training_arguments(
    parts: dict[str, Part], rows: Any, identity: str | None = None
) -> dict[str, Any]:
    """Return arguments of `train`, with groups if a penalty needs those of an identity."""
    given = {
        "X": rows["train"],
        "y": parts["train"].y,
        "X_val": rows["val"],
        "y_val": parts["val"].y,
    }
    if identity is None:
        return given
    groups = {name: parts[name].mentions[identity] for name in ("train", "val")}
    return given | {"groups": groups["train"], "groups_val": groups["val"]}


def regularised(
    fresh: Any,
    method: InProcessing,
    recipe: TrainingRecipe,
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
    **settings: Any,
) -> dict[str, Any]:
    """Return Fair-IJ's edit, measured. The settings are those of `fitted`."""
    start = time.perf_counter()
    fair = fitted(model, constraint, parts, rows, identity, **settings)
    return edit_record(fair, constraint, parts, rows, identity, time.perf_counter() - start)


def fitted(
    model: Any,
    constraint: Any,
    parts: dict[str, Part],
    rows: Any,
    identity: str,
    *,
    budget: float | None,
    dampings: tuple[float, ...] = DAMPINGS,
    solver: SolverName | Solver = "cg",
    search: Grid = Grid(points=20),  # noqa: B008 - a frozen value
) -> FairIJ:
    """Fit Fair-IJ. Without a budget it uses the paper's rule, the lowest validation gap."""
    where = rows["val"]["input_ids"] if isinstance(rows["val"], dict) else rows["val"]
    return FairIJ(
        model,
        constraints=constraint,
        solver=solver,
        damping=dampings,
        temperature=3.0,
        search=search,
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


def edit_record(
    fair: FairIJ, constraint: str, parts: dict[str, Part], rows: Any, identity: str, seconds: float
) -> dict[str, Any]:
    """Return the record of a fit's choice, measured."""
    chosen, rule = fair.candidates_.iloc[fair.chosen_], "lowest gap"
    if isinstance(fair.selection, BalancedAccuracyBudget):
        rule = f"budget {fair.selection.budget:g}"
    return {
        **facts("fair-ij", constraint, seconds),
        "rule": rule,
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
    """Return figures on test rows, and on validation rows with a prefix."""
    found: dict[str, float] = {}
    for name, prefix in (("test", ""), ("val", "validation_")):
        z = run_all(model, rows[name]).cpu().numpy()
        mentioned = parts[name].mentions[identity].to_numpy()
        found |= measured(z, parts[name].y, mentioned, prefix=prefix)
    return found
