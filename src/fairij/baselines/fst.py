"""FST: the fair scores nearest to the given ones (Wei, Ramamurthy & Calmon 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize

from fairij.baselines.base import Array, Codes, Predictor
from fairij.baselines.group_model import GroupBlind
from fairij.datasets.splits import Split
from fairij.errors import FairIJError


@dataclass(frozen=True)
class FST(GroupBlind):
    """Minimise the cross-entropy ``E[-r log f - (1 - r) log(1 - f)]`` under linear constraints.

    r is ``P(y = 1 | x)``, the model's score after recalibration. f is the transformed score.
    Parity: ``|E[f | s=g] - E[f]| <= tolerance`` (mean score parity).
    Odds: ``|E[f | s=g, y=k] - E[f | y=k]| <= tolerance`` (generalised equalized odds).

    With multipliers lambda, ``mu(x) = sum lambda_kg (P(s=g, y=k|x) / P(s=g, y=k) - P(y=k|x) /
    P(y=k))``, and f solves ``-r/f + (1-r)/(1-f) + mu = 0`` in closed form. The dual has one
    variable per constraint and is solved by L-BFGS (the authors use ADMM on the same dual).
    A classifier learnt from training rows gives the group's probabilities, so no group is needed
    at test time. The label is 1 where f is above one half.

    Parameters
    ----------
    constraint : str, default="demographic_parity"
        The means of scores that should agree.
    tolerance : float, default=0.0
        How far each mean may be from the mean over all groups.
    recalibrate : bool, default=True
        Recalibrate the model's scores first, by isotonic regression on the validation labels.
    learner : scikit-learn classifier, optional
        Classifier for the group. Logistic regression if None.
    """

    recalibrate: bool = True

    name: ClassVar[str] = "fst"

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        chances = self.chances(model, train, validation)

        def contrasts(X: Any, shares: Array | None = None) -> tuple[Array, Array, Array]:
            positive, joint = chances.of(X)
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
