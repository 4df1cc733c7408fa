"""What may be asked for: each constraint pairs a smooth surrogate with the metric it stands for.

A new constraint is one line in ``CONSTRAINTS``. A user's own is a function of
``(outputs, y, groups)`` that returns a differentiable scalar: see `Constraint.custom`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.errors import InvalidInputError
from fairij.fairness import counts, surrogates
from fairij.fairness.groups import Groups
from fairij.fairness.metrics import group_means
from fairij.method.losses import Loss

Surrogate = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Constraint:
    """A fairness gap in two forms: ``surrogate`` has the gradient, ``metric`` has the last word."""

    name: str
    surrogate: Surrogate
    metric: Callable[..., NDArray[np.float64]] | None  # of counts, or of (values, y, groups)
    is_classification: bool = True
    needs_truth: bool = False  # the metric conditions on the true label
    every_label: bool = field(default=False, kw_only=True)  # on each of them, not the positive one
    takes_outputs: bool = field(default=False, kw_only=True)
    # a gap between groups, that of all of them where each pair's is closed
    pairwise: bool = field(default=False, kw_only=True)
    # the gaps (P,) whose sum is the surrogate, where all are to be closed at once
    parts: Surrogate | None = field(default=None, kw_only=True)

    @classmethod
    def custom(cls, function: Surrogate, name: str | None = None) -> Constraint:
        """Wrap a function of (outputs, y, groups); it is its own metric."""
        label = name or str(getattr(function, "__name__", "custom"))
        return cls(label, function, None, takes_outputs=True)

    def is_counted(self, loss: Loss) -> bool:
        """Whether the gap is one of confusion counts, so that labels alone settle it."""
        return loss.is_classification and self.metric is not None

    def gradient(
        self, z: Tensor, y: Tensor, groups: Groups, loss: Loss, temperature: float
    ) -> tuple[float, Tensor]:
        """``M`` and ``dM/dz`` on the validation outputs."""
        return self._differentiate(self.surrogate, z, y, groups, loss, temperature)

    def part_gradients(
        self,
        z: Tensor,
        y: Tensor,
        groups: Groups,
        loss: Loss,
        temperature: float,
        *,
        hard: bool = False,
    ) -> list[tuple[float, Tensor]]:
        """Each part of ``M`` with its gradient; the whole alone where it has no parts.

        ``hard`` values are those of thresholded predictions; their gradients are the soft ones.
        """
        parts, data = self.parts, (z, y, groups, loss, temperature)
        if parts is None:
            return [self._differentiate(self.surrogate, *data, hard=hard)]
        codes = torch.as_tensor(groups.codes, device=z.device)
        count = len(parts(loss.scores(z, temperature), y, codes))
        return [
            self._differentiate(lambda *seen, i=i: parts(*seen)[i], *data, hard=hard)
            for i in range(count)
        ]

    def group_gradients(
        self, z: Tensor, y: Tensor, groups: Groups, loss: Loss, temperature: float
    ) -> list[tuple[float, Tensor]]:
        """As `part_gradients`; of several groups, those of the largest with each of the others.

        A gap between the highest and the lowest group speaks of those two alone, and another pair
        takes their place as soon as they are closer: where all of these are closed, every pair is.
        """
        if len(groups.names) <= 2 or not self.pairwise:
            return self.part_gradients(z, y, groups, loss, temperature)
        largest, found = int(groups.sizes.argmax()), []
        for other in set(groups.codes.tolist()) - {largest}:
            pair = np.flatnonzero(np.isin(groups.codes, (largest, other)))
            at = torch.as_tensor(pair, device=z.device)
            for gap, some in self.part_gradients(
                z[at], y[at], groups.take(pair), loss, temperature
            ):
                gradient = torch.zeros_like(z)
                gradient[at] = some
                found.append((gap, gradient))
        return found

    def _differentiate(
        self,
        function: Surrogate,
        z: Tensor,
        y: Tensor,
        groups: Groups,
        loss: Loss,
        temperature: float,
        *,
        hard: bool = False,
    ) -> tuple[float, Tensor]:
        z = z.detach().clone().requires_grad_()
        codes = torch.as_tensor(groups.codes, device=z.device)
        with torch.enable_grad():
            seen = z if self.takes_outputs else loss.scores(z, temperature)
            if hard and loss.is_classification and not self.takes_outputs:
                seen = seen + (_thresholded(seen, loss.predict(z)) - seen).detach()
            value = function(seen, y, codes)
            self._check(value)
            if not value.requires_grad:
                raise InvalidInputError(
                    f"The constraint {self.name!r} must be differentiable in the outputs, but its "
                    "value does not depend on them: use torch operations without `detach`."
                )
            (gradient,) = torch.autograd.grad(value, z)
        return float(value.detach()), gradient

    def gap(
        self, z: Tensor, y: Tensor, groups: Groups, table: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """The gap of hard predictions, one value for each leading entry of ``z (K, N, ...)``.

        ``table`` holds their confusion counts, ``(K, G, C, C)``, in classification.
        """
        if self.metric is None:
            codes = torch.as_tensor(groups.codes, device=z.device)
            return np.array([float(self._check(self.surrogate(row, y, codes))) for row in z])
        if table is None:
            return self.metric(_double(z), _double(y), groups)
        return self.metric(table)

    def _check(self, value: Any) -> Tensor:
        if not isinstance(value, Tensor) or value.ndim != 0:
            shape = tuple(value.shape) if hasattr(value, "shape") else "none"
            raise InvalidInputError(
                f"The constraint {self.name!r} must return a scalar tensor, got "
                f"{type(value).__name__} of shape {shape}."
            )
        return value


def _mean_prediction(
    z: NDArray[np.float64], y: NDArray[np.float64], groups: Groups
) -> NDArray[np.float64]:
    means = group_means(z, groups)
    return np.asarray(np.nanmax(means, -1) - np.nanmin(means, -1))


def _mean_error(
    z: NDArray[np.float64], y: NDArray[np.float64], groups: Groups
) -> NDArray[np.float64]:
    return _mean_prediction(z - y, y, groups)


def _thresholded(scores: Tensor, predicted: Tensor) -> Tensor:
    """Predicted classes in the form of scores: 0 or 1, one column a class of several."""
    if scores.ndim == 1:
        return predicted.to(scores)
    return torch.nn.functional.one_hot(predicted, scores.shape[1]).to(scores)


def _double(values: Tensor) -> NDArray[np.float64]:
    return np.asarray(values.detach().cpu().numpy(), dtype=np.float64)


def _odds(name: str, agg: counts.Aggregate) -> Constraint:
    return Constraint(
        name,
        partial(surrogates.equalized_odds, agg=agg),
        partial(counts.equalized_odds, agg=agg),
        needs_truth=True,
        every_label=True,
    )


CONSTRAINTS: dict[str, Constraint] = {
    constraint.name: replace(constraint, pairwise=True)
    for constraint in (
        Constraint("demographic_parity", surrogates.demographic_parity, counts.demographic_parity),
        Constraint(
            "demographic_parity_sum",
            partial(surrogates.demographic_parity, agg="sum"),
            partial(counts.demographic_parity, agg="sum"),
        ),
        Constraint(  # of several classes: closes the gap of each
            "demographic_parity_balanced",
            partial(surrogates.demographic_parity, agg="sum"),
            partial(counts.demographic_parity, agg="sum"),
            parts=surrogates.demographic_parity_parts,
        ),
        _odds("equalized_odds", "sum"),
        replace(
            _odds("equalized_odds", "sum"),
            name="equalized_odds_balanced",
            parts=surrogates.equalized_odds_parts,
        ),
        _odds("equalized_odds_worst_case", "worst_case"),
        _odds("equalized_odds_mean", "mean"),
        Constraint(
            "equal_opportunity",
            surrogates.equal_opportunity,
            counts.equal_opportunity,
            needs_truth=True,
        ),
        Constraint("mean_prediction", surrogates.mean_prediction, _mean_prediction, False),
        Constraint("mean_error", surrogates.mean_error, _mean_error, False),
    )
}


def get_constraint(constraint: str | Constraint | Surrogate | Any) -> Constraint:
    """Look a constraint up by name, or wrap a user's function."""
    if isinstance(constraint, Constraint):
        return constraint
    if callable(constraint):
        return Constraint.custom(constraint)
    if not isinstance(constraint, str) or constraint not in CONSTRAINTS:
        raise InvalidInputError(
            f"`constraints` must be one of {sorted(CONSTRAINTS)} or a function of "
            f"(outputs, y, groups), got {constraint!r}."
        )
    return CONSTRAINTS[constraint]
