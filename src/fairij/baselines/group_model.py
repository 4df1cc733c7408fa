"""How likely label and group are given the features, for baselines that do not see the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from fairij.baselines.base import STRATA, Array, count_groups, positive_scores, strata_rows
from fairij.baselines.calibration import Calibrated
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

    @classmethod
    def fit(
        cls,
        model: Any,
        train: Split,
        validation: Split,
        *,
        constraint: str,
        recalibrate: bool,
        learner: Any,
    ) -> Chances:
        """The groups from training rows, the curve from validation rows."""
        groups = GroupModel.fit(constraint, train, count_groups(train, validation), learner)
        if not recalibrate:
            return cls(model, groups, None)
        scores = positive_scores(model, validation.X)
        return cls(model, groups, Calibrated.fit(scores, validation.y))

    def of(self, X: Any) -> tuple[Array, Array]:
        """``P(y = 1 | x)`` (N,) and the joint chances (K, N, G)."""
        scores = positive_scores(self.model, X)
        positive = scores if self.curve is None else self.curve(scores)
        return positive, self.groups.joint(X, positive)
