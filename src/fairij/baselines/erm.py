"""ERM: the model as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fairij.baselines.base import Predictor, TradeOff, positive_scores
from fairij.datasets.splits import Split


@dataclass(frozen=True)
class ERM:
    """Empirical risk minimisation: no constraint, nothing refitted."""

    name: ClassVar[str] = "erm"
    needs_group_at_test: ClassVar[bool] = False
    refits: ClassVar[bool] = False
    randomised: ClassVar[bool] = False
    constraints: ClassVar[tuple[str, ...]] = ()
    trade_off: ClassVar[TradeOff | None] = None

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        return Predictor(lambda X, s: positive_scores(model, X))
