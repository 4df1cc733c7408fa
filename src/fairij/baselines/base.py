"""What all baselines share: frozen settings with ``fit(model, train, validation) -> Predictor``.

Labels are 0 and 1, groups are codes 0 ... G-1, as in `fairij.datasets.Split`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from fairij.datasets.splits import Split
from fairij.errors import InvalidInputError
from fairij.models import adapt

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

# rates must be equal given each of these true labels; None stands for all rows together
Stratified = Literal["demographic_parity", "equalized_odds", "equal_opportunity"]
STRATA: dict[str, tuple[int | None, ...]] = {
    "demographic_parity": (None,),
    "equalized_odds": (1, 0),
    "equal_opportunity": (1,),
}


@dataclass(frozen=True)
class TradeOff:
    """The parameter that trades accuracy for fairness, and values from accurate to fair.

    Examples
    --------
    >>> from fairij.baselines import GapReg
    >>> GapReg.trade_off.parameter
    'strength'
    """

    parameter: str
    sweep: tuple[float, ...]


TOLERANCES = TradeOff("tolerance", (1.0, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.0))


@dataclass(frozen=True)
class Predictor:
    """A fitted baseline.

    ``scores(X, s)`` are in [0, 1]. A deterministic predictor gives label 1 where the score is
    above one half. A randomised one gives label 1 with the score as its probability.

    Examples
    --------
    >>> from fairij.baselines import ERM
    >>> predictor = ERM().fit(model, splits.train, splits.validation)
    >>> predictor.predict(splits.test.X).shape
    (300,)
    """

    scores: Callable[[Any, Codes | None], Array]
    needs_group: bool = False
    randomised: bool = False
    seed: int = 0

    def predict(self, X: Any, s: ArrayLike | None = None, *, seed: int | None = None) -> Codes:
        """Labels (N,). Randomised predictors draw them with ``seed``."""
        chance = self.acceptance(X, s)
        if not self.randomised:
            return chance.astype(np.int64)
        rng = np.random.default_rng(self.seed if seed is None else seed)
        return (rng.random(len(chance)) < chance).astype(np.int64)

    def predict_proba(self, X: Any, s: ArrayLike | None = None) -> Array:
        """Scores of both labels (N, 2). For a randomised predictor they are probabilities."""
        positive = self._scores(X, s)
        return np.stack([1 - positive, positive], 1)

    def acceptance(self, X: Any, s: ArrayLike | None = None) -> Array:
        """``P(label = 1)`` of each row (N,), over its draws. It is 0 or 1 if it has none."""
        scores = self._scores(X, s)
        return scores if self.randomised else (scores > 0.5).astype(np.float64)

    def expected_counts(self, X: Any, y: ArrayLike, s: ArrayLike) -> Array:
        """Expected number of rows by (group, true label, label), as `fairness.rates` takes."""
        truth, codes = np.asarray(y).astype(np.int64), np.asarray(s).astype(np.int64)
        chance = self.acceptance(X, codes if self.needs_group else None)
        cells, size = 2 * codes + truth, 2 * (int(codes.max()) + 1)
        labels = [np.bincount(cells, weight, size) for weight in (1 - chance, chance)]
        return np.stack(labels, 1).reshape(-1, 2, 2).astype(np.float64)

    def _scores(self, X: Any, s: ArrayLike | None) -> Array:
        if not self.needs_group:
            return self.scores(X, None)
        if s is None:
            raise InvalidInputError(
                "`s` must hold the group of every row, got None: this predictor treats groups "
                "differently, so it cannot be used where the group is unknown."
            )
        return self.scores(X, np.asarray(s).astype(np.int64))


class Baseline(Protocol):
    """Settings of one method. Subclasses state where they differ from these defaults."""

    name: ClassVar[str]
    needs_group_at_test: ClassVar[bool] = False
    refits: ClassVar[bool] = False  # trains the network's parameters
    randomised: ClassVar[bool] = False
    constraints: ClassVar[tuple[str, ...]] = tuple(STRATA)
    trade_off: ClassVar[TradeOff | None] = None

    def __post_init__(self) -> None:
        constraint = vars(self).get("constraint")
        if "constraint" in vars(self) and constraint not in self.constraints:
            raise InvalidInputError(
                f"`constraint` of {self.name} must be one of {list(self.constraints)}, got "
                f"{constraint!r}."
            )

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        """Fit on validation rows, or train on training rows; the model is left alone."""
        ...


@dataclass(frozen=True)
class ERM(Baseline):
    """The given model, with no constraint and no refit (empirical risk minimisation).

    Examples
    --------
    >>> from fairij.baselines import ERM
    >>> predictor = ERM().fit(model, splits.train, splits.validation)
    >>> predictor.scores(splits.test.X, None).shape
    (300,)
    """

    name: ClassVar[str] = "erm"
    constraints: ClassVar[tuple[str, ...]] = ()

    def fit(self, model: Any, train: Split, validation: Split) -> Predictor:
        return Predictor(lambda X, s: positive_scores(model, X))


def positive_scores(model: Any, X: Any) -> Array:
    """``P(y = 1 | x)`` (N,) by a fitted model with one logit or two outputs, in float64."""
    z = adapt(model).outputs(X).detach().cpu().double()
    if z.ndim == 2:
        if z.shape[1] != 2:
            raise InvalidInputError(
                f"`model` must have one logit or two outputs per row, got {z.shape[1]}: baselines "
                "are for two classes."
            )
        z = z[:, 1] - z[:, 0]
    return np.asarray(torch.sigmoid(z).numpy(), dtype=np.float64)


def strata_rows(constraint: str, y: NDArray[Any], s: Codes, *, n_groups: int) -> list[list[Codes]]:
    """Row numbers of every group, given every true label that the constraint asks about."""
    cells = []
    for truth in STRATA[constraint]:
        inside = np.ones(len(y), bool) if truth is None else y == truth
        groups = [np.flatnonzero(inside & (s == g)) for g in range(n_groups)]
        for g, rows in enumerate(groups):
            if len(rows) == 0:
                of_truth = "" if truth is None else f" with y = {truth}"
                raise InvalidInputError(
                    f"Every group must have rows{of_truth} for {constraint!r}, but group {g} has "
                    "none: merge small groups, or give more rows."
                )
        cells.append(groups)
    return cells


def count_groups(*splits: Split) -> int:
    """The number of groups, at least two."""
    n_groups = max(int(split.s.max()) for split in splits) + 1
    if n_groups < 2:
        raise InvalidInputError("`s` must hold at least two groups, got one.")
    return n_groups
