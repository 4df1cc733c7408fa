"""How likely label and group are given the features, for baselines that do not see the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from fairij.baselines.base import (
    STRATA,
    TOLERANCES,
    Array,
    TradeOff,
    check_constraint,
    count_groups,
    positive_scores,
    strata_rows,
)
from fairij.baselines.calibration import Calibrated
from fairij.data.checks import number_between
from fairij.datasets.splits import Split


@dataclass(frozen=True)
class GroupModel:
    """``P(s | x)``, or ``P(s | x, y)`` by one classifier for each truth that is asked about."""

    strata: tuple[int | None, ...]
    classifiers: tuple[Any, ...]

    @classmethod
    def fit(cls, constraint: str, train: Split, n_groups: int, learner: Any = None) -> GroupModel:
        """Learn it from training rows; ``learner`` is a scikit-learn classifier, not yet fitted."""
        cells = strata_rows(constraint, train, n_groups=n_groups)  # every group must occur
        learner = LogisticRegression(max_iter=2000) if learner is None else learner
        fitted = []
        for groups in cells:
            rows = np.concatenate(groups)
            fitted.append(clone(learner).fit(train.X[rows], train.s[rows]))
        return cls(STRATA[constraint], tuple(fitted))

    def joint(self, X: Any, positive: Array) -> Array:
        """``P(s = g, y = the k-th truth | x)`` (K, N, G), given ``P(y = 1 | x)``.

        Where the truth is not asked about, ``P(s = g | x)``.
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
    """``P(y = 1 | x)`` by a model, recalibrated or not, and with it ``P(s, y | x)``."""

    model: Any
    groups: GroupModel
    curve: Calibrated | None

    def of(self, X: Any) -> tuple[Array, Array]:
        """``P(y = 1 | x)`` (N,) and the joint chances (K, N, G)."""
        scores = positive_scores(self.model, X)
        positive = scores if self.curve is None else self.curve(scores)
        return positive, self.groups.joint(X, positive)


@dataclass(frozen=True)
class GroupBlind:
    """What post-processing without the group has in common: its settings, and what it learns.

    Parameters
    ----------
    constraint : which rates, or means of scores, are to agree
    tolerance : how far they may differ
    recalibrate : isotonic regression of the validation labels on the model's scores first
    learner : scikit-learn classifier for the group, logistic regression if None
    """

    constraint: str = "demographic_parity"
    tolerance: float = 0.0
    recalibrate: bool = False
    learner: Any = None

    name: ClassVar[str]
    needs_group_at_test: ClassVar[bool] = False
    refits: ClassVar[bool] = False
    randomised: ClassVar[bool] = False
    constraints: ClassVar[tuple[str, ...]] = tuple(STRATA)
    trade_off: ClassVar[TradeOff | None] = TOLERANCES

    def __post_init__(self) -> None:
        check_constraint(self.constraint, self.constraints, self.name)
        number_between("tolerance", self.tolerance, 0, including_low=True)

    def chances(self, model: Any, train: Split, validation: Split) -> Chances:
        """The groups from training rows, the curve from validation rows."""
        n_groups = count_groups(train, validation)
        groups = GroupModel.fit(self.constraint, train, n_groups, self.learner)
        if not self.recalibrate:
            return Chances(model, groups, None)
        scores = positive_scores(model, validation.X)
        return Chances(model, groups, Calibrated.fit(scores, validation.y))
