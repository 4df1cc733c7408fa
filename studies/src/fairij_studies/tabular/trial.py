"""One seed of the study: its splits, its base model, and the measures of a predictor."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as to_safetensors
from torch import nn

from fairij.baselines import ERM, Predictor
from fairij.data.hashing import data_fingerprint
from fairij.datasets import Split, Splits
from fairij.fairness import GAPS, rates
from fairij.models.torch.training import mlp, train_mlp
from fairij.storage.checksummed import write_whole
from fairij_studies.tabular.config import Effort, Table

CONSTRAINTS = ("demographic_parity", "equalized_odds", "equal_opportunity")
MEASURES = ("accuracy", "balanced_accuracy", *CONSTRAINTS)
PARTS = ("validation", "test")


@dataclass(frozen=True)
class Trial:
    """The splits and the base model that all methods of a seed share."""

    splits: Splits
    model: nn.Module
    facts: Mapping[str, Any]  # part of every record

    def measured(self, predictor: Predictor) -> dict[str, float]:
        """Return all measures on validation and test rows, in expectation over draws."""
        return {
            f"{part}_{name}": value
            for part in PARTS
            for name, value in measures(predictor, getattr(self.splits, part)).items()
        }

    def record(
        self,
        method: str,
        *,
        constraint: str | None = None,
        parameter: str | None = None,
        value: float | None = None,
    ) -> dict[str, Any]:
        """Return the fields of a record that need no measurement."""
        named = {"method": method, "constraint": constraint}
        return {**named, "parameter": parameter, "value": value, **self.facts}

    def as_predictor(self, model: nn.Module) -> Predictor:
        return ERM().fit(model, self.splits.train, self.splits.validation)


def measures(predictor: Predictor, part: Split) -> dict[str, float]:
    table = predictor.expected_counts(part.X, part.y, part.s)
    found = (
        rates.accuracy(table),
        rates.balanced_accuracy(table),
        *(GAPS[name].metric(table) for name in CONSTRAINTS),
    )
    return {name: float(value) for name, value in zip(MEASURES, found, strict=True)}


@lru_cache(maxsize=2)  # the units of a seed run one after another
def load_trial(table: Table, effort: Effort, seed: int) -> Trial:
    splits = table.rows.splits(seed)
    if effort.rows is not None:
        train, validation, test = (first_rows(part, effort.rows) for part in splits)
        splits = replace(splits, train=train, validation=validation, test=test)
    facts = {
        "data": table.title,
        "data_source": table.rows.source(),
        "split_fingerprint": _fingerprint(splits),
        "n_train": len(splits.train),
        "n_validation": len(splits.validation),
        "n_test": len(splits.test),
        "group_is_feature": splits.includes_sensitive,
    }
    return Trial(splits, base_model(splits, seed, effort.epochs, Path(table.cache)), facts)


def base_model(splits: Splits, seed: int, epochs: int, cache: Path) -> nn.Module:
    """Train the paper's network, or read it from the cache.

    Training is deterministic, so two processes that both train write the same parameters.
    """
    train, validation = splits.train, splits.validation
    name = hashlib.sha256(f"{_fingerprint(splits)} {seed} {epochs} {torch.__version__}".encode())
    path = cache / f"base-{name.hexdigest()[:32]}.safetensors"
    model = mlp(train.X.shape[1])
    try:
        model.load_state_dict(from_safetensors(path.read_bytes()))
    except (OSError, SafetensorError, RuntimeError):
        model = train_mlp(train.X, train.y, validation.X, validation.y, epochs=epochs, seed=seed)
        write_whole(path, to_safetensors(model.state_dict()))
    return model.eval()


def _fingerprint(splits: Splits) -> str:
    """Return a hash of the rows and groups of all three parts."""
    digest = hashlib.sha256()
    for part in splits:
        digest.update(data_fingerprint(part.X, part.y).encode())
        digest.update(np.ascontiguousarray(part.s).tobytes())
    return digest.hexdigest()[:16]


def first_rows(part: Split, rows: int) -> Split:
    return Split(part.X[:rows], part.y[:rows], part.s[:rows])
