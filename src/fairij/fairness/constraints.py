"""Constraints: what may be asked for. Each pairs a smooth gap with the hard metric it stands for.

``CONSTRAINTS`` follows from the table in `fairij.fairness.gaps`: a new constraint is one line
there. Your own is a `Gap` of other rates, a `Constraint`, or a function of ``(outputs, y, groups)``
that returns a differentiable scalar.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairij.errors import InvalidInputError
from fairij.fairness.gaps import GAPS, Gap
from fairij.fairness.groups import Groups
from fairij.fairness.rates import Rate
from fairij.fairness.surrogates import smooth_gap, smooth_parts

Surrogate = Callable[[Tensor, Tensor, Tensor], Tensor]


class ScoringLoss(Protocol):
    """What a constraint needs of a loss; `fairij.models.losses` has them."""

    @property
    def is_classification(self) -> bool: ...

    def scores(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        """Probabilities ``(N,)`` or ``(N, C)``; in regression the prediction."""
        ...

    def predict(self, z: Tensor) -> Tensor:
        """Class numbers, or in regression the prediction."""
        ...


@dataclass(frozen=True)
class Constraint:
    """A fairness gap in two forms: ``surrogate`` has a gradient, ``metric`` makes the choice.

    Parameters
    ----------
    name : str
        The name in results.
    surrogate : callable
        A function of ``(scores, y, groups)``, all tensors, that returns a differentiable scalar.
        ``groups`` are whole numbers.
    metric : callable or None
        In classification a function of the counts ``(..., G, C, C)`` by group, label and
        prediction. In regression a function of ``(predictions, y, groups)``. None: the surrogate.
    is_classification : bool, default=True
        Whether it is for classes or for regression.
    rates : tuple of Rate, default=()
        The rates that are compared, so that groups are checked for enough rows of each label.
        Without them, only the sizes of the groups are checked.
    takes_outputs : bool, default=False
        Whether the surrogate takes the model's outputs in place of scores.
    pairwise : bool, default=False
        Whether the gap is zero for all groups if and only if it is zero for every pair. Then an
        edit brings several groups together at once.
    parts : callable, default=None
        A function like ``surrogate`` that returns several gaps, ``(P,)``, which sum to it. An edit
        then closes all of them together.
    """

    name: str
    surrogate: Surrogate
    metric: Callable[..., NDArray[np.float64]] | None
    is_classification: bool = True
    rates: tuple[Rate, ...] = field(default=(), kw_only=True)
    takes_outputs: bool = field(default=False, kw_only=True)
    pairwise: bool = field(default=False, kw_only=True)
    parts: Surrogate | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, gap: Gap) -> Constraint:
        """The constraint that makes a gap small."""
        return cls(
            gap.name,
            partial(smooth_gap, gap),
            gap.metric,
            gap.is_classification,
            rates=gap.rates,
            pairwise=True,
            parts=partial(smooth_parts, gap) if gap.balanced else None,
        )

    @classmethod
    def custom(cls, function: Surrogate, name: str | None = None) -> Constraint:
        """Wrap a function of (outputs, y, groups). It is its own metric."""
        label = name or str(getattr(function, "__name__", "custom"))
        return cls(label, function, None, takes_outputs=True)

    def is_counted(self, loss: ScoringLoss) -> bool:
        """Whether the gap follows from confusion counts, so that predicted labels suffice."""
        return loss.is_classification and self.metric is not None

    def part_gradients(
        self,
        z: Tensor,
        y: Tensor,
        groups: Groups,
        loss: ScoringLoss,
        temperature: float,
        *,
        hard: bool = False,
    ) -> list[tuple[float, Tensor]]:
        """Each part of the gap with its gradient ``dM/dz``; one entry if it has no parts.

        With ``hard`` the values are of thresholded predictions, the gradients of soft scores.
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
        self, z: Tensor, y: Tensor, groups: Groups, loss: ScoringLoss, temperature: float
    ) -> list[tuple[float, Tensor]]:
        """As `part_gradients`; with several groups, of the largest group with each other one.

        The gap between the highest and the lowest group involves only these two, and as soon as
        they are closer another pair takes their place. Closing each group's gap to the largest
        group closes all gaps.
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

    def _differentiate(
        self,
        function: Surrogate,
        z: Tensor,
        y: Tensor,
        groups: Groups,
        loss: ScoringLoss,
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

    def _check(self, value: Any) -> Tensor:
        if not isinstance(value, Tensor) or value.ndim != 0:
            shape = tuple(value.shape) if hasattr(value, "shape") else "none"
            raise InvalidInputError(
                f"The constraint {self.name!r} must return a scalar tensor, got "
                f"{type(value).__name__} of shape {shape}."
            )
        return value


def _thresholded(scores: Tensor, predicted: Tensor) -> Tensor:
    """Predicted classes in the form of scores: 0 or 1, with one column per class if several."""
    if scores.ndim == 1:
        return predicted.to(scores)
    return torch.nn.functional.one_hot(predicted, scores.shape[1]).to(scores)


def _double(values: Tensor) -> NDArray[np.float64]:
    return np.asarray(values.detach().cpu().numpy(), dtype=np.float64)


CONSTRAINTS: dict[str, Constraint] = {name: Constraint.of(gap) for name, gap in GAPS.items()}


def get_constraint(constraint: str | Constraint | Gap | Surrogate | Any) -> Constraint:
    """Look a constraint up by name, or make one of a gap or a function."""
    if isinstance(constraint, Constraint):
        return constraint
    if isinstance(constraint, Gap):
        return Constraint.of(constraint)
    if callable(constraint):
        return Constraint.custom(constraint)
    if not isinstance(constraint, str) or constraint not in CONSTRAINTS:
        raise InvalidInputError(
            f"`constraints` must be one of {sorted(CONSTRAINTS)} or a function of "
            f"(outputs, y, groups), got {constraint!r}."
        )
    return CONSTRAINTS[constraint]
