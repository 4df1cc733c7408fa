"""Decisions: which rows are accepted, at which cut-off, and which label is the favourable one.

Everything in fairness is about ``z' = s (z - c)``, where ``c`` is the cut-off in log-odds and ``s``
is -1 if the favourable label is the model's first one, and about ``y'``, which is 1 for the
favourable label. A row is accepted if ``z' > 0``. The training loss goes on seeing ``z`` and ``y``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairij.errors import InvalidInputError
from fairij.fairness.chances import Chances
from fairij.fairness.constraints import Constraint, Graded, Pair, ScoringLoss, Signed
from fairij.fairness.groups import Groups

USUAL = 0.5  # the cut-off at which models predict


@dataclass(frozen=True)
class TopShare:
    """Accept this share of the rows, those with the highest scores, whatever cut-off that is.

    Rows of equal score are accepted together or not at all. Of the two shares that are then
    possible, the nearer one is taken.

    Parameters
    ----------
    share : float
        More than 0 and less than 1: 0.1 accepts the top 10 %.

    Examples
    --------
    >>> fair = FairIJ(model, threshold=TopShare(0.1), verbose=False)
    >>> fair = fair.fit(X, y, X_val=X_val, y_val=y_val, sensitive_features_val=groups_val)
    >>> bool(0.08 < fair.predict(X_val).mean() < 0.12)
    True
    """

    share: float

    def __post_init__(self) -> None:
        if not _is_chance(self.share):
            raise InvalidInputError(
                "`share` of TopShare must be a number above 0 and below 1, as in TopShare(0.1); "
                f"got {self.share!r}."
            )


Threshold = float | TopShare | None


def check_threshold(threshold: Any) -> Threshold:
    """A cut-off that `FairIJ` takes; the usual one is None."""
    if threshold is None or isinstance(threshold, TopShare):
        return threshold
    if not _is_chance(threshold):
        raise InvalidInputError(
            "`threshold` must be a probability above 0 and below 1, as in 0.3, or a share to "
            f"accept, as in TopShare(0.1); got {threshold!r}."
        )
    return None if threshold == USUAL else float(threshold)


def _is_chance(value: Any) -> bool:
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    return is_number and not isinstance(value, bool) and 0 < value < 1


@dataclass(frozen=True)
class Decision:
    """How outputs become decisions; the default is what a model's own ``predict`` does.

    Parameters
    ----------
    threshold : float, TopShare or None, default=None
        Accept a row if the chance of the favourable label is at least this, or the rows with the
        highest chances. None: as the model predicts.
    flipped : bool, default=False
        Whether the favourable label is the first of two, not the second.
    has_two : bool, default=False
        Whether outputs are ``(..., N, 2)``, not ``(..., N)``.
    temperature : float, default=1.0
        That of the smooth scores: how a top share moves if scores move.
    cut : float or None, default=None
        The cut-off in log-odds of the favourable label, if it is known: it then stays as it is.
    """

    threshold: Threshold = None
    flipped: bool = False
    has_two: bool = False
    temperature: float = 1.0
    cut: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether decisions are the model's predictions, and its second label the favourable."""
        return self.threshold is None and self.cut is None and not self.flipped

    @property
    def is_own(self) -> bool:
        """Whether decisions are the model's predictions, whatever label is favourable."""
        return self.threshold is None and self.cut is None

    @property
    def favourable(self) -> int:
        """The number of the favourable class."""
        return 0 if self.flipped else 1

    def outputs(self, z: Tensor, weight: Tensor | None = None) -> Tensor:
        """``z'``, shaped like ``z``: ``(..., N)`` or ``(..., N, 2)``.

        ``weight`` (N,): what each row counts in a top share. Differentiable: if scores move, the
        cut-off of a top share moves so that the smooth scores keep their mean.
        """
        if self.is_plain:
            return z
        if not self.has_two:
            margin = self._margin(z)
            return margin - self._cut(margin, weight)
        other = z[..., 1 - self.favourable]
        margin = self._margin(z)
        return torch.stack([other, z[..., self.favourable] - self._cut(margin, weight)], -1)

    def truth(self, y: Tensor) -> Tensor:
        """``y'``: 1 for the favourable label."""
        return 1 - y if self.flipped else y

    def labels(self, accepted: Tensor) -> Tensor:
        """The class numbers of decisions, which are 1 for accepted rows."""
        return 1 - accepted if self.flipped else accepted

    def pulled(self, slope: Tensor, z: Tensor, weight: Tensor | None = None) -> Tensor:
        """``dM/dz`` of ``dM/dz'``."""
        with torch.enable_grad():
            z = z.detach().clone().requires_grad_()
            found: Tensor = torch.autograd.grad(self.outputs(z, weight), z, slope)[0]
        return found

    def settled(self, z: Tensor, weight: Tensor | None = None) -> Decision:
        """The same decision with the cut-off that it has on these rows."""
        if not isinstance(self.threshold, TopShare) or self.cut is not None:
            return self
        margin = self._margin(z.detach())
        return replace(self, cut=float(_top(margin, self.threshold.share, weight)))

    @property
    def cut_off(self) -> float:
        """The cut-off as a chance of the favourable label; NaN for a share that is not settled."""
        if self.cut is not None:
            return 1 / (1 + math.exp(-self.cut)) if self.cut > -700 else 0.0
        if isinstance(self.threshold, TopShare):
            return math.nan
        return USUAL if self.threshold is None else self.threshold

    def chance(self, z: Tensor) -> Tensor:
        """The chance of the favourable label, ``(..., N)``, whatever the cut-off."""
        return torch.sigmoid(self._margin(z))

    def _margin(self, z: Tensor) -> Tensor:
        """The log-odds of the favourable label, ``(..., N)``."""
        margin = z[..., 1] - z[..., 0] if self.has_two else z
        return -margin if self.flipped else margin

    def _cut(self, margin: Tensor, weight: Tensor | None) -> Tensor:
        """The highest log-odds that are rejected, ``()`` or ``(..., 1)``."""
        if self.cut is not None:
            return margin.new_tensor(self.cut)
        if isinstance(self.threshold, TopShare):
            at = _top(margin.detach(), self.threshold.share, weight)[..., None]
            return at + _followed(margin, at, self.temperature, weight)
        if self.threshold is None:  # a model accepts its second label above 0, its first at 0 too
            return margin.new_tensor(-torch.finfo(margin.dtype).tiny if self.flipped else 0.0)
        log_odds = margin.new_tensor(math.log(self.threshold / (1 - self.threshold)))
        return torch.nextafter(log_odds, torch.full_like(log_odds, -math.inf))  # "at least"


