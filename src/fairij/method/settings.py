"""What is asked for, checked before any row is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from fairij.data.checks import dampings, has_method, looked_up, number_between, one_of, whole_number
from fairij.errors import InvalidInputError
from fairij.fairness.constraints import Constraint, get_constraint
from fairij.method.curvature import CURVATURES
from fairij.method.search import SEARCHES, Search, SearchDefaults
from fairij.method.selection import RULES, Selection, SelectionDefaults
from fairij.models.losses import LOSSES, Loss, get_loss
from fairij.solvers import SOLVERS, Solver, SolverDefaults

Drop = Literal["fairness", "loss_aware"]
Validation = Literal["reuse", "split", "cross_fit"]
Batch = int | Literal["auto"]


@dataclass(frozen=True)
class Settings:
    """The parameters of `FairIJ` as objects, each looked up and checked once."""

    constraint: Constraint
    solver: Solver
    curvature: str
    dampings: tuple[float, ...] | Literal["auto"]
    search: Search
    selection: Selection
    drop: Drop
    validation: Validation
    validation_fraction: float
    holdout_fraction: float
    temperature: float
    loss: str | Loss
    weight_decay: float
    confidence: float
    seed: int
    verbose: bool | Literal["auto"]


def check_settings(asked: Mapping[str, Any], seed: int) -> Settings:
    """Look up and check the parameters of `FairIJ`, by name."""
    search = get_search(asked["search"])
    if asked["drop"] == "loss_aware" and not search.row_by_row:
        raise InvalidInputError(
            "`drop`='loss_aware' must have a search that goes row by row, but "
            f"search={search.name!r} does not choose rows: use 'reweight', or a search that drops "
            "rows."
        )
    verbose = one_of("verbose", asked["verbose"], (True, False, "auto"))
    return Settings(
        constraint=get_constraint(asked["constraints"]),
        solver=_solver(asked["solver"], seed),
        curvature=one_of("curvature", asked["curvature"], sorted(CURVATURES)),
        dampings=dampings(asked["damping"]),
        search=search,
        selection=get_selection(asked["selection"]),
        drop=one_of("drop", asked["drop"], get_args(Drop)),
        validation=one_of("validation", asked["validation"], get_args(Validation)),
        validation_fraction=asked["validation_fraction"],  # checked if rows are split off
        holdout_fraction=asked["holdout_fraction"],  # likewise
        temperature=number_between("temperature", asked["temperature"], 0),
        loss=_loss(asked["loss"]),
        weight_decay=number_between("weight_decay", asked["weight_decay"], 0, including_low=True),
        confidence=number_between("confidence", asked["confidence"], 0, 1),
        seed=seed,
        verbose="auto" if isinstance(verbose, str) else bool(verbose),
    )


def check_seed(random_state: Any) -> int:
    """The seed that is given, or a random one for None."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    return whole_number("random_state", random_state, 0, otherwise=" or None")


def check_batches(batch_size: Any, memory_limit: Any) -> tuple[Batch, int]:
    if not (isinstance(batch_size, str) and batch_size == "auto"):
        batch_size = whole_number("batch_size", batch_size, 1, otherwise=" or 'auto'")
    return batch_size, whole_number("memory_limit", memory_limit, 0)


def _solver(asked: Any, seed: int) -> Solver:
    solver = get_solver(asked)
    return solver.seeded(seed) if isinstance(asked, str) else solver


def _loss(asked: Any) -> str | Loss:
    if isinstance(asked, str) and asked == "auto":
        return asked
    allowed = f"one of {sorted(LOSSES)}, 'auto' or a loss object"
    loss: Loss = has_method("loss", get_loss(asked), "slope", allowed)
    return loss


def get_search(search: str | Search) -> Search:
    """A search by name, with its default settings, or the object that is given."""
    example = "a search object, as in Grid(max_k=500)"
    found: Search = looked_up("search", search, SEARCHES, Search, SearchDefaults, example)
    return found


def get_selection(rule: str | Selection) -> Selection:
    """A rule of choice by name, or the object that is given."""
    example = (
        "LowestGap(slack=...), AccuracyBudget(...), TargetGap(...) or an object with a `choose` "
        "method"
    )
    found: Selection = looked_up("selection", rule, RULES, Selection, SelectionDefaults, example)
    return found


def get_solver(solver: str | Solver) -> Solver:
    """A solver by name, with its default settings, or the object that is given."""
    example = "a solver object, as in Woodbury(rows=500)"
    found: Solver = looked_up("solver", solver, SOLVERS, Solver, SolverDefaults, example)
    return found
