"""The reductions approach (Agarwal et al. 2018), by fairlearn's `ExponentiatedGradient`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import nn

from fairij.baselines.base import (
    Baseline,
    Codes,
    Predictor,
    Stratified,
    TradeOff,
    count_groups,
    positive_scores,
    strata_rows,
)
from fairij.baselines.in_processing import Recipe, train_module
from fairij.data.checks import number_between, whole_number
from fairij.datasets.splits import Split

MOMENTS = {
    "demographic_parity": "DemographicParity",
    "equalized_odds": "EqualizedOdds",
    "equal_opportunity": "TruePositiveRateParity",
}
SHORT = Recipe(start="model", epochs=10, learning_rate=1e-3, checkpoint="last")


@dataclass(frozen=True)
class ExponentiatedGradient(Baseline):
    """A mixture of classifiers, each fitted to reweighted and relabelled training rows.

    On the training rows, each group's rate is within the tolerance of the rate of all rows, so
    two groups may differ by twice as much. Every step trains the network again. So the default
    recipe is short, starts from the given model and takes large steps to react to new weights.

    Parameters
    ----------
    constraint : str, default="demographic_parity"
        The rates that are bounded.
    tolerance : float, default=0.01
        How far each group's rate may be from the rate of all rows.
    max_iter : int, default=20
        Number of steps, each with one fit or more.
    estimator : scikit-learn classifier, optional
        Fitted in place of the network.
    recipe : Recipe, optional
        How the network is trained in each step.
    seed : int, default=0
        Seed of the training and of the draws in `predict`.

    Examples
    --------
    >>> from fairij.baselines import ExponentiatedGradient
    >>> method = ExponentiatedGradient(max_iter=3, estimator=LogisticRegression())
    >>> predictor = method.fit(model, splits.train, splits.validation)
    >>> predictor.randomised
    True
    """

    constraint: Stratified = "demographic_parity"
    tolerance: float = 0.01
    max_iter: int = 20
    estimator: Any = None
    recipe: Recipe = field(default_factory=lambda: SHORT)
    seed: int = 0

    name: ClassVar[str] = "exponentiated_gradient"
    refits: ClassVar[bool] = True
    randomised: ClassVar[bool] = True
    trade_off: ClassVar[TradeOff | None] = TradeOff(
        "tolerance", (0.5, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        number_between("tolerance", self.tolerance, 0)
        whole_number("max_iter", self.max_iter, 1)

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        try:
            from fairlearn import reductions
        except ImportError as error:
            raise ImportError(
                "ExponentiatedGradient needs fairlearn: pip install 'fairij[baselines]'."
            ) from error
        n_groups = count_groups(train, validation)
        strata_rows(self.constraint, train.y, train.s, n_groups=n_groups)
        estimator = _Network(model, self.recipe, self.seed)
        mixture = reductions.ExponentiatedGradient(
            estimator if self.estimator is None else self.estimator,
            getattr(reductions, MOMENTS[self.constraint])(difference_bound=self.tolerance),
            max_iter=self.max_iter,
        )
        with warnings.catch_warnings():  # pandas warns about code of fairlearn
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="fairlearn")
            mixture.fit(train.X, train.y.astype(int), sensitive_features=train.s)
        return Predictor(
            # fairlearn has no public name for the probabilities; its own examples use this one
            lambda X, s: np.asarray(mixture._pmf_predict(np.asarray(X))[:, 1], dtype=np.float64),
            randomised=True,
            seed=self.seed,
        )


class _Network(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A torch module as a scikit-learn classifier that takes weights."""

    def __init__(self, module: nn.Module, recipe: Recipe, seed: int) -> None:
        self.module, self.recipe, self.seed = module, recipe, seed

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> _Network:
        X, y = np.asarray(X, dtype=np.float32), np.asarray(y, dtype=np.float32)
        rows, weight = Split(X, y, np.zeros(len(y), dtype=np.int64)), None
        if sample_weight is not None:
            weight = torch.as_tensor(np.array(sample_weight), dtype=torch.float32)
        self.classes_ = np.array([0, 1])
        self.module_ = train_module(
            self.module, rows, rows, recipe=self.recipe, seed=self.seed, weight=weight
        )
        return self

    def predict(self, X: Any) -> Codes:
        return (positive_scores(self.module_, np.asarray(X)) > 0.5).astype(np.int64)
