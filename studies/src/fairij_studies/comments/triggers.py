"""TT=n: trigger tokens in the embedding layer and a linear head, for BERT and T5 encoders."""

from __future__ import annotations

import time
from typing import Any

import torch

from fairij.baselines.penalties import GapReg
from fairij.language.batches import on_device
from fairij.language.training import TrainingRecipe, train
from fairij.models.text.trigger_editable import TriggerEditable
from fairij.models.text.triggers import TriggerTokens
from fairij_studies.comments.heads import (
    BUDGET,
    CONSTRAINTS,
    KEPT_BYTES,
    edited,
    facts,
    judged,
    regularised,
    training_arguments,
)
from fairij_studies.comments.prepared import PARTS, comments, device, encoder
from fairij_studies.comments.t5 import SMALL_T5, await_small_t5

RECIPE = TrainingRecipe(learning_rate=3e-3, batch_size=512, epochs=4, patience=2)
DAMPINGS = (1e-3, 1e-2)


def fresh_model(folder: str, name: str, n_tokens: int, seed: int) -> tuple[Any, dict[str, Any]]:
    """Return an untrained model, and the rows of tokens on its device."""
    where = device()
    model = TriggerTokens(
        encoder(folder, name, where, "bfloat16" if where == "cuda" else "float32"),
        n_tokens,
        seed=seed,
    )
    parts = comments(folder)
    return model, {part: on_device(parts[part].tokens, torch.device(where)) for part in PARTS}


def trigger_unit(
    *,
    folder: str,
    name: str,
    n_tokens: int,
    seed: int,
    identities: tuple[str, ...],
    recipe: TrainingRecipe = RECIPE,
) -> list[dict[str, Any]]:
    """Train once without a penalty, then edit for every identity and constraint."""
    if name == SMALL_T5:
        await_small_t5(folder)
    parts = comments(folder)
    fresh, rows = fresh_model(folder, name, n_tokens, seed)
    start = time.perf_counter()
    given = training_arguments(parts, rows)
    plain = train(fresh, recipe=recipe, seed=seed, **given)
    seconds = time.perf_counter() - start
    records = []
    # one adapter for all edits, because it keeps the Jacobians of the rows
    model = TriggerEditable(plain.model, memory_limit=KEPT_BYTES[device()])
    for identity in identities:
        for constraint in CONSTRAINTS:
            erm = facts("erm", constraint, seconds, epochs=plain.best_epoch)
            before = judged(plain.model, parts, rows, identity)
            records.append({**erm, "identity": identity, **before})
            after = edited(
                model, constraint, parts, rows, identity, budget=BUDGET, dampings=DAMPINGS
            )
            records.append({**after, "identity": identity})
    return records


def regularised_trigger_unit(
    *,
    folder: str,
    name: str,
    n_tokens: int,
    seed: int,
    identity: str,
    strength: float,
    recipe: TrainingRecipe = RECIPE,
) -> list[dict[str, Any]]:
    parts = comments(folder)
    fresh, rows = fresh_model(folder, name, n_tokens, seed)
    return [
        regularised(
            fresh,
            GapReg(constraint=constraint, strength=strength, seed=seed),
            recipe,
            seed,
            parts,
            rows,
            identity,
        )
        for constraint in CONSTRAINTS
    ]
