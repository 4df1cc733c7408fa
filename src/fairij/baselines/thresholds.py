"""Randomised thresholds per group: without a gap (HPS), or within a tolerated gap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import linprog
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import roc_curve

from fairij.baselines.base import (
    STRATA,
    TOLERANCES,
    Array,
    Baseline,
    Codes,
    Predictor,
    Stratified,
    TradeOff,
    count_groups,
    positive_scores,
    strata_rows,
)
from fairij.data.checks import number_between
from fairij.datasets.splits import Split
from fairij.errors import FairIJError, InvalidInputError

Rule = Callable[[Array, Codes], Array]  # chances of label 1 by score and group


class GroupThresholds(Baseline):
    """What both methods share: they fit a rule to validation scores and know every group."""

    seed: int

    needs_group_at_test: ClassVar[bool] = True
    randomised: ClassVar[bool] = True

    def rule(self, scores: Array, validation: Split, n_groups: int) -> Rule:
        """The fitted rule."""
        raise NotImplementedError

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        n_groups = count_groups(train, validation)
        # a ROC curve needs both labels
        strata_rows("equalized_odds", validation.y, validation.s, n_groups=n_groups)
        rule = self.rule(positive_scores(model, validation.X), validation, n_groups)

        def acceptance(X: Any, s: Codes | None) -> Array:
            assert s is not None  # `Predictor` asks for it
            if len(s) and not 0 <= s.min() <= s.max() < n_groups:
                raise InvalidInputError(
                    f"`s` must hold groups that were fitted on, 0 to {n_groups - 1}; got "
                    f"{s.min()} to {s.max()}."
                )
            return rule(positive_scores(model, X), s)

        return Predictor(acceptance, needs_group=True, randomised=True, seed=self.seed)


@dataclass(frozen=True)
class HPS(GroupThresholds):
    """The most accurate randomised thresholds per group with no gap on validation rows.

    By Hardt, Price & Srebro 2016, with fairlearn's `ThresholdOptimizer`.

    Parameters
    ----------
    constraint : str, default="equalized_odds"
        The rates that are made equal.
    grid_size : int, default=1000
        Points on fairlearn's grid of rates.
    seed : int, default=0
        Seed of the draws in `predict`.

    Examples
    --------
    >>> from fairij.baselines import HPS
    >>> predictor = HPS().fit(model, splits.train, splits.validation)
    >>> predictor.scores(splits.test.X, splits.test.s).shape
    (300,)
    """

    constraint: Stratified | Literal["equalized_odds_worst_case"] = "equalized_odds"
    grid_size: int = 1000
    seed: int = 0

    name: ClassVar[str] = "hps"

    def rule(self, scores: Array, validation: Split, n_groups: int) -> Rule:
        try:
            from fairlearn.postprocessing import ThresholdOptimizer
        except ImportError as error:
            raise ImportError("HPS needs fairlearn: pip install 'fairij[baselines]'.") from error
        named_otherwise = {"equal_opportunity": "true_positive_rate_parity"}
        optimiser = ThresholdOptimizer(
            estimator=_Scores(),
            constraints=named_otherwise.get(self.constraint, self.constraint),
            objective="accuracy_score",
            grid_size=self.grid_size,
            prefit=True,
            predict_method="predict",
        )
        optimiser.fit(scores[:, None], validation.y.astype(int), sensitive_features=validation.s)
        # fairlearn has no public name for the probabilities; its own examples use this one
        return lambda scores, s: np.asarray(
            optimiser._pmf_predict(scores[:, None], sensitive_features=s)[:, 1]
        )


class _Scores(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted estimator whose features are the scores that it predicts."""

    def fit(self, X: Any, y: Any) -> _Scores:
        return self

    def predict(self, X: Any) -> Array:
        return np.asarray(X, dtype=np.float64)[:, 0]

    def __sklearn_is_fitted__(self) -> bool:
        return True


@dataclass(frozen=True)
class OperatingPoints:
    """The corners of one group's ROC hull: label 1 where the score reaches the threshold."""

    thresholds: Array  # (K,), decreasing; the first is infinite
    false_positive_rates: Array  # (K,)
    true_positive_rates: Array  # (K,)
    selection_rates: Array  # (K,)
    errors: Array  # (K,): the part of the error over all rows that falls on the group

    @classmethod
    def of(cls, scores: Array, y: Array, share: float) -> OperatingPoints:
        """The corners of a group whose share of all rows is ``share``."""
        x, up, thresholds = roc_curve(y, scores, drop_intermediate=False)
        corners = _upper_hull(x, up)
        x, up, positives = x[corners], up[corners], float(y.mean())
        selected = positives * up + (1 - positives) * x
        errors = share * (positives * (1 - up) + (1 - positives) * x)
        return cls(thresholds[corners], x, up, selected, errors)


