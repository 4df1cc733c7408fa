"""Constraints: what may be asked for. Each pairs a smooth gap with the hard metric it stands for.

``CONSTRAINTS`` follows from the table in `fairij.fairness.rates`. Your own is a `Gap` of other
rates, a `Constraint`, or a differentiable function of ``(outputs, y, groups)``.
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

from fairij.errors import InvalidInputError, Notice, SmallGroupWarning
from fairij.fairness.chances import Chances, expected_parts
from fairij.fairness.counterfactual import Counterfactual
from fairij.fairness.groups import Groups
from fairij.fairness.missing import SMALL_CELL
from fairij.fairness.names import read_as
from fairij.fairness.optimism import half_width, rows_needed
from fairij.fairness.rates import GAPS, Gap, Rate
from fairij.fairness.smooth import signed_parts, smooth_gap, smooth_parts
from fairij.fairness.uncertainty import of_counts, of_means

Surrogate = Callable[[Tensor, Tensor, Tensor], Tensor]
Uncertainty = dict[str, NDArray[np.float64]]
Graded = tuple[float, Tensor]  # a smooth gap and its gradient dM/dz
Signed = tuple[float, float, Tensor]  # a smooth gap, the hard one, and the gradient of the first


class ScoringLoss(Protocol):
    """What a constraint needs of a loss; `fairij.models.losses` has them."""

    @property
    def is_classification(self) -> bool: ...

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss of each row, ``(N,)``."""

    def scores(self, z: Tensor, temperature: float = 1.0) -> Tensor:
        """Probabilities ``(N,)`` or ``(N, C)``; in regression the prediction."""

    def predict(self, z: Tensor) -> Tensor:
        """Class numbers, or in regression the prediction."""


