"""Post-processing that does not see groups, but estimates their probabilities: LinearPost, FST."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import linprog, minimize
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

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
from fairij.errors import FairIJError
from fairij.models.recent import Recent

Chances = Callable[[Any], tuple[Array, Array]]  # ``P(y=1|x)`` (N,) and ``P(s, y|x)`` (K, N, G)


@dataclass(frozen=True)
class GroupModel:
    """``P(s | x)``, or ``P(s | x, y)`` by one classifier for each true label of interest.

    It keeps what it said of the last tables, so that several tolerances can share it.
    """

    strata: tuple[int | None, ...]
    classifiers: tuple[Any, ...]
    _said: Recent[list[Array]] = field(
        default_factory=Recent, init=False, repr=False, compare=False
    )

    @classmethod
    def fit(cls, constraint: str, train: Split, n_groups: int, learner: Any = None) -> GroupModel:
        """Learn from training rows. ``learner`` is an unfitted scikit-learn classifier."""
        cells = strata_rows(constraint, train.y, train.s, n_groups=n_groups)
        learner = LogisticRegression(max_iter=2000) if learner is None else learner
        strata = [np.concatenate(groups) for groups in cells]
        fitted = tuple(clone(learner).fit(train.X[rows], train.s[rows]) for rows in strata)
        return cls(STRATA[constraint], fitted)

    def joint(self, X: Any, positive: Array) -> Array:
        """``P(s = g, y = y_k | x)`` (K, N, G), given ``P(y = 1 | x)`` (N,).

        y_k is the k-th true label of interest. For parity there is none: ``P(s = g | x)``.
        """
        chances = {None: np.ones(len(positive)), 1: positive, 0: 1 - positive}
        said = self._said.get(X, lambda: [c.predict_proba(np.asarray(X)) for c in self.classifiers])
        joint = [
            groups * chances[truth][:, None]
            for truth, groups in zip(self.strata, said, strict=True)
        ]
        return np.stack(joint).astype(np.float64)


@dataclass(frozen=True)
class GroupBlind(Baseline):
    """What both methods share. They learn groups from training rows and need none at test time.

    Parameters
    ----------
    constraint : str, default="demographic_parity"
        The rates (LinearPost) or means of scores (FST) that should agree.
    tolerance : float, default=0.0
        How far they may differ, in expectation over the estimated probabilities.
    recalibrate : bool, default=False (True for FST)
        Recalibrate the model's scores first, by isotonic regression on the validation labels.
    learner : scikit-learn classifier or GroupModel, optional
        Classifier for the group. Logistic regression if None. A `GroupModel` is used as it is, so
        that several tolerances share one.
    """

    constraint: Stratified = "demographic_parity"
    tolerance: float = 0.0
    recalibrate: bool = False
    learner: Any = None

    trade_off: ClassVar[TradeOff | None] = TOLERANCES

    def __post_init__(self) -> None:
        super().__post_init__()
        number_between("tolerance", self.tolerance, 0, including_low=True)

    def chances(self, model: Any, train: Split, validation: Split) -> Chances:
        """Learn groups from training rows and the curve from validation rows."""
        groups = self.learner
        if not isinstance(groups, GroupModel):
            n_groups = count_groups(train, validation)
            groups = GroupModel.fit(self.constraint, train, n_groups, self.learner)
        curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        if self.recalibrate:
            scores = positive_scores(model, validation.X)
            curve.fit(scores, np.asarray(validation.y, dtype=np.float64))

        def chances(X: Any) -> tuple[Array, Array]:
            positive = positive_scores(model, X)
            if self.recalibrate:
                positive = np.asarray(curve.predict(positive), dtype=np.float64)
            return positive, groups.joint(X, positive)

        return chances


@dataclass(frozen=True)
class LinearPost(GroupBlind):
    """A linear rule on estimated probabilities (Xian & Zhao 2024), in its group-blind form.

    Give label 1 where ``2 P(y=1|x) - 1 + sum_{k,g} psi_kg P(s=g, y=k|x) / P(s=g, y=k) > 0``.

    psi are the multipliers of a linear program. Its variables pi are the probabilities of label 1
    on the validation rows. It minimises the expected error ``mean((1 - 2 p) pi)`` subject to
    ``|mean(w_kg pi) - q_k| <= tolerance / 2``, with ``w_kg(x) = P(s=g, y=k|x) / P(s=g, y=k)``.
    So every gap of rates is at most the tolerance.

    Labels and groups of the validation rows are not used. The model gives ``P(y|x)``, and a
    classifier learnt from training rows gives ``P(s|x)`` or ``P(s|x, y)``. The authors' code
    breaks ties by random noise; this rule is deterministic. Parameters: see `GroupBlind`.

    Examples
    --------
    >>> from fairij.baselines import LinearPost
    >>> predictor = LinearPost(tolerance=0.02).fit(model, splits.train, splits.validation)
    >>> predictor.scores(splits.test.X, None).shape
    (300,)
    """

    name: ClassVar[str] = "linear_post"

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        chances = self.chances(model, train, validation)
        positive, joint = chances(validation.X)
        shares = joint.mean(1, keepdims=True)
        _, psi = fair_program(positive, joint / shares, self.tolerance)

        def scores(X: Any, s: Codes | None) -> Array:
            positive, joint = chances(X)
            bonus = np.einsum("kng,kg->n", joint / shares, psi)
            return np.clip(positive + bonus / 2, 0, 1)

        return Predictor(scores)


def fair_program(positive: Array, weights: Array, tolerance: float) -> tuple[Array, Array]:
    """The optimal pi (N,) and the multipliers psi (K, G), a bonus for label 1.

    `positive` is ``P(y = 1 | x)`` (N,), and `weights` are w (K, N, G), with mean one over rows.
    """
    n_strata, n, n_groups = weights.shape
    rates = weights.transpose(0, 2, 1).reshape(-1, n)  # (K G, N)
    centres = -np.repeat(np.eye(n_strata), n_groups, 0) * n  # q_k, scaled as the sums are
    side = np.concatenate([rates, centres], 1)
    found = linprog(
        np.concatenate([1 - 2 * positive, np.zeros(n_strata)]),
        np.concatenate([side, -side]),
        np.full(2 * len(side), n * tolerance / 2),
        bounds=(0, 1),
    )
    if found.x is None:
        raise FairIJError(f"The linear program of LinearPost was not solved: {found.message}")
    above, below = np.split(found.ineqlin.marginals, 2)  # at most zero
    return found.x[:n], (above - below).reshape(n_strata, n_groups)


@dataclass(frozen=True)
class FST(GroupBlind):
    """The fair scores nearest to the given ones (Wei, Ramamurthy & Calmon 2020).

    Minimise the cross-entropy ``E[-r log f - (1 - r) log(1 - f)]`` under linear constraints.

    r is ``P(y = 1 | x)``, the model's score after recalibration. f is the transformed score.
    Parity: ``|E[f | s=g] - E[f]| <= tolerance`` (mean score parity).
    Odds: ``|E[f | s=g, y=k] - E[f | y=k]| <= tolerance`` (generalised equalized odds).

    With multipliers lambda, ``mu(x) = sum lambda_kg (P(s=g, y=k|x) / P(s=g, y=k) - P(y=k|x) /
    P(y=k))``, and f solves ``-r/f + (1-r)/(1-f) + mu = 0`` in closed form. The dual has one
    variable per constraint and is solved by L-BFGS (the authors use ADMM on the same dual).
    The label is 1 where f is above one half. Parameters: see `GroupBlind`.

    Examples
    --------
    >>> from fairij.baselines import FST
    >>> predictor = FST(tolerance=0.02).fit(model, splits.train, splits.validation)
    >>> predictor.scores(splits.test.X, None).shape
    (300,)
    """

    recalibrate: bool = True

    name: ClassVar[str] = "fst"

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        chances = self.chances(model, train, validation)

        def contrasts(X: Any, shares: Array | None = None) -> tuple[Array, Array, Array]:
            positive, joint = chances(X)
            shares = joint.mean(1, keepdims=True) if shares is None else shares
            every = joint.sum(2, keepdims=True) / shares.sum(2, keepdims=True)
            return positive, joint / shares - every, shares

        positive, weights, shares = contrasts(validation.X)
        multipliers = dual_solution(positive, weights, self.tolerance)

        def scores(X: Any, s: Codes | None) -> Array:
            positive, weights, _ = contrasts(X, shares)
            return transformed(positive, np.einsum("kng,kg->n", weights, multipliers))

        return Predictor(scores)


def transformed(r: Array, mu: Array) -> Array:
    """``argmin_f -r log f - (1 - r) log(1 - f) + mu f``: a root of a quadratic (Wei et al.)."""
    root = np.sqrt(np.maximum((1 + mu) ** 2 - 4 * mu * r, 0))
    # two equal forms; take the one in which nothing cancels
    small = mu > -0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        f = np.where(small, 2 * r / (1 + mu + root), (1 + mu - root) / (2 * mu))
    return np.clip(np.nan_to_num(f), 0, 1)


def dual_solution(r: Array, weights: Array, tolerance: float) -> Array:
    """Multipliers (K, G) of ``|mean(weights_kg f)| <= tolerance``, with weights (K, N, G)."""
    n_strata, n, n_groups = weights.shape
    contrasts = weights.transpose(0, 2, 1).reshape(-1, n)  # (K G, N)

    def negative_dual(parts: Array) -> tuple[float, Array]:
        above, below = np.split(parts, 2)  # so that |lambda| is smooth
        mu = (above - below) @ contrasts
        f = transformed(r, mu)
        inside = np.clip(f, 1e-300, None), np.clip(1 - f, 1e-300, None)
        lagrangian = -r * np.log(inside[0]) - (1 - r) * np.log(inside[1]) + mu * f
        slope = contrasts @ f / n
        value = lagrangian.mean() - tolerance * parts.sum()
        return -float(value), -np.concatenate([slope - tolerance, -slope - tolerance])

    found = minimize(
        negative_dual,
        np.zeros(2 * len(contrasts)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * (2 * len(contrasts)),
        options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9},
    )
    if not np.isfinite(found.x).all():
        raise FairIJError(f"The dual of FST was not solved: {found.message}")
    above, below = np.split(found.x, 2)
    return (above - below).reshape(n_strata, n_groups)