OWN = Decision()
"""The decision that a model's own ``predict`` makes."""


def top_cut(chance: Any, share: float, weight: Any = None) -> float:
    """The chance above which ``share`` of the rows lie."""
    counted = None if weight is None else torch.as_tensor(weight)
    return float(_top(torch.as_tensor(chance), share, counted))


def _top(margin: Tensor, share: float, weight: Tensor | None) -> Tensor:
    """The cut-off above which ``share`` of the rows lie, ``(...)`` of ``(..., N)``."""
    values, order = margin.sort(-1, descending=True)
    if weight is None:
        weight = torch.ones(margin.shape[-1], device=margin.device)
    counted = weight.to(margin.device, torch.float64)[order].cumsum(-1)
    off = (counted / counted[..., -1:] - share).abs()[..., :-1]
    upper, lower = values[..., :-1], values[..., 1:]
    if not upper.shape[-1]:
        return values[..., 0]  # a single row: rejected
    place = off.masked_fill(upper == lower, math.inf).argmin(-1, keepdim=True)
    upper, lower = (ends.gather(-1, place)[..., 0] for ends in (upper, lower))
    middle = lower + (upper - lower) / 2
    return torch.where(middle < upper, middle, lower)


def _followed(margin: Tensor, at: Tensor, temperature: float, weight: Tensor | None) -> Tensor:
    """Zero, with the slope ``dc/dz_n`` that keeps the mean of ``sigmoid(T (z - c))``, (..., 1)."""
    p = torch.sigmoid(temperature * (margin.detach() - at))
    pull = p * (1 - p) if weight is None else p * (1 - p) * weight.to(p)
    pull = pull / pull.sum(-1, keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)
    return (pull * (margin - margin.detach())).sum(-1, keepdim=True)


