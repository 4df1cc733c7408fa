"""HPS: thresholds per group (Hardt, Price & Srebro 2016), by fairlearn's `ThresholdOptimizer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from fairij.baselines.base import (
    Array,
    Codes,
    Predictor,
    TradeOff,
    check_codes,
    check_constraint,
    count_groups,
    positive_scores,
    strata_rows,
)
from fairij.datasets.splits import Split

FAIRLEARN_NAMES = {
    "demographic_parity": "demographic_parity",
    "equalized_odds": "equalized_odds",
    "equal_opportunity": "true_positive_rate_parity",
}


@dataclass(frozen=True)
class HPS:
    """The most accurate randomised thresholds per group with no gap at all on validation rows.

    Parameters
    ----------
    constraint : the rates that are made equal
    grid_size : points on fairlearn's grid of rates
    seed : of the draws in `predict`
    """

    constraint: str = "equalized_odds"
    grid_size: int = 1000
    seed: int = 0

    name: ClassVar[str] = "hps"
    needs_group_at_test: ClassVar[bool] = True
    refits: ClassVar[bool] = False
    randomised: ClassVar[bool] = True
    constraints: ClassVar[tuple[str, ...]] = tuple(FAIRLEARN_NAMES)
    trade_off: ClassVar[TradeOff | None] = None

    def __post_init__(self) -> None:
        check_constraint(self.constraint, self.constraints, self.name)

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        try:
            from fairlearn.postprocessing import ThresholdOptimizer
        except ImportError as error:
            raise ImportError("HPS needs fairlearn: pip install 'fairij[baselines]'.") from error
        n_groups = count_groups(train, validation)
        for constraint in (self.constraint, "equalized_odds"):  # a ROC curve needs both labels
            strata_rows(constraint, validation, n_groups=n_groups)
        optimiser = ThresholdOptimizer(
            estimator=_Scores(),
            constraints=FAIRLEARN_NAMES[self.constraint],
            objective="accuracy_score",
            grid_size=self.grid_size,
            prefit=True,
            predict_method="predict",
        )
        scores = positive_scores(model, validation.X)[:, None]
        optimiser.fit(scores, validation.y.astype(int), sensitive_features=validation.s)

        def acceptance(X: Any, s: Codes | None) -> Array:
            assert s is not None  # `Predictor` asks for it
            check_codes(s, n_groups)
            chances = positive_scores(model, X)[:, None]
            # the odds have no public name in fairlearn; its own examples use this one
            return np.asarray(optimiser._pmf_predict(chances, sensitive_features=s)[:, 1])

        return Predictor(acceptance, needs_group=True, randomised=True, seed=self.seed)


class _Scores(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The scores, given in place of features, as predictions of a fitted estimator."""

    def fit(self, X: Any, y: Any) -> _Scores:
        return self

    def predict(self, X: Any) -> Array:
        return np.asarray(X, dtype=np.float64)[:, 0]

    def __sklearn_is_fitted__(self) -> bool:
        return True