@dataclass(frozen=True)
class Constraint:
    """A fairness gap in two forms: ``surrogate`` has a gradient, ``metric`` makes the choice.

    Parameters
    ----------
    name : str
        The name in results.
    surrogate : callable
        A differentiable scalar of the tensors ``(scores, y, groups)``; groups are whole numbers.
    metric : callable or None
        In classification a function of the counts ``(..., G, C, C)`` by group, label and
        prediction. In regression a function of ``(predictions, y, groups)``. None: the surrogate.
    is_classification : bool or None, default=True
        Whether it is for classes or for regression. None: for both.
    rates : tuple of Rate, default=()
        The rates that are compared: every group must have rows of the labels that they need.
    takes_outputs : bool, default=False
        Whether the surrogate takes the model's outputs in place of scores.
    takes_losses : bool, default=False
        Whether the surrogate takes the training loss of each row in place of scores.
    is_zero_if_equal : bool, default=True
        Whether the gap is zero if all groups have equal rows.
    is_ratio : bool, default=False
        Whether the gap is 1 less a ratio, so that a ratio may be asked for.
    pairwise : bool, default=False
        Whether the gap is zero for all groups if and only if it is zero for every pair.
    parts : callable, default=None
        Like ``surrogate``, but returns the gaps that it sums, ``(P,)``, to close them together.
    signed : callable, default=None
        Like ``parts``, but returns differences that have a sign. The gap is zero where all are.
    expected : callable, default=None
        Like ``signed``, of ``(scores, weights, observed)``: see `fairij.fairness.chances`.
    uncertainty : callable, default=None
        Takes what ``metric`` takes. Returns ``gap_error``, the gap's standard error, and ``gap_p``,
        the chance of such differences if there is no gap. None: nothing is known of either.
    adds_up : bool, default=False
        Whether the gap of two groups is the sum, or the mean, of the sizes of ``signed``.
    elsewhere : tuple of Counterfactual, default=()
        Gaps on other rows than those of the groups, which are to be closed as well.
    named : callable, default=None
        Takes what ``metric`` takes. Returns the gaps that it puts together, by name.

    Examples
    --------
    >>> def spread(outputs, y, groups):  # how far apart the mean outputs of the groups are
    ...     return (outputs[groups == 0].mean() - outputs[groups == 1].mean()).abs()
    >>> Constraint.custom(spread).name
    'spread'
    """

    name: str
    surrogate: Surrogate
    metric: Callable[..., NDArray[np.float64]] | None
    is_classification: bool | None = True
    rates: tuple[Rate, ...] = field(default=(), kw_only=True)
    takes_outputs: bool = field(default=False, kw_only=True)
    takes_losses: bool = field(default=False, kw_only=True)
    is_zero_if_equal: bool = field(default=True, kw_only=True)
    is_ratio: bool = field(default=False, kw_only=True)
    pairwise: bool = field(default=False, kw_only=True)
    parts: Surrogate | None = field(default=None, kw_only=True)
    signed: Surrogate | None = field(default=None, kw_only=True)
    expected: Surrogate | None = field(default=None, kw_only=True)
    uncertainty: Callable[..., Uncertainty] | None = field(default=None, kw_only=True)
    adds_up: bool = field(default=False, kw_only=True)
    elsewhere: tuple[Counterfactual, ...] = field(default=(), kw_only=True)
    named: Callable[..., dict[str, NDArray[np.float64]]] | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, gap: Gap) -> Constraint:
        """The constraint that makes a gap small."""
        has_sign, is_counted = gap.is_zero_if_equal, gap.is_classification
        return cls(
            gap.name,
            partial(smooth_gap, gap),
            gap.metric,
            gap.is_classification,
            rates=gap.rates,
            pairwise=has_sign,
            parts=partial(smooth_parts, gap) if gap.balanced else None,
            signed=partial(signed_parts, gap) if has_sign else None,
            expected=partial(expected_parts, gap) if has_sign and is_counted else None,
            uncertainty=partial(of_counts if is_counted else of_means, gap),
            adds_up=has_sign
            and gap.fold != "worst_case"
            and gap.form == "difference"
            and not gap.balanced,
            is_zero_if_equal=has_sign,
            is_ratio=gap.form == "ratio",
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
        groups: Groups | Pair,
        loss: ScoringLoss,
        temperature: float,
        *,
        hard: bool = False,
    ) -> list[Graded]:
        """Each part of the gap with its gradient ``dM/dz``; ``hard`` values if asked for."""
        z = z.detach().clone().requires_grad_()
        codes = _as_tensor(groups, z)
        with torch.enable_grad():
            seen = self.seen(z, y, loss, temperature)
            if hard and self._is_thresholded(loss):
                seen = seen + (self._hard(seen, z, loss) - seen).detach()
            data = (seen, y, codes)
            values = [self.surrogate(*data)] if self.parts is None else list(self.parts(*data))
            return [(float(self._scalar(value)), self._gradient(value, z)) for value in values]

    def signed_gradients(
        self,
        z: Tensor,
        y: Tensor,
        groups: Groups,
        loss: ScoringLoss,
        temperature: float,
        chances: Chances | None = None,
    ) -> list[Signed]:
        """Differences with a sign: each smooth, hard, and with the gradient of the smooth one.

        Of a constraint that has none, its parts, which are gaps or values to be made small. With
        ``chances`` the smooth ones are taken by them, the hard ones as observed, or by both.
        """
        z = z.detach().clone().requires_grad_()
        codes = _as_tensor(groups, z)
        take = self.signed or self.parts or (lambda *data: self.surrogate(*data)[None])
        with torch.enable_grad():
            seen = self.seen(z, y, loss, temperature)
            thresholded = self._hard(seen, z, loss).detach()
            if chances is None or self.expected is None:
                smooth, hard = take(seen, y, codes), take(thresholded, y, codes)
            else:
                weights, observed = chances.weights.to(seen), chances.observed.to(seen)
                smooth = self.expected(seen, weights, observed)
                hard = self.expected(thresholded, observed, observed)
                if chances.believed:
                    likely = self.expected(thresholded, weights, observed)
                    hard = hard + chances.believed * (likely - hard)
            return [
                (float(self._scalar(soft)), float(self._scalar(value)), self._gradient(soft, z))
                for soft, value in zip(list(smooth), list(hard), strict=True)
            ]

    def seen(self, z: Tensor, y: Tensor, loss: ScoringLoss, temperature: float) -> Tensor:
        """What the surrogate takes: scores, outputs or losses."""
        if self.takes_losses:
            return loss.value(z, y)
        return z if self.takes_outputs else loss.scores(z, temperature)

    def _is_thresholded(self, loss: ScoringLoss) -> bool:
        return loss.is_classification and not (self.takes_outputs or self.takes_losses)

    def _hard(self, seen: Tensor, z: Tensor, loss: ScoringLoss) -> Tensor:
        """Thresholded predictions in the shape of the scores; what was seen if there are none."""
        if not self._is_thresholded(loss):
            return seen
        predicted = loss.predict(z)
        if seen.ndim == 2:
            predicted = torch.nn.functional.one_hot(predicted, seen.shape[1])
        return predicted.to(seen)

    def group_gradients(
        self, z: Tensor, y: Tensor, groups: Groups, loss: ScoringLoss, temperature: float
    ) -> list[Graded]:
        """As `part_gradients`; with several groups, of the largest group with each other one."""
        if len(groups.names) <= 2 or not self.pairwise:
            return self.part_gradients(z, y, groups, loss, temperature)
        largest, found = int(groups.sizes.argmax()), []
        if not groups.is_plain:
            return self._of_pairs(z, y, groups, loss, temperature, largest)
        for other in set(groups.codes.tolist()) - {largest}:
            pair = np.flatnonzero(np.isin(groups.codes, (largest, other)))
            at = torch.as_tensor(pair, device=z.device)
            parts = self.part_gradients(z[at], y[at], groups.take(pair), loss, temperature)
            for gap, some in parts:
                gradient = torch.zeros_like(z)
                gradient[at] = some
                found.append((gap, gradient))
        return found

    def _of_pairs(
        self,
        z: Tensor,
        y: Tensor,
        groups: Groups,
        loss: ScoringLoss,
        temperature: float,
        largest: int,
    ) -> list[Graded]:
        """`group_gradients` of rows that count by weights: a pair is two columns of them."""
        member, found = groups.membership(), []
        for other in range(len(groups.names)):
            if other != largest and member[:, other].any():
                pair = Pair(member[:, [largest, other]])
                found += self.part_gradients(z, y, pair, loss, temperature)
        return found

    def gap(
        self,
        z: Tensor,
        y: Tensor,
        groups: Groups,
        table: NDArray[np.float64] | None,
        loss: ScoringLoss | None = None,
    ) -> NDArray[np.float64]:
        """The hard gaps ``(K,)`` of ``z (K, N, ...)``, or of their counts ``(K, G, C, C)``.

        A constraint that takes losses needs the ``loss``.
        """
        if self.metric is None:
            codes = _as_tensor(groups, z)
            each = (loss.value(row, y) if loss and self.takes_losses else row for row in z)
            return np.array([float(self._scalar(self.surrogate(row, y, codes))) for row in each])
        if table is None:
            return self.metric(*_numbers(z, y), groups)
        return self.metric(table)

    def how_sure(self, z: Tensor, y: Tensor, groups: Groups) -> Uncertainty:
        """``gap_error`` and ``gap_p`` of gaps in regression; NaN if nothing is known of them."""
        if self.uncertainty is None:
            return dict.fromkeys(("gap_error", "gap_p"), np.full(len(z), np.nan))
        return self.uncertainty(*_numbers(z, y), groups)

    def _gradient(self, value: Tensor, z: Tensor) -> Tensor:
        if not value.requires_grad:
            raise InvalidInputError(
                f"The constraint {self.name!r} must be differentiable in the outputs, but its "
                "value does not depend on them: use torch operations without `detach`."
            )
        return torch.autograd.grad(value, z, retain_graph=True)[0]

    def _scalar(self, value: Any) -> Tensor:
        if not isinstance(value, Tensor) or value.ndim != 0:
            shape = tuple(value.shape) if hasattr(value, "shape") else "none"
            raise InvalidInputError(
                f"The constraint {self.name!r} must return a scalar tensor, got "
                f"{type(value).__name__} of shape {shape}."
            )
        return value.detach()