@dataclass(frozen=True)
class Decided(Constraint):
    """A constraint on decisions: its gaps are those of ``z'`` and ``y'``."""

    inner: Constraint = field(kw_only=True)
    decision: Decision = field(kw_only=True)

    @classmethod
    def by(cls, decision: Decision, constraint: Constraint) -> Constraint:
        """The constraint itself if decisions are the model's own, or do not matter to it."""
        if decision.is_plain or constraint.takes_losses:
            return constraint
        same = {one.name: getattr(constraint, one.name) for one in fields(Constraint)}
        return cls(**same, inner=constraint, decision=decision)

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
        seen, truth = self._seen(z, y, groups)
        found = self.inner.part_gradients(seen, truth, groups, loss, temperature, hard=hard)
        return self._graded(found, z, groups)

    def group_gradients(
        self, z: Tensor, y: Tensor, groups: Groups, loss: ScoringLoss, temperature: float
    ) -> list[Graded]:
        seen, truth = self._seen(z, y, groups)
        found = self.inner.group_gradients(seen, truth, groups, loss, temperature)
        return self._graded(found, z, groups)

    def signed_gradients(
        self,
        z: Tensor,
        y: Tensor,
        groups: Groups,
        loss: ScoringLoss,
        temperature: float,
        chances: Chances | None = None,
    ) -> list[Signed]:
        seen, truth = self._seen(z, y, groups)
        if chances is not None and self.decision.flipped:
            both = chances.weights.flip(2), chances.observed.flip(2)
            chances = Chances(*both, chances.believed)
        found = self.inner.signed_gradients(seen, truth, groups, loss, temperature, chances)
        weight = weight_of(groups, z)
        return [(soft, hard, self.decision.pulled(slope, z, weight)) for soft, hard, slope in found]

    def gap(
        self, z: Tensor, y: Tensor, groups: Groups, table: Any, loss: ScoringLoss | None = None
    ) -> Any:
        if self.inner.metric is None:  # of outputs, not of counts
            z, y = self._seen(z, y, groups)
        return self.inner.gap(z, y, groups, table, loss)

    def _seen(self, z: Tensor, y: Tensor, groups: Groups | Pair) -> tuple[Tensor, Tensor]:
        z = z.detach()
        return self.decision.outputs(z, weight_of(groups, z)), self.decision.truth(y)

    def _graded(self, found: list[Graded], z: Tensor, groups: Groups | Pair) -> list[Graded]:
        weight = weight_of(groups, z)
        return [(gap, self.decision.pulled(slope, z, weight)) for gap, slope in found]


def weight_of(groups: Groups | Pair, z: Tensor) -> Tensor | None:
    """What each row counts, on the device of ``z``; None if all count alike."""
    weight = None if isinstance(groups, Pair) else groups.weight
    return None if weight is None else torch.as_tensor(weight, device=z.device)


def described(first: Decision, last: Decision) -> dict[str, Any]:
    """The decisions of a model before and after an edit, as plain settings of the edit."""
    asked = last.threshold
    return {
        "threshold": f"top share {asked.share:g}" if isinstance(asked, TopShare) else asked,
        "favourable_class": last.favourable,
        "has_two_outputs": last.has_two,
        "cuts": [first.cut, last.cut],
    }


def read_decisions(settings: Mapping[str, Any]) -> tuple[Decision, Decision]:
    """What `described` put into the settings of an edit; raises ValueError if that is damaged."""
    if "favourable_class" not in settings:
        return OWN, OWN
    asked, cuts = settings["threshold"], settings["cuts"]
    if isinstance(asked, str):
        asked = TopShare(float(asked.removeprefix("top share ")))
    if settings["favourable_class"] not in (0, 1) or len(cuts) != 2:
        raise ValueError("the decisions of the edit must have two cut-offs and a class, 0 or 1")
    first, last = (
        Decision(
            check_threshold(asked),
            settings["favourable_class"] == 0,
            bool(settings["has_two_outputs"]),
            1.0,
            None if cut is None else float(cut),
        )
        for cut in cuts
    )
    return first, last
