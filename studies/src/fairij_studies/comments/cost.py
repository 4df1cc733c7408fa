"""The cost of editing a trigger-token model, and whether CPU and GPU find the same edit."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from fairij import FairIJ, Grid
from fairij.language.batches import on_device
from fairij.language.training import TrainingRecipe, train
from fairij.models.text.trigger_editable import TriggerEditable
from fairij.models.text.triggers import TriggerTokens
from fairij_studies.comments.heads import KEPT_BYTES, edited, training_arguments
from fairij_studies.comments.prepared import Part, comments, device, encoder
from fairij_studies.comments.t5 import device_name, timed
from fairij_studies.comments.triggers import RECIPE, fresh_model

TOP = 500
FEW = 4000  # comments


def cost_unit(
    *, folder: str, name: str, n_tokens: int, identity: str, recipe: TrainingRecipe = RECIPE
) -> list[dict[str, Any]]:
    """Measure training, the lower bound, the scores, and a whole mitigation by phase."""
    parts = comments(folder)
    fresh, rows = fresh_model(folder, name, n_tokens, 0)
    given = training_arguments(parts, rows)
    train(fresh, recipe=TrainingRecipe(epochs=1), seed=0, **given)  # kernels are compiled once
    start = time.perf_counter()
    plain = train(fresh, recipe=recipe, seed=0, **given)
    training = time.perf_counter() - start
    editable = TriggerEditable(plain.model, memory_limit=KEPT_BYTES[device()])
    tokens, theta = editable.prepare(rows["train"]), editable.theta
    editable.per_row({n: t[:64] for n, t in tokens.items()})
    floor = min(timed(lambda: [editable.run(tokens, theta) for _ in range(3)]) for _ in "ab")
    scores = min(timed(lambda: editable.per_row(tokens).jvp(theta)) for _ in "ab")
    few = {name: _with_mentions(part, identity, FEW) for name, part in parts.items()}
    on = {name: on_device(part.tokens, torch.device(device())) for name, part in few.items()}

    def mitigated(parts: dict[str, Part], rows: Any) -> dict[str, Any]:
        settings: Any = {"budget": None, "dampings": (1e-2,)}
        return edited(plain.model, "demographic_parity", parts, rows, identity, **settings)

    mitigated(few, on)  # the same
    found = mitigated(parts, rows)
    return [
        {
            "method": "cost",
            "rows": len(parts["train"].y),
            "device": device_name(),
            "training_seconds": training,
            "epochs": len(plain.history),
            "floor_seconds": floor,
            "scores_seconds": scores,
            "mitigation_seconds": found["seconds"],
            "phases": found["phases"],
        }
    ]


def agreement_unit(
    *,
    folder: str,
    name: str,
    n_tokens: int,
    identity: str,
    train_rows: int,
    validation_rows: int,
    threads: int = 8,
    recipe: TrainingRecipe = RECIPE,
) -> list[dict[str, Any]]:
    """Compare the edit on CPU and device, both in float32, and on the device in bfloat16."""
    parts = comments(folder)
    some = {
        "train": _with_mentions(parts["train"], identity, train_rows),
        "val": _with_mentions(parts["val"], identity, validation_rows),
    }
    fresh, rows = fresh_model(folder, name, n_tokens, 0)
    plain = train(fresh, recipe=recipe, **training_arguments(parts, rows)).model
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        runs = {
            kind: _edit_on(plain, folder, name, where, precision, some, identity)
            for kind, where, precision in (
                ("cpu", "cpu", "float32"),
                ("device", device(), "float32"),
                ("device_bf16", device(), "bfloat16"),
            )
        }
    finally:
        torch.set_num_threads(before)
    reference = runs["cpu"]
    return [
        {
            "method": "agreement",
            "compared": kind,
            "device": device_name(),
            "shared_in_top_500": shared_in_top(reference[0], scores),
            "gap": gap,
            "gap_on_cpu": reference[1],
            "seconds": seconds,
            "seconds_on_cpu": reference[2],
        }
        for kind, (scores, gap, seconds) in runs.items()
        if kind != "cpu"
    ]


def _edit_on(
    trained: TriggerTokens,
    folder: str,
    name: str,
    where: str,
    precision: str,
    some: dict[str, Part],
    identity: str,
) -> tuple[Any, float, float]:
    model = TriggerTokens(encoder(folder, name, where, precision), len(trained.triggers))
    with torch.no_grad():
        model.triggers.copy_(trained.triggers)
        model.head.load_state_dict(trained.head.state_dict())
    rows = {part: on_device(some[part].tokens, torch.device(where)) for part in some}
    start = time.perf_counter()
    fair = FairIJ(
        model,
        search=Grid(points=8),
        selection="lowest_gap",
        memory_limit=KEPT_BYTES[where],
        verbose=False,
    ).fit(
        rows["train"],
        some["train"].y,
        X_val=rows["val"],
        y_val=some["val"].y,
        sensitive_features_val=some["val"].mentions[identity],
    )
    seconds = time.perf_counter() - start
    return fair.influence_, float(fair.candidates_["gap"].iloc[fair.chosen_]), seconds


def _with_mentions(part: Part, identity: str, rows: int) -> Part:
    """Return all comments that mention the identity, and others up to a number."""
    mentioned = part.mentions[identity].to_numpy()
    index = np.argsort(~mentioned, kind="stable")[:rows]
    return part.take(np.sort(index))


def shared_in_top(first: Any, second: Any, top: int = TOP) -> float:
    """The share of the highest scores that both have in common."""
    top = min(top, len(first) // 2)
    return len(set(np.argsort(-first)[:top]) & set(np.argsort(-second)[:top])) / top
