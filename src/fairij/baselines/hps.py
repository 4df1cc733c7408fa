"""HPS: thresholds per group (Hardt, Price & Srebro 2016), by fairlearn's `ThresholdOptimizer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from fairij.baselines.base import (
    Array,
    Baseline,
    Codes,
    Predictor,
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
class HPS(Baseline):
    """The most accurate randomised thresholds per group with no gap on validation rows.

    Parameters
    ----------
    constraint : str, default="equalized_odds"
        The rates that are made equal.
    grid_size : int, default=1000
        Points on fairlearn's grid of rates.
    seed : int, default=0
        Seed of the draws in `predict`.
    """

    constraint: str = "equalized_odds"
    grid_size: int = 1000
    seed: int = 0

    name: ClassVar[str] = "hps"
    needs_group_at_test: ClassVar[bool] = True
    randomised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_constraint(self.constraint, self.constraints, self.name)

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        try:
            from fairlearn.postprocessing import ThresholdOptimizer
        except ImportError as error:
            raise ImportError("HPS needs fairlearn: pip install 'fairij[baselines]'.") from error
        n_groups = count_groups(train, validation)
        for constraint in (self.constraint, "equalized_odds"):  # a ROC curve needs both labels
            strata_rows(constraint, validation.y, validation.s, n_groups=n_groups)
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
            # fairlearn has no public name for the probabilities; its own examples use this one
            return np.asarray(optimiser._pmf_predict(chances, sensitive_features=s)[:, 1])

        return Predictor(acceptance, needs_group=True, randomised=True, seed=self.seed)


class _Scores(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted estimator whose features are the scores that it predicts."""

    def fit(self, X: Any, y: Any) -> _Scores:
        return self

    def predict(self, X: Any) -> Array:
        return np.asarray(X, dtype=np.float64)[:, 0]

    def __sklearn_is_fitted__(self) -> bool:
        return True
