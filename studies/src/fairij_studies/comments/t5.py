"""A small frozen T5, pre-trained on the training comments alone by span corruption.

It replaces T5's published weights, which the study does not use. It has seen about ninety thousand
comments, not the web. Its figures show that the method works with T5's code. They do not show how
well T5 itself would do.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairij.errors import InvalidInputError
from fairij.language.training import TrainingRecipe, train
from fairij.models.text.library import load_transformers
from fairij.models.text.tokens import token_rows
from fairij.models.text.trigger_editable import TriggerEditable
from fairij.models.text.triggers import TriggerTokens
from fairij_studies.comments.prepared import comments, device

SMALL_T5 = "small-t5"
READY = "ready"  # a file that marks a complete encoder
SENTINELS = 32  # most spans per comment
RATE, SPAN = 0.15, 3  # as in T5's paper: share of tokens left out, mean length of a gap
HIGHEST_RATE = 5e-4
SIZES = {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 4}
BASE = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}


def pretraining_unit(
    *, folder: str, seed: int, epochs: int, sizes: dict[str, int] = SIZES, batch_size: int = 256
) -> list[dict[str, Any]]:
    """Pre-train, write the encoder into the folder, and record the loss."""
    start = time.perf_counter()
    library = load_transformers()
    rows = comments(folder)["train"].tokens["input_ids"].tolist()
    words = int(max(row.max() for row in rows)) + 1
    where = torch.device(device())
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
        torch.manual_seed(seed)
        config = library.T5Config(
            vocab_size=words + SENTINELS, decoder_start_token_id=0, dropout_rate=0.0, **sizes
        )
        model = library.T5ForConditionalGeneration(config).to(where).train()
        losses = _pretrain(model, rows, words, epochs, batch_size, seed, where)
    kept = library.T5EncoderModel(config).to(where)
    kept.load_state_dict(model.state_dict(), strict=False)
    kept.save_pretrained(Path(folder) / SMALL_T5)
    (Path(folder) / SMALL_T5 / READY).touch()
    return [
        {
            "method": "span corruption",
            "losses": [round(loss, 4) for loss in losses],
            "parameters": sum(p.numel() for p in kept.parameters()),
            "seconds": time.perf_counter() - start,
        }
    ]


def await_small_t5(folder: str, *, seconds: float = 300.0) -> None:
    """Wait for the unit that pre-trains. It comes first and may still be running."""
    end = time.monotonic() + seconds
    while not (Path(folder) / SMALL_T5 / READY).exists():
        if time.monotonic() > end:
            raise InvalidInputError(
                "The small T5 must be pre-trained, but its files are missing. Run that unit again."
            )
        time.sleep(0.5)


def _pretrain(
    model: Any,
    rows: list[NDArray[np.int64]],
    words: int,
    epochs: int,
    batch_size: int,
    seed: int,
    where: torch.device,
) -> list[float]:
    rng = np.random.default_rng(seed)
    steps = epochs * -(-len(rows) // batch_size)
    optimiser = torch.optim.AdamW(model.parameters(), HIGHEST_RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, HIGHEST_RATE, total_steps=steps)
    losses = []
    for _ in range(epochs):
        pairs = [corrupted(row, words, rng) for row in rows]
        order = np.argsort([len(inputs) + rng.random() * 8 for inputs, _ in pairs])
        batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        found: list[float] = []
        for index in rng.permutation(len(batches)):
            chosen = [pairs[i] for i in batches[index]]
            inputs = token_rows({"input_ids": [pair[0] for pair in chosen]}, device=where)
            targets = token_rows({"input_ids": [pair[1] for pair in chosen]}, device=where)
            labels = targets["input_ids"].masked_fill(targets["attention_mask"] == 0, -100)
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast(where.type, torch.bfloat16, enabled=where.type == "cuda"):
                loss = model(**inputs, labels=labels).loss
            loss.backward()
            size = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            if math.isfinite(size):  # half precision may overflow: skip the step
                optimiser.step()
                found.append(float(loss))
            schedule.step()
        if not found:
            raise InvalidInputError(
                "Pre-training of the small T5 must have a finite loss, but it diverged."
            )
        losses.append(float(np.mean(found)))
    return losses


def corrupted(
    row: NDArray[np.int64], words: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Replace some spans by marks. The target lists the marks with the spans they replace.

    Marks are the numbers from ``words`` on, in the order of the text.
    """
    n = len(row)
    gaps = int(np.clip(round(n * RATE / SPAN), 1, SENTINELS - 1))
    starts = np.sort(rng.choice(n, size=min(gaps, n), replace=False))
    inputs: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int64]] = []
    place = 0
    for mark, start in enumerate(starts):
        if start < place:
            continue  # inside the previous gap
        stop = min(start + SPAN, n)
        sign = np.array([words + mark])
        inputs += [row[place:start], sign]
        targets += [sign, row[start:stop]]
        place = stop
    return np.concatenate([*inputs, row[place:]]), np.concatenate(targets)


def real_size_unit(
    *, folder: str, n_tokens: int, rows: int, sizes: dict[str, int] = BASE
) -> list[dict[str, Any]]:
    """Measure the cost of an edit at the size of T5-base, with random weights."""
    library = load_transformers()
    part = comments(folder)["train"]
    some = part.take(np.arange(min(rows, len(part.y))))
    words = int(max(row.max() for row in some.tokens["input_ids"])) + 1
    where = torch.device(device())
    precision = torch.bfloat16 if where.type == "cuda" else torch.float32
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = library.T5Config(vocab_size=max(words, 32), **sizes)
        model = library.T5EncoderModel(config).to(where, precision)
    triggers = TriggerTokens(model, n_tokens)
    tokens = token_rows(some.tokens, device=where)
    editable = TriggerEditable(triggers, memory_limit=2**36)
    editable.linearize({n: t[:64] for n, t in tokens.items()})  # kernels are made once
    forward = timed(lambda: editable.outputs(tokens))
    jacobian = timed(lambda: editable.per_row(tokens))
    epoch = timed(
        lambda: train(
            triggers,
            tokens,
            some.y,
            X_val={n: t[:64] for n, t in tokens.items()},
            y_val=some.y[:64],
            recipe=TrainingRecipe(epochs=1, batch_size=128),
        )
    )
    return [
        {
            "method": "timing",
            "rows": len(some.y),
            "parameters": sum(p.numel() for p in model.parameters()),
            "forward_seconds": forward,
            "jacobian_seconds": jacobian,
            "epoch_seconds": epoch,
            "device": device_name(),
        }
    ]


def timed(work: Any) -> float:
    """Return seconds of some work. The device is idle at the start and at the end."""
    _empty_queue()
    start = time.perf_counter()
    work()
    _empty_queue()
    return time.perf_counter() - start


def _empty_queue() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