@dataclass(frozen=True)
class RelaxedThresholds(GroupThresholds):
    """The randomised thresholds per group with the least validation error within a gap.

    By a linear program (Cruz & Hardt 2024), so no post-processing with known groups can do better
    on these rows. "equalized_odds" bounds the sum of the gaps of true and false positive rates.
    "equalized_odds_worst_case" bounds the larger one, as Cruz & Hardt do.

    Parameters
    ----------
    constraint : str, default="demographic_parity"
        The rates whose gap is bounded.
    tolerance : float, default=0.0
        The largest gap allowed on validation rows.
    seed : int, default=0
        Seed of the draws in `predict`.

    Examples
    --------
    >>> from fairij.baselines import RelaxedThresholds
    >>> predictor = RelaxedThresholds(tolerance=0.02).fit(model, splits.train, splits.validation)
    >>> predictor.scores(splits.test.X, splits.test.s).shape
    (300,)
    """

    constraint: Stratified | Literal["equalized_odds_worst_case"] = "demographic_parity"
    tolerance: float = 0.0
    seed: int = 0

    name: ClassVar[str] = "relaxed_thresholds"
    constraints: ClassVar[tuple[str, ...]] = (*STRATA, "equalized_odds_worst_case")
    trade_off: ClassVar[TradeOff | None] = TOLERANCES

    def __post_init__(self) -> None:
        super().__post_init__()
        number_between("tolerance", self.tolerance, 0, including_low=True)

    def rule(self, scores: Array, validation: Split, n_groups: int) -> Rule:
        groups = [
            OperatingPoints.of(scores[inside], validation.y[inside].astype(float), inside.mean())
            for inside in (validation.s == g for g in range(n_groups))
        ]
        mixtures = best_mixtures(groups, self.constraint, self.tolerance)

        def chances(scores: Array, s: Codes) -> Array:
            chance = np.zeros(len(s))
            for g, (group, weights) in enumerate(zip(groups, mixtures, strict=True)):
                for threshold, weight in zip(group.thresholds, weights, strict=True):
                    if weight > 0:
                        chance += weight * ((s == g) & (scores >= threshold))
            return np.clip(chance, 0, 1)

        return chances


def best_mixtures(groups: list[OperatingPoints], constraint: str, tolerance: float) -> list[Array]:
    """Weights of each group's corners, by a linear program.

    Every point under a group's ROC hull is a mixture of its corners, so all is linear in their
    weights w. Other variables are the lowest and highest value of each kind of rate. Minimise
    ``error . w`` subject to ``low <= rate_g . w_g <= high`` and a bound on ``high - low`` (or on
    their sum). Weights are not negative and sum to one in each group.
    """
    kinds = {
        "demographic_parity": ("selection_rates",),
        "equal_opportunity": ("true_positive_rates",),
    }.get(constraint, ("true_positive_rates", "false_positive_rates"))
    total = block_diag(*(np.ones(len(group.thresholds)) for group in groups))  # (G, weights)
    n_weights, n_bounds = total.shape[1], 2 * len(kinds)
    unit, padding = np.eye(n_weights + n_bounds), ((0, 0), (0, n_bounds))
    bounded, gaps = [], []
    for k, kind in enumerate(kinds):
        low, high = unit[n_weights + 2 * k], unit[n_weights + 2 * k + 1]
        rates = np.pad(block_diag(*(getattr(group, kind) for group in groups)), padding)
        bounded.append(np.stack([rates - high, low - rates], 1).reshape(-1, len(unit)))
        gaps.append(high - low)
    folded = gaps if constraint.endswith("worst_case") else [sum(gaps)]
    inequalities = np.concatenate([*bounded, folded])
    limits = np.zeros(len(inequalities))
    limits[-len(folded) :] = tolerance
    cost = np.concatenate([*(group.errors for group in groups), np.zeros(n_bounds)])
    equalities = np.pad(total, padding)
    found = linprog(cost, inequalities, limits, equalities, np.ones(len(groups)), bounds=(0, 1))
    if found.x is None:
        raise FairIJError(f"The linear program of the thresholds was not solved: {found.message}")
    weights = np.clip(found.x[:n_weights], 0, 1)
    ends = np.cumsum([len(group.thresholds) for group in groups])[:-1]
    return [w / w.sum() for w in np.split(weights, ends)]


def _upper_hull(x: Array, y: Array) -> Codes:
    """Indices of the corners of the lowest concave curve above points sorted by x, then y."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            turn = (x[b] - x[a]) * (y[i] - y[a]) - (y[b] - y[a]) * (x[i] - x[a])
            if turn < 0:
                break
            hull.pop()
        hull.append(i)
    return np.array(hull, dtype=np.int64)
