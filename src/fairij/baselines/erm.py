"""ERM: the model as it is (empirical risk minimisation)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fairij.baselines.base import Baseline, Predictor, positive_scores
from fairij.datasets.splits import Split


@dataclass(frozen=True)
class ERM(Baseline):
    """The given model, with no constraint and no refit."""

    name: ClassVar[str] = "erm"
    constraints: ClassVar[tuple[str, ...]] = ()

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        return Predictor(lambda X, s: positive_scores(model, X))
