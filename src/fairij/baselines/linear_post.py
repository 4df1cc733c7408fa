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
    """Give label 1 where ``2 P(y=1|x) - 1 + sum_{k,g} psi_kg P(s=g, y=k|x) / P(s=g, y=k) > 0``.

    psi are the multipliers of a linear program. Its variables pi are the probabilities of label 1
    on the validation rows. It minimises the expected error ``mean((1 - 2 p) pi)`` subject to
    ``|mean(w_kg pi) - q_k| <= tolerance / 2``, with ``w_kg(x) = P(s=g, y=k|x) / P(s=g, y=k)``.
    So every gap of selection rates (for parity) or of rates given the true label is at most the
    tolerance.

    Labels and groups of the validation rows are not used. The model gives ``P(y|x)``, and a
    classifier learnt from training rows gives ``P(s|x)`` or ``P(s|x, y)``. No group is needed at
    test time. Bounds on label 0 follow from those on label 1. The authors' code breaks ties by
    random noise; this rule is deterministic.

    Parameters
    ----------
    constraint : str, default="demographic_parity"
        The rates whose gaps are bounded.
    tolerance : float, default=0.0
        The largest gap allowed, in expectation over the estimated probabilities.
    recalibrate : bool, default=False
        Recalibrate the model's scores first, by isotonic regression on the validation labels.
    learner : scikit-learn classifier, optional
        Classifier for the group. Logistic regression if None.
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
    """The optimal pi (N,) and the multipliers psi (K, G), a bonus for label 1.

    Parameters
    ----------
    positive : ndarray of shape (N,)
        ``P(y = 1 | x)``.
    weights : ndarray of shape (K, N, G)
        w, with mean one over the rows.
    tolerance : float
        The largest gap.
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
