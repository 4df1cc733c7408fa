"""Probabilities of label and group given the features, for baselines that do not see groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from fairij.baselines.base import (
    STRATA,
    TOLERANCES,
    Array,
    Baseline,
    TradeOff,
    check_constraint,
    count_groups,
    positive_scores,
    strata_rows,
)
from fairij.data.checks import number_between
from fairij.datasets.splits import Split


@dataclass(frozen=True)
class GroupModel:
    """``P(s | x)``, or ``P(s | x, y)`` by one classifier for each true label of interest."""

    strata: tuple[int | None, ...]
    classifiers: tuple[Any, ...]

    @classmethod
    def fit(cls, constraint: str, train: Split, n_groups: int, learner: Any = None) -> GroupModel:
        """Learn from training rows. ``learner`` is an unfitted scikit-learn classifier."""
        cells = strata_rows(constraint, train.y, train.s, n_groups=n_groups)
        learner = LogisticRegression(max_iter=2000) if learner is None else learner
        fitted = []
        for groups in cells:
            rows = np.concatenate(groups)
            fitted.append(clone(learner).fit(train.X[rows], train.s[rows]))
        return cls(STRATA[constraint], tuple(fitted))

    def joint(self, X: Any, positive: Array) -> Array:
        """``P(s = g, y = y_k | x)`` (K, N, G), given ``P(y = 1 | x)`` (N,).

        y_k is the k-th true label of interest. For parity there is none: ``P(s = g | x)``.
        """
        chances = {None: np.ones(len(positive)), 1: positive, 0: 1 - positive}
        X = np.asarray(X)
        return np.stack(
            [
                classifier.predict_proba(X) * chances[truth][:, None]
                for truth, classifier in zip(self.strata, self.classifiers, strict=True)
            ]
        ).astype(np.float64)


@dataclass(frozen=True)
class Chances:
    """``P(y = 1 | x)`` by a model, recalibrated or not, and ``P(s, y | x)`` with it."""

    model: Any
    groups: GroupModel
    curve: IsotonicRegression | None

    def of(self, X: Any) -> tuple[Array, Array]:
        """``P(y = 1 | x)`` (N,) and the joint chances (K, N, G)."""
        positive = positive_scores(self.model, X)
        if self.curve is not None:
            positive = np.asarray(self.curve.predict(positive), dtype=np.float64)
        return positive, self.groups.joint(X, positive)


@dataclass(frozen=True)
class GroupBlind(Baseline):
    """Settings of post-processing that does not see the group."""

    constraint: str = "demographic_parity"
    tolerance: float = 0.0
    recalibrate: bool = False
    learner: Any = None

    trade_off: ClassVar[TradeOff | None] = TOLERANCES

    def __post_init__(self) -> None:
        check_constraint(self.constraint, self.constraints, self.name)
        number_between("tolerance", self.tolerance, 0, including_low=True)

    def chances(self, model: Any, train: Split, validation: Split) -> Chances:
        """Learn groups from training rows and the curve from validation rows."""
        n_groups = count_groups(train, validation)
        groups = GroupModel.fit(self.constraint, train, n_groups, self.learner)
        curve = None
        if self.recalibrate:
            curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
            scores = positive_scores(model, validation.X)
            curve.fit(scores, np.asarray(validation.y, dtype=np.float64))
        return Chances(model, groups, curve)
