"""LinearPost: a linear rule on estimated probabilities (Xian & Zhao 2024), group-blind form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import linprog

from fairij.baselines.base import Array, Codes, Predictor
from fairij.baselines.group_model import GroupBlind
from fairij.datasets.splits import Split
from fairij.errors import FairIJError


@dataclass(frozen=True)
class LinearPost(GroupBlind):
    """Say 1 where ``2 P(y=1|x) - 1 + sum_{k,g} psi_kg P(s=g, y=k|x) / P(s=g, y=k) > 0``.

    psi are the multipliers of the linear program, over the validation rows' probabilities pi of a
    1, ``min mean((1 - 2 p) pi)`` subject to ``|mean(w_kg pi) - q_k| <= tolerance / 2`` with
    ``w_kg(x) = P(s=g, y=k|x) / P(s=g, y=k)``: the expected error, and the gaps of selection rates
    (all rows together, for parity) or of rates given the truth, each at most the tolerance. Labels
    and groups of the validation rows are not used: their probabilities stand in, ``P(y|x)`` by the
    model and ``P(s|x)`` or ``P(s|x, y)`` by a classifier learnt from training rows; at test time
    no group is seen. Bounds on the label 0 follow from those on the label 1 and are left out;
    the random noise by which the authors' code breaks ties is left out too, so the rule is
    deterministic.

    Parameters
    ----------
    constraint : the rates whose gaps are bounded
    tolerance : the largest gap allowed, each, in expectation over the estimated probabilities
    recalibrate : isotonic regression of the validation labels on the model's scores first
    learner : scikit-learn classifier for the group, logistic regression if None
    """

    name: ClassVar[str] = "linear_post"

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        chances = self.chances(model, train, validation)
        positive, joint = chances.of(validation.X)
        shares = joint.mean(1, keepdims=True)
        _, psi = fair_program(positive, joint / shares, self.tolerance)

        def scores(X: Any, s: Codes | None) -> Array:
            positive, joint = chances.of(X)
            bonus = np.einsum("kng,kg->n", joint / shares, psi)
            return np.clip(positive + bonus / 2, 0, 1)

        return Predictor(scores)


def fair_program(positive: Array, weights: Array, tolerance: float) -> tuple[Array, Array]:
    """The optimal pi (N,) and the multipliers psi (K, G), a bonus for saying 1.

    positive : ``P(y = 1 | x)`` (N,); weights : w (K, N, G), of mean one over the rows
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
        method="highs",
    )
    if found.x is None:
        raise FairIJError(f"The linear program of LinearPost was not solved: {found.message}")
    above, below = np.split(found.ineqlin.marginals, 2)  # at most zero
    return found.x[:n], (above - below).reshape(n_strata, n_groups)
