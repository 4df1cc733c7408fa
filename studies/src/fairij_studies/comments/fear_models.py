"""The models on which sentences are tried: heads on vectors, trigger tokens, and LoRA."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from fairij.language import (
    TrainingRecipe,
    features,
    load_tokenizer,
    tokenise,
    train,
)
from fairij.language.batches import TextRows, on_device
from fairij.models.text.library import load_transformers
from fairij_studies.comments import triggers
from fairij_studies.comments.heads import HEADS, RECIPES, Plain, training_arguments
from fairij_studies.comments.prepared import (
    ENCODER,
    MAX_LENGTH,
    PARTS,
    Part,
    comments,
    device,
    encoder,
)

LORA = "LoRA"
# at most so many comments, because each step of an edit runs the whole encoder on all of them
FEWER = {"TT=10": {"train": 10_000, "val": 5000}, LORA: {"train": 2000, "val": 1000}}
TRIED = (*HEADS, "TT=10", LORA)  # on sentences
RANK, ADAPTED = 8, ["query", "value"]
# two thousand comments in batches of 256 are too few steps: such models called nothing toxic
LORA_RECIPE = TrainingRecipe(learning_rate=1e-3, batch_size=32, epochs=10, patience=3)


@dataclass(frozen=True)
class Scale:
    """What standardises vectors: the training comments' mean, and deviation."""

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    def of(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = ((X - self.mean) / self.deviation).astype(np.float32)
        return found


@cache
def halves(folder: str) -> tuple[dict[str, NDArray[np.float32]], Scale]:
    """Return the vectors of each split, by the encoder in bfloat16, and their scale."""
    model = encoder(folder, ENCODER, device(), "bfloat16")
    kept = Path(folder) / "features"
    raw = {name: features(comments(folder)[name].tokens, model, cache=kept) for name in PARTS}
    deviation = raw["train"].std(0)
    scale = Scale(raw["train"].mean(0), np.where(deviation > 1e-6, deviation, np.inf))
    return {name: scale.of(X) for name, X in raw.items()}, scale


@cache
def reader(folder: str, name: str) -> Callable[[list[str]], TextRows]:
    """Return what makes rows of sentences as the model takes them, on its device."""
    tokenizer, where = load_tokenizer(Path(folder) / ENCODER), torch.device(device())

    def tokens(texts: list[str]) -> pd.DataFrame:
        return tokenise(texts, tokenizer, max_length=MAX_LENGTH)

    if name not in HEADS:
        return lambda texts: on_device(tokens(texts), where)
    known: dict[str, NDArray[np.float32]] = {}
    scale, model = halves(folder)[1], encoder(folder, ENCODER, device(), "bfloat16")

    def vectors(texts: list[str]) -> TextRows:
        if fresh := [text for text in dict.fromkeys(texts) if text not in known]:
            known.update(zip(fresh, scale.of(features(tokens(fresh), model)), strict=True))
        return on_device(np.stack([known[text] for text in texts]), where)

    return vectors


@cache
def parts_for(folder: str, name: str, identity: str) -> dict[str, Part]:
    """Return the comments of each split; for some models all that mention it, and few others."""
    whole = comments(folder)
    if name not in FEWER:
        return whole
    rng = np.random.default_rng(0)
    found = {}
    for split, part in whole.items():
        order = rng.permutation(len(part.y))
        mentioned = part.mentions[identity].to_numpy(bool)[order]
        first = np.concatenate([order[mentioned], order[~mentioned]])
        found[split] = part.take(np.sort(first[: FEWER[name].get(split)]))
    return found


@lru_cache(maxsize=1)
def plain(folder: str, name: str, seed: int, identity: str) -> Plain:
    """Train a model without a penalty and without groups."""
    parts, fresh = parts_for(folder, name, identity), untrained(folder, name, seed)
    given = given_rows(folder, name, parts)
    rows = {part: on_device(X, torch.device(device())) for part, X in given.items()}
    start = time.perf_counter()
    trained = train(fresh, recipe=recipe_of(name), seed=seed, **training_arguments(parts, rows))
    return Plain(fresh, rows, trained, time.perf_counter() - start)


def given_rows(folder: str, name: str, parts: dict[str, Part]) -> dict[str, Any]:
    """Return the vectors, or the tokens, of each split."""
    if name in HEADS:
        return dict(halves(folder)[0])
    return {split: parts[split].tokens for split in PARTS}


def untrained(folder: str, name: str, seed: int) -> nn.Module:
    if name == LORA:
        return with_adapters(folder, seed)
    if name in HEADS:
        width = halves(folder)[0]["train"].shape[1]
        return HEADS[name](width, seed=seed).to(device())
    return triggers.fresh_model(folder, ENCODER, int(name.removeprefix("TT=")), seed)[0]


def recipe_of(name: str) -> TrainingRecipe:
    return {**RECIPES, LORA: LORA_RECIPE}.get(name, triggers.RECIPE)


def with_adapters(folder: str, seed: int) -> Any:
    """Return the encoder as a classifier, with LoRA on queries and values, and a new head."""
    import peft

    kind = load_transformers().AutoModelForSequenceClassification
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind.from_pretrained(Path(folder) / ENCODER, num_labels=1, dtype=torch.float32)
        lora = peft.LoraConfig(task_type="SEQ_CLS", r=RANK, target_modules=ADAPTED)
        return peft.get_peft_model(model, lora).to(device())