@dataclass(frozen=True, eq=False)
class Pair:
    """Two groups, by how much each row counts for them, ``(N, 2)``."""

    member: NDArray[np.float64]


def _as_tensor(groups: Groups | Pair, z: Tensor) -> Tensor:
    """The codes ``(N,)`` of plain groups; else how much each row counts for each, ``(N, G)``."""
    if isinstance(groups, Pair):
        return torch.as_tensor(groups.member, device=z.device)
    if groups.is_plain:
        return torch.as_tensor(groups.codes, device=z.device)
    return torch.as_tensor(groups.membership()[:, : len(groups.names)], device=z.device)


def _numbers(*values: Tensor) -> tuple[NDArray[np.float64], ...]:
    return tuple(value.detach().cpu().double().numpy() for value in values)


def worst_group_loss(losses: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """The largest mean loss of a group: ``max_g E[l | g]`` (bounded group loss)."""
    if groups.ndim == 2:  # how much each row counts for each group
        some = groups[:, groups.sum(0) > 0].to(losses)
        return (losses @ some / some.sum(0)).amax()
    return torch.stack([losses[groups == code].mean() for code in torch.unique(groups)]).amax()


CONSTRAINTS: dict[str, Constraint] = {name: Constraint.of(gap) for name, gap in GAPS.items()} | {
    "worst_group_loss": Constraint(
        "worst_group_loss",
        worst_group_loss,
        None,
        is_classification=None,
        takes_losses=True,
        is_zero_if_equal=False,
    )
}


def get_constraint(constraint: str | Constraint | Gap | Surrogate | Any) -> Constraint:
    """Look a constraint up by name, or make one of a gap or a function."""
    if isinstance(constraint, Constraint):
        return constraint
    if isinstance(constraint, Gap):
        return Constraint.of(constraint)
    if callable(constraint):
        return Constraint.custom(constraint)
    known = read_as(constraint) if isinstance(constraint, str) else None
    if known is None:
        raise InvalidInputError(
            f"`constraints` must be one of {sorted(CONSTRAINTS)}, a name of fairlearn or "
            f"error-parity, or a function of (outputs, y, groups); got {constraint!r}."
        )
    return CONSTRAINTS[known]


def check_sizes(
    constraint: Constraint,
    y: NDArray[Any],  # positions in `classes`; in regression numbers
    classes: NDArray[Any],  # (C,); in regression (0,)
    groups: Groups,
    target: float | None = None,
    predicted: NDArray[Any] | None = None,  # what the model predicts, in positions of `classes`
) -> list[Notice]:
    """Raise if a group has too few rows for its rates; note if few, or too few for a target gap."""
    if constraint.takes_outputs:
        if not groups.is_plain:
            raise InvalidInputError(
                f"`constraints` must be one of {sorted(CONSTRAINTS)} if rows have weights, or no "
                f"group, or chances of groups: the function {constraint.name!r} takes the number "
                "of one group for each row."
            )
        return []  # a user's own function decides for itself
    if constraint.is_classification not in (None, len(classes) > 0):
        kind = "regression" if constraint.is_classification else "classification"
        known = [name for name, gap in GAPS.items() if gap.is_classification == (len(classes) > 0)]
        raise InvalidInputError(
            f"`constraints` must be defined for {kind}: one of {sorted(known)}, got "
            f"{constraint.name!r}."
        )
    if groups.absent:
        raise InvalidInputError(
            f"Every group must have validation rows, but {', '.join(map(repr, groups.absent))} "
            "has none, so its gap is unknown: add rows of it, or remove the unused category."
        )
    if len(groups.names) < 2:
        raise InvalidInputError(
            "A gap needs at least two groups on the validation rows, found only "
            f"{groups.names[0]!r}; add rows of another group."
        )
    cells = rows_compared(constraint, y, classes, groups)
    if predicted is not None:
        cells |= predictions_compared(constraint, predicted, classes, groups)
    few = {name: n for name, n in cells.items() if n < 2}
    if few:
        given_label = any(rate.given != "any label" for rate in constraint.rates)
        of_predicted = any(rate.of_predicted for rate in constraint.rates)
        looked_at = f" of each {'predicted ' * of_predicted}label that the constraint looks at"
        raise InvalidInputError(
            "Every group needs at least two validation rows"
            + (" of a weight above 0" if groups.weight is not None else "")
            + (looked_at if given_label else "")
            + f"; found {_listed(few)}. Add validation rows, merge groups (cut a continuous "
            "attribute into ranges), or choose another constraint."
        )
    texts = []
    small = {name: n for name, n in cells.items() if n < SMALL_CELL}
    if small:
        texts.append(
            f"Few validation rows: {_listed(small)}. Rates over fewer than {SMALL_CELL} rows are "
            "very uncertain; see the intervals of their rates."
        )
    if target and len(classes) > 0:
        # the share of positives if shares of predictions are compared, else the widest case
        is_share = all(rate.name == "selection_rate" for rate in constraint.rates)
        rate = float(np.clip(np.mean(y == 1), 0.05, 0.95)) if is_share else 0.5
        apart = target * rate if constraint.is_ratio else target
        name, n = min(cells.items(), key=lambda cell: cell[1])
        if n < rows_needed(rate, apart):
            asked = f"ratio of {1 - target:g}" if constraint.is_ratio else f"gap of {target:g}"
            texts.append(
                f"A {asked} is asked for, but {n} rows of {name!r} show its rate to "
                f"within {half_width(rate, n):.2g} only: about {rows_needed(rate, apart):,} "
                "validation rows of each group would do."
            )
    return [Notice(text, SmallGroupWarning) for text in texts]


def rows_compared(
    constraint: Constraint, y: NDArray[Any], classes: NDArray[Any], groups: Groups
) -> dict[str, int]:
    """How many rows each rate of each group is taken over, by a name that people can read."""
    whole = tuple(range(len(classes)))
    asked = {labels for rate in constraint.rates for labels in rate.labels(len(classes))}
    found = {}
    for code, group in enumerate(groups.names):
        mine = groups.counted(code)
        for labels in sorted(asked - {whole}, key=lambda labels: (len(labels), labels)):
            names = " or ".join(str(classes[label]) for label in labels)
            found[f"{group} with label {names}"] = int(mine[np.isin(y, labels)].sum())
        if not asked or whole in asked:
            found[group] = int(mine.sum())
    return found


def predictions_compared(
    constraint: Constraint, predicted: NDArray[Any], classes: NDArray[Any], groups: Groups
) -> dict[str, int]:
    """How many rows of each group are predicted as each class that such a rate is taken over."""
    asked = {rate.given for rate in constraint.rates if rate.of_predicted}
    found, compared = {}, [1] if len(classes) == 2 else range(len(classes))
    for code, group in enumerate(groups.names):
        mine = groups.counted(code)
        for label in compared:
            own = int(mine[predicted == label].sum())
            if "predicted as the class" in asked:
                found[f"{group} predicted as {classes[label]}"] = own
            if "predicted as another" in asked:
                found[f"{group} not predicted as {classes[label]}"] = int(mine.sum()) - own
    return found


def _listed(cells: dict[str, int]) -> str:
    some = [f"{n} of {name!r}" for name, n in list(cells.items())[:6]]
    more = len(cells) - len(some)
    return ", ".join(some) + (f" and {more} more like these" if more else "")
